// The workers during a scheduling decision: what is free, and when used slots become free. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/time/time.h"
#include "scheduler/scheduler.h"

namespace legoai::scheduler {

class Fleet {
 public:
  struct Use {
    absl::Time end;  // InfiniteFuture: unknown; InfinitePast: it stops already, or is a check of the worker
    int64_t slots = 0;
  };
  struct Worker {
    const WorkerView* view = nullptr;
    int64_t free = 0;
    std::vector<Use> uses;
  };

  // The snapshot must outlive it. Expected ends before `now` count as `now`.
  Fleet(absl::Time now, const Snapshot& snapshot);

  const std::vector<Worker>& workers() const { return workers_; }  // by name

  // The workers that accept jobs of one pool, device type and set of kinds, regardless of size.
  struct Group {
    std::vector<int> workers;  // indices, ascending
    int64_t largest = 0;       // most slots of one worker
    int64_t most_free = 0;     // on one worker
    int freest = -1;           // the first by name with most_free; -1: nothing is free
    std::map<std::string, std::vector<int>> gangs;  // those that may train together, by WorkerView::gang
  };
  const Group& Accepting(const WaitingJob& job) const;  // a job of the snapshot

  // Takes free slots of a worker; there must be enough.
  void Take(int worker, int64_t slots, absl::Time end);

  // When a worker will have this many slots free, as far as ends are known. It must not have them now.
  std::optional<absl::Time> FreeAt(int worker, int64_t slots) const;
  // How many will be free at `at`, if nothing is started.
  int64_t FreeSlotsAt(int worker, absl::Time at) const;

 private:
  using Wanted = std::tuple<std::string, std::string, std::vector<std::string>>;  // pool, device type, kinds; empty is any

  static Wanted WantedBy(const WaitingJob& job) { return {job.pool, job.device_type, job.kinds}; }
  void Survey(Group* group) const;

  std::vector<Worker> workers_;
  std::map<Wanted, Group> accepting_;
};

// Reservations for the heads of the queue, and which jobs may be backfilled. Not thread-safe.

struct Reservation {
  const WaitingJob* job = nullptr;
  std::map<int, int64_t> left_over;  // by worker where it will start: slots that are then still free; empty: unknown
  std::optional<absl::Time> at;      // when; InfinitePast: as soon as those have ended that stop already, and checks
};

// Where a job that fits nowhere now will fit first. Of one worker, ties go to the worker with the most free slots now (so that
// the choice is stable across calls), then by name; of several, to the first gang by name. `could_use`: workers that are large
// enough, and enough of them of each gang.
Reservation Reserve(const Fleet& fleet, const WaitingJob& job, const std::vector<int>& could_use);

class Reservations {
 public:
  explicit Reservations(size_t workers) : keeps_(workers, nullptr) {}

  // The head that could use this worker, at most one; null: none.
  const Reservation* KeptFor(int worker) const { return keeps_[worker]; }
  // The reservation of a job; null if it is not a head.
  const Reservation* Of(const WaitingJob& job) const;

  // `could_use` are the workers that the job could ever run on; none of them may be reserved for another job.
  void Add(const Reservation& reservation, const std::vector<int>& could_use);

  // Whether a job that takes this many free slots of a worker until `end` delays no head.
  bool Allow(int worker, int64_t slots, absl::Time end) const;
  // Such a job was started.
  void Started(int worker, int64_t slots, absl::Time end);

 private:
  bool Outlasts(int worker, absl::Time end) const;
  std::map<const WaitingJob*, Reservation> reservations_;  // by head; addresses are stable
  std::vector<Reservation*> keeps_;                        // by worker
};

}  // namespace legoai::scheduler

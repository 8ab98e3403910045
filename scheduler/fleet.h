// The workers while a decision is being made: what is free, and when what is used will be. Not thread-safe.
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
    absl::Time end;  // InfiniteFuture: not known
    int64_t slots = 0;
  };
  struct Worker {
    const WorkerView* view = nullptr;
    int64_t free = 0;
    std::vector<Use> uses;
  };

  // The snapshot must outlive it. Ends before `now` count as `now`.
  Fleet(absl::Time now, const Snapshot& snapshot);

  const std::vector<Worker>& workers() const { return workers_; }  // by name

  // The workers that accept jobs of one pool, device type and set of kinds, however large they are.
  struct Group {
    std::vector<int> workers;  // indices, ascending
    int64_t largest = 0;       // slots of one of them
    int64_t most_free = 0;     // on one of them
    int freest = -1;           // by name the first with most_free; -1: nothing is free
  };
  const Group& Accepting(const WaitingJob& job) const;  // of the snapshot

  // Gives slots of a worker away; there must be as many.
  void Take(int worker, int64_t slots, absl::Time end);

  // When a worker will have so many slots free, as far as ends are known. It must not have them now.
  std::optional<absl::Time> FreeAt(int worker, int64_t slots) const;
  // What will be free then, if nothing is started.
  int64_t FreeSlotsAt(int worker, absl::Time at) const;

 private:
  using Wanted = std::tuple<std::string, std::string, std::vector<std::string>>;  // pool, device type, kinds; empty is any

  static Wanted WantedBy(const WaitingJob& job) { return {job.pool, job.device_type, job.kinds}; }
  void Survey(Group* group) const;

  std::vector<Worker> workers_;
  std::map<Wanted, Group> accepting_;
};

}  // namespace legoai::scheduler

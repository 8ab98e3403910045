// What is kept for the heads of the queue, and what may be started beside it (backfill). Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "scheduler/fleet.h"

namespace legoai::scheduler {

struct Reservation {
  const WaitingJob* job = nullptr;
  int worker = -1;               // where it will start; -1: on no worker as far as is known
  std::optional<absl::Time> at;  // when
  int64_t left_over = 0;         // slots of that worker which are free then and not its own
};

// Where a job that fits nowhere now will fit first; of equals where the most is free now (so that the choice stays, call after
// call), then by name. `could_use`: workers that are large enough.
Reservation Reserve(const Fleet& fleet, const WaitingJob& job, const std::vector<int>& could_use);

class Reservations {
 public:
  explicit Reservations(size_t workers) : keeps_(workers, nullptr) {}

  // The head that could use this worker; null: none. There is one at most.
  const Reservation* KeptFor(int worker) const { return keeps_[worker]; }
  // What is kept for a job; null: it is no head.
  const Reservation* Of(const WaitingJob& job) const;

  // `could_use` are the workers that the job could ever run on; none of them may be kept for another.
  void Add(const Reservation& reservation, const std::vector<int>& could_use);

  // Whether a job that takes so many free slots of a worker until `end` delays no head.
  bool Allow(int worker, int64_t slots, absl::Time end) const;
  // It was started.
  void Started(int worker, int64_t slots, absl::Time end);

 private:
  bool Outlasts(int worker, absl::Time end) const;
  std::map<const WaitingJob*, Reservation> reservations_;  // by head; addresses stay
  std::vector<Reservation*> keeps_;                        // by worker
};

}  // namespace legoai::scheduler

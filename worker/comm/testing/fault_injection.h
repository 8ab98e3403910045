// For tests: a Communicator that misbehaves at one operation, and otherwise passes on to the real one.
#pragma once

#include <cstdint>
#include <memory>

#include "worker/comm/runtime.h"

namespace legoai::comm::testing {

struct Fault {
  enum class Kind {
    kError,  // the operation fails with Unavailable
    kHang,   // it never returns
    kKill,   // the process dies by SIGKILL
  };
  Kind kind = Kind::kError;
  int64_t rank = 0;      // in the world
  int64_t step = 0;      // FaultClock::step
  int64_t sequence = 0;  // operation of that step in this process, from 0, over all communicators
};

// Counts a process's operations. Thread-safe; shared by all communicators that a factory makes.
class FaultClock {
 public:
  FaultClock();
  ~FaultClock();
  // The test says when a step begins; operations are counted from 0 in each.
  void BeginStep(int64_t step);
  // The number of the operation that starts now, and its step.
  struct Moment {
    int64_t step, sequence;
  };
  Moment Next();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Decorates what `factory` makes. `clock` is not owned.
CommunicatorFactory WithFault(CommunicatorFactory factory, int64_t world_rank, Fault fault, FaultClock* clock);

}  // namespace legoai::comm::testing

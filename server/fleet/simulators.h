// The lego-sim processes of the server, a bounded number, shared by all plans that are under way. A process that becomes free
// goes to the group that has the fewest, and one of several that a group has is taken from it for a group that has none. So
// nobody waits for another's plan, and for another's simulation only where more groups plan than there are processes.
// Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "planner/estimates.h"

namespace legoai::server {

// What one plan has of them.
class SimulatorShare : public planner::Estimator {
 public:
  // Monotonic. It stands still while something was asked and no process simulates any of it, since others have them all: a budget
  // of time on this clock is not spent by waiting for others.
  virtual absl::Duration Clock() const = 0;
};

class Simulators {
 public:
  // `make` is called once on each of `processes` threads, since children die with the thread that spawned them; of what it makes,
  // one estimate is asked at a time.
  Simulators(std::function<std::unique_ptr<planner::Estimator>()> make, int64_t processes);
  ~Simulators();  // stops what is under way; its shares must be gone

  // For one plan, used by one thread. Several of one group share its turns.
  std::unique_ptr<SimulatorShare> Share(const std::string& group);

 private:
  class Pool;
  class Member;
  const std::unique_ptr<Pool> pool_;
};

}  // namespace legoai::server

// Runs a Program: when every task starts and ends, and what each start waited for.
//
// Event-driven: the work is proportional to tasks and waits, whatever the number of queues. Deterministic. Torch-free.
// Thread-safety: a pure function.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "simulator/engine/program.h"

namespace legoai::sim {

struct Schedule {
  double seconds = 0;  // end of the last task
  std::vector<double> start, finish;
  // The task whose end let this one start; kNoTask if it was its release time, or nothing.
  std::vector<TaskId> blocker;
};

// `describe` names a task in the message of a deadlock; null: its number. Errors: FailedPrecondition for a deadlock, with the
// queues that stand still and what each waits for; InvalidArgument for a task that joins two others, a wait for no task, times,
// shares or capacities that are negative or not finite.
absl::StatusOr<Schedule> Simulate(const Program& program, const std::function<std::string(TaskId)>& describe = nullptr);

}  // namespace legoai::sim

// The event simulator and its input: queues of tasks in order, resources that running tasks share, waits and joint tasks between
// queues. It knows nothing about devices; simulator/engine/lower_trace.h translates. Simulate() computes when every task starts
// and ends, and what each start waited for.
//
// Event-driven: the work is proportional to tasks and waits, whatever the number of queues. Deterministic. A Program is
// not thread-safe; Simulate() is a pure function. Units: seconds.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace legoai::sim {

using TaskId = uint32_t;
inline constexpr TaskId kNoTask = UINT32_MAX;

// The `share` of a resource that a running task demands, in units of its capacity. If the shares of the running tasks exceed the
// capacity, all of them slow down by that ratio.
struct Demand {
  uint32_t resource = 0;
  float share = 1;
};

class Program {
 public:
  uint32_t AddQueue(std::string name) {
    queue_names_.push_back(std::move(name));
    last_.push_back(kNoTask);
    return static_cast<uint32_t>(queue_names_.size() - 1);
  }
  uint32_t AddResource(std::string name, double capacity) {
    resource_names_.push_back(std::move(name));
    capacities_.push_back(capacity);
    return static_cast<uint32_t>(capacities_.size() - 1);
  }
  // Appends a task to a queue: `seconds` of work at full speed, starting no earlier than `release`.
  TaskId AddTask(uint32_t queue, double seconds, double release = 0, std::initializer_list<Demand> demands = {}) {
    TaskId id = AddTaskWith(queue, seconds, release);
    for (Demand demand : demands) AddDemand(demand);
    return id;
  }
  TaskId AddTaskWith(uint32_t queue, double seconds, double release) {
    TaskId id = static_cast<TaskId>(tasks_.size());
    tasks_.push_back({seconds, release, queue, last_[queue], static_cast<uint32_t>(demands_.size()), 0});
    last_[queue] = id;
    return id;
  }
  // Of the task added last.
  void AddDemand(Demand demand) {
    demands_.push_back(demand);
    ++tasks_.back().demand_count;
  }
  // `task` starts only after `on` is finished. Either may be added first.
  void AddWait(TaskId task, TaskId on) { waits_.emplace_back(task, on); }
  // Both start together, once each could start alone, and end together: they take as long as the longer one, with the demands of
  // both. A task joins at most one other.
  void Join(TaskId a, TaskId b) { joins_.emplace_back(a, b); }

  // The last task of a queue; kNoTask if it has none.
  TaskId Last(uint32_t queue) const { return last_[queue]; }

  struct Task {
    double seconds, release;
    uint32_t queue;
    TaskId previous;  // in its queue
    uint32_t first_demand, demand_count;
  };
  const std::vector<Task>& tasks() const { return tasks_; }
  const std::vector<Demand>& demands() const { return demands_; }
  const std::vector<std::pair<TaskId, TaskId>>& waits() const { return waits_; }
  const std::vector<std::pair<TaskId, TaskId>>& joins() const { return joins_; }
  const std::vector<double>& capacities() const { return capacities_; }
  const std::string& QueueName(uint32_t queue) const { return queue_names_[queue]; }
  size_t queue_count() const { return queue_names_.size(); }

 private:
  std::vector<Task> tasks_;
  std::vector<Demand> demands_;
  std::vector<std::pair<TaskId, TaskId>> waits_, joins_;
  std::vector<double> capacities_;
  std::vector<std::string> queue_names_, resource_names_;
  std::vector<TaskId> last_;  // by queue
};

struct Schedule {
  double seconds = 0;  // end of the last task
  std::vector<double> start, finish;
  // The task whose end let this one start; kNoTask if it was its release time, or nothing.
  std::vector<TaskId> blocker;
};

// `describe` names a task in the message of a deadlock; null: its number. Errors: FailedPrecondition for a deadlock, with the
// blocked queues and what each waits for; InvalidArgument for a task that joins two others, a wait for a missing task, or times,
// shares or capacities that are negative or not finite.
absl::StatusOr<Schedule> Simulate(const Program& program, const std::function<std::string(TaskId)>& describe = nullptr);

}  // namespace legoai::sim

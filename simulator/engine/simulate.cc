#include "simulator/engine/simulate.h"

#include <algorithm>
#include <cmath>
#include <queue>

#include "absl/strings/str_cat.h"

namespace legoai::sim {
namespace {

// Dependents of each task, back to back.
class Dependents {
 public:
  Dependents(size_t tasks, const std::vector<std::pair<TaskId, TaskId>>& waits) : begin_(tasks + 1, 0), tasks_(waits.size()) {
    for (auto [task, on] : waits) ++begin_[on + 1];
    for (size_t i = 0; i < tasks; ++i) begin_[i + 1] += begin_[i];
    std::vector<uint32_t> place(begin_.begin(), begin_.end() - 1);
    for (auto [task, on] : waits) tasks_[place[on]++] = task;
  }
  const TaskId* begin(TaskId task) const { return tasks_.data() + begin_[task]; }
  const TaskId* end(TaskId task) const { return tasks_.data() + begin_[task + 1]; }

 private:
  std::vector<uint32_t> begin_;
  std::vector<TaskId> tasks_;
};

struct Event {
  double time;
  uint64_t order;  // breaks ties in the order of posting
  TaskId task;
  uint32_t version;  // of the finish that was announced; kStart for a start
  bool operator>(const Event& other) const { return time != other.time ? time > other.time : order > other.order; }
};
constexpr uint32_t kStart = UINT32_MAX;

// A task and the one it joins act as one, by the name of the smaller: the leader.
class Engine {
 public:
  explicit Engine(const Program& program)
      : program_(program),
        tasks_(program.tasks()),
        dependents_(tasks_.size(), program.waits()),
        next_(tasks_.size(), kNoTask),
        partner_(tasks_.size(), kNoTask),
        pending_(tasks_.size(), 0),
        state_(tasks_.size()),
        load_(program.capacities().size(), 0.0),
        running_on_(program.capacities().size()),
        dirty_(program.capacities().size(), false) {}

  absl::Status Prepare() {
    for (TaskId id = 0; id < tasks_.size(); ++id) {
      if (tasks_[id].previous == kNoTask) continue;
      next_[tasks_[id].previous] = id;
      ++pending_[id];
    }
    for (auto [task, on] : program_.waits()) {
      (void)on;
      ++pending_[task];
    }
    for (auto [a, b] : program_.joins()) {
      if (a == b || partner_[a] != kNoTask || partner_[b] != kNoTask) {
        return absl::InvalidArgumentError(absl::StrCat("task ", a, " or ", b, " joins more than one other"));
      }
      partner_[a] = b;
      partner_[b] = a;
    }
    schedule_.start.assign(tasks_.size(), -1);
    schedule_.finish.assign(tasks_.size(), -1);
    schedule_.blocker.assign(tasks_.size(), kNoTask);
    return absl::OkStatus();
  }

  void Run() {
    for (TaskId id = 0; id < tasks_.size(); ++id) {
      if (Leader(id) == id && Unblocked(id)) Release(id, 0, kNoTask);
    }
    Settle(0);
    while (!events_.empty()) {
      double now = events_.top().time;
      while (!events_.empty() && events_.top().time == now) {
        Event event = events_.top();
        events_.pop();
        if (event.version == kStart) {
          Start(event.task, now);
        } else if (event.version == state_[event.task].version) {
          Finish(event.task, now);
        }
      }
      Settle(now);
    }
  }

  bool complete() const { return finished_ == tasks_.size(); }
  Schedule Take() { return std::move(schedule_); }

  std::string Deadlock(const std::function<std::string(TaskId)>& describe) const {
    auto name = [&](TaskId id) {
      return absl::StrCat(program_.QueueName(tasks_[id].queue), " (", describe ? describe(id) : absl::StrCat("task ", id), ")");
    };
    std::string text = "deadlock:";
    int shown = 0;
    for (TaskId id = 0; id < tasks_.size(); ++id) {
      bool head = schedule_.finish[id] < 0 && (tasks_[id].previous == kNoTask || schedule_.finish[tasks_[id].previous] >= 0);
      if (!head) continue;
      if (++shown > 32) return text + " ...";
      absl::StrAppend(&text, shown > 1 ? ";" : "", " queue ", name(id), " waits for ");
      std::string reasons;
      for (auto [task, on] : program_.waits()) {
        if (task == id && schedule_.finish[on] < 0) absl::StrAppend(&reasons, reasons.empty() ? "" : " and ", name(on));
      }
      if (reasons.empty() && partner_[id] != kNoTask) reasons = absl::StrCat("its partner ", name(partner_[id]));
      text += reasons;
    }
    return text;
  }

 private:
  struct State {
    double remaining = 0, rate = 0, since = 0;
    uint32_t version = 0;
  };

  TaskId Leader(TaskId id) const { return partner_[id] == kNoTask ? id : std::min(id, partner_[id]); }
  bool Unblocked(TaskId leader) const {
    return pending_[leader] == 0 && (partner_[leader] == kNoTask || pending_[partner_[leader]] == 0);
  }
  template <class F>
  void ForEachDemand(TaskId leader, F f) const {
    for (TaskId id : {leader, partner_[leader]}) {
      if (id == kNoTask) continue;
      const Demand* demands = program_.demands().data() + tasks_[id].first_demand;
      for (uint32_t i = 0; i < tasks_[id].demand_count; ++i) f(demands[i]);
    }
  }

  // All that `leader` waited for is done at `now`; its release time may still be ahead.
  void Release(TaskId leader, double now, TaskId cause) {
    double release = tasks_[leader].release;
    if (partner_[leader] != kNoTask) release = std::max(release, tasks_[partner_[leader]].release);
    SetBlocker(leader, release > now ? kNoTask : cause);
    if (release > now) {
      events_.push({release, order_++, leader, kStart});
    } else {
      Start(leader, now);
    }
  }
  void SetBlocker(TaskId leader, TaskId cause) {
    schedule_.blocker[leader] = cause;
    if (partner_[leader] != kNoTask) schedule_.blocker[partner_[leader]] = cause;
  }

  void Start(TaskId leader, double now) {
    State& state = state_[leader];
    state.remaining = tasks_[leader].seconds;
    schedule_.start[leader] = now;
    if (partner_[leader] != kNoTask) {
      state.remaining = std::max(state.remaining, tasks_[partner_[leader]].seconds);
      schedule_.start[partner_[leader]] = now;
    }
    state.since = now;
    state.rate = 0;  // until all that happens at this moment is known
    fresh_.push_back(leader);
    ForEachDemand(leader, [&](Demand demand) {
      running_on_[demand.resource].push_back(leader);
      ChangeLoad(demand.resource, demand.share);
    });
  }

  void Finish(TaskId leader, double now) {
    ForEachDemand(leader, [&](Demand demand) {
      auto& running = running_on_[demand.resource];
      running.erase(std::find(running.begin(), running.end(), leader));
      ChangeLoad(demand.resource, -demand.share);
      if (running.empty()) load_[demand.resource] = 0;  // no rounding is left behind
    });
    Complete(leader, now);
    if (partner_[leader] != kNoTask) Complete(partner_[leader], now);
    Unblock(leader, now);
    if (partner_[leader] != kNoTask) Unblock(partner_[leader], now);
  }
  void Complete(TaskId id, double now) {
    schedule_.finish[id] = now;
    schedule_.seconds = std::max(schedule_.seconds, now);
    ++finished_;
  }
  void Unblock(TaskId id, double now) {
    if (next_[id] != kNoTask) Satisfy(next_[id], now, id);
    for (const TaskId* it = dependents_.begin(id); it != dependents_.end(id); ++it) Satisfy(*it, now, id);
  }
  void Satisfy(TaskId id, double now, TaskId cause) {
    --pending_[id];
    if (Unblocked(Leader(id))) Release(Leader(id), now, cause);
  }

  double RateOf(TaskId leader) const {
    double rate = 1;
    ForEachDemand(leader, [&](Demand demand) {
      double load = load_[demand.resource], capacity = program_.capacities()[demand.resource];
      if (load > capacity) rate = std::min(rate, capacity / load);
    });
    return rate;
  }

  // Rates change only where a resource is, or was, asked for more than it has.
  void ChangeLoad(uint32_t resource, double change) {
    double before = load_[resource], after = before + change;
    double full = program_.capacities()[resource] * (1 + 1e-6);  // sums of shares are rounded
    load_[resource] = after;
    if ((before > full || after > full) && !dirty_[resource]) {
      dirty_[resource] = true;
      dirty_list_.push_back(resource);
    }
  }

  // Gives new rates where resources changed hands. An end and a start that cancel out change none.
  void Settle(double now) {
    for (uint32_t resource : dirty_list_) {
      dirty_[resource] = false;
      for (TaskId leader : running_on_[resource]) {
        if (state_[leader].rate > 0) ChangeRate(leader, now);
      }
    }
    dirty_list_.clear();
    for (TaskId leader : fresh_) ChangeRate(leader, now);
    fresh_.clear();
  }

  void ChangeRate(TaskId leader, double now) {
    State& state = state_[leader];
    double rate = RateOf(leader);
    if (rate == state.rate) return;
    state.remaining = std::max(0.0, state.remaining - (now - state.since) * state.rate);
    state.since = now;
    state.rate = rate;
    Announce(leader, now);
  }

  void Announce(TaskId leader, double now) {
    State& state = state_[leader];
    events_.push({now + state.remaining / state.rate, order_++, leader, ++state.version});
  }

  const Program& program_;
  const std::vector<Program::Task>& tasks_;
  Dependents dependents_;
  std::vector<TaskId> next_, partner_;
  std::vector<uint32_t> pending_;  // unfinished: the task before it in its queue, and what it waits for
  std::vector<State> state_;       // by leader
  std::vector<double> load_;       // by resource: sum of shares asked for
  std::vector<std::vector<TaskId>> running_on_;
  std::vector<bool> dirty_;  // by resource
  std::vector<uint32_t> dirty_list_;
  std::vector<TaskId> fresh_;  // started at this moment
  std::priority_queue<Event, std::vector<Event>, std::greater<Event>> events_;
  uint64_t order_ = 0;
  size_t finished_ = 0;
  Schedule schedule_;
};

bool IsTime(double seconds) { return seconds >= 0 && std::isfinite(seconds); }

// A number that is not finite would be an event that never comes.
absl::Status CheckNumbers(const Program& program) {
  for (TaskId id = 0; id < program.tasks().size(); ++id) {
    const Program::Task& task = program.tasks()[id];
    if (IsTime(task.seconds) && IsTime(task.release)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("task ", id, " takes ", task.seconds, " s from ", task.release, " s on: times must be finite"));
  }
  for (Demand demand : program.demands()) {
    if (demand.resource < program.capacities().size() && IsTime(demand.share)) continue;
    return absl::InvalidArgumentError(absl::StrCat("a task asks for the share ", demand.share, " of a resource"));
  }
  for (double capacity : program.capacities()) {
    if (!(capacity > 0)) return absl::InvalidArgumentError(absl::StrCat("a resource has the capacity ", capacity));
  }
  return absl::OkStatus();
}

absl::Status CheckWaits(const Program& program) {
  for (auto [task, on] : program.waits()) {
    if (task >= program.tasks().size() || on >= program.tasks().size()) {
      return absl::InvalidArgumentError(absl::StrCat("task ", task, " waits for task ", on, ", and one of them is not there"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Schedule> Simulate(const Program& program, const std::function<std::string(TaskId)>& describe) {
  absl::Status status = CheckWaits(program);
  if (status.ok()) status = CheckNumbers(program);
  if (!status.ok()) return status;
  Engine engine(program);
  status = engine.Prepare();
  if (!status.ok()) return status;
  engine.Run();
  if (!engine.complete()) return absl::FailedPreconditionError(engine.Deadlock(describe));
  return engine.Take();
}

}  // namespace legoai::sim

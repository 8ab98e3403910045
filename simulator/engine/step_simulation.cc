#include "simulator/engine/step_simulation.h"

#include <algorithm>

#include "proto/status.h"

namespace legoai::sim {
namespace {

// Splits one stage's step into what its compute stream did or waited for.
class StageAccount {
 public:
  StageAccount(uint32_t stage, const StageTrace& trace, const LoweredStep& step, const Schedule& schedule)
      : stage_(stage), trace_(*trace.trace), step_(step), schedule_(schedule) {}

  v1::Breakdown Run(TaskId last_of_stage) {
    double now = 0;
    for (TaskId id : step_.compute[stage_]) {
      Idle(now, schedule_.start[id], schedule_.blocker[id]);
      Busy(id);
      now = schedule_.finish[id];
    }
    if (last_of_stage != kNoTask && schedule_.finish[last_of_stage] > now) {
      Idle(now, schedule_.finish[last_of_stage], last_of_stage);
      now = schedule_.finish[last_of_stage];
    }
    bubble_ += schedule_.seconds - now;  // other stages still work
    v1::Breakdown breakdown;
    breakdown.set_compute_seconds(compute_);
    breakdown.set_exposed_communication_seconds(exposed_);
    breakdown.set_bubble_seconds(bubble_);
    breakdown.set_launch_seconds(launch_);
    breakdown.set_optimizer_seconds(optimizer_);
    return breakdown;
  }

 private:
  void Busy(TaskId id) {
    double seconds = schedule_.finish[id] - schedule_.start[id];
    const TaskInfo& info = step_.tasks[id];
    if (info.kind == TaskKind::kCommunication) {
      exposed_ += seconds;
    } else if (info.kind == TaskKind::kCompute) {
      const double alone = step_.program.tasks()[id].seconds;  // others may have slowed it
      double dispatch = alone > 0 ? std::min<double>(info.dispatch_seconds / alone, 1) * seconds : 0;
      launch_ += dispatch;
      bool optimizer = trace_.instructions[info.instruction].phase == graph::Phase::kOptimizer;
      (optimizer ? optimizer_ : compute_) += seconds - dispatch;
    }
  }

  // The stream stood still over [from, to] until `cause` ended: goes back along what `cause` itself waited for.
  void Idle(double from, double to, TaskId cause) {
    while (to > from) {
      if (cause == kNoTask) {
        launch_ += to - from;
        return;
      }
      double begin = std::max(from, schedule_.start[cause]);
      if (begin < to) {
        bool own = step_.tasks[cause].stage == stage_;
        (own ? exposed_ : bubble_) += to - begin;
        to = begin;
      }
      cause = schedule_.blocker[cause];
    }
  }

  const uint32_t stage_;
  const graph::Trace& trace_;
  const LoweredStep& step_;
  const Schedule& schedule_;
  double compute_ = 0, exposed_ = 0, bubble_ = 0, launch_ = 0, optimizer_ = 0;
};

v1::Breakdown Mean(const std::vector<v1::Breakdown>& stages) {
  v1::Breakdown mean;
  double share = 1.0 / static_cast<double>(std::max<size_t>(1, stages.size()));
  for (const auto& stage : stages) {
    mean.set_compute_seconds(mean.compute_seconds() + share * stage.compute_seconds());
    mean.set_exposed_communication_seconds(mean.exposed_communication_seconds() + share * stage.exposed_communication_seconds());
    mean.set_bubble_seconds(mean.bubble_seconds() + share * stage.bubble_seconds());
    mean.set_launch_seconds(mean.launch_seconds() + share * stage.launch_seconds());
    mean.set_optimizer_seconds(mean.optimizer_seconds() + share * stage.optimizer_seconds());
  }
  return mean;
}

std::vector<v1::CostModelShare> Shares(const std::map<std::string, double>& model_seconds) {
  double total = 0;
  for (const auto& [name, seconds] : model_seconds) total += seconds;
  std::vector<v1::CostModelShare> shares;
  for (const auto& [name, seconds] : model_seconds) {
    shares.emplace_back();
    shares.back().set_name(name);
    shares.back().set_share_of_compute_time(total > 0 ? seconds / total : 0);
  }
  return shares;
}

void AddModuleSeconds(const std::vector<StageTrace>& stages, StepSimulation* result) {
  std::vector<std::vector<double>> seconds;
  for (const auto& stage : stages) seconds.emplace_back(stage.trace->modules.size(), 0.0);
  for (TaskId id = 0; id < result->lowered.tasks.size(); ++id) {
    const TaskInfo& info = result->lowered.tasks[id];
    if (info.kind != TaskKind::kCompute) continue;
    uint32_t module = stages[info.stage].trace->instructions[info.instruction].module;
    seconds[info.stage][module] += result->schedule.finish[id] - result->schedule.start[id];
  }
  for (size_t s = 0; s < stages.size(); ++s) {
    for (size_t m = 0; m < seconds[s].size(); ++m) {
      if (seconds[s][m] > 0) result->module_compute_seconds[stages[s].Module(m)] += seconds[s][m];
    }
  }
}

std::vector<TaskId> CriticalPath(const Schedule& schedule) {
  std::vector<TaskId> path;
  if (schedule.finish.empty()) return path;
  auto last = std::max_element(schedule.finish.begin(), schedule.finish.end());
  for (TaskId id = static_cast<TaskId>(last - schedule.finish.begin()); id != kNoTask; id = schedule.blocker[id])
    path.push_back(id);
  std::reverse(path.begin(), path.end());
  return path;
}

std::vector<TaskId> LastOfStages(size_t stages, const LoweredStep& step, const Schedule& schedule) {
  std::vector<TaskId> last(stages, kNoTask);
  for (TaskId id = 0; id < step.tasks.size(); ++id) {
    TaskId& best = last[step.tasks[id].stage];
    if (best == kNoTask || schedule.finish[id] > schedule.finish[best]) best = id;
  }
  return last;
}

}  // namespace

absl::StatusOr<StepSimulation> SimulateStep(const std::vector<StageTrace>& stages, const v1::Cluster& cluster,
                                            const ComputeCostModel& compute, const CollectiveCostModel& collectives) {
  ASSIGN_OR_RETURN(auto lowered, LowerTraces(stages, cluster, compute, collectives));
  StepSimulation result;
  result.lowered = std::move(lowered);
  auto schedule = Simulate(result.lowered.program, [&](TaskId id) { return DescribeTask(stages, result.lowered, id); });
  if (!schedule.ok()) return schedule.status();
  result.schedule = *std::move(schedule);
  result.step_seconds = result.schedule.seconds;
  std::vector<TaskId> last = LastOfStages(stages.size(), result.lowered, result.schedule);
  for (uint32_t i = 0; i < stages.size(); ++i) {
    result.stages.push_back(StageAccount(i, stages[i], result.lowered, result.schedule).Run(last[i]));
  }
  result.breakdown = Mean(result.stages);
  result.cost_models = Shares(result.lowered.model_seconds);
  result.operators = result.lowered.operators;
  result.critical_path = CriticalPath(result.schedule);
  AddModuleSeconds(stages, &result);
  return result;
}

}  // namespace legoai::sim

#include "simulator/engine/step_simulation.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/operators/operator_table.h"
#include "core/trace/annotation.h"
#include "core/trace/effects.h"
#include "proto/status.h"
#include "simulator/cost/collective_cost.h"
#include "simulator/engine/slice_args.h"

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

absl::StatusOr<double> SecondsOfCollective(const StageTrace& stage, const graph::InstructionView& op,
                                           const CollectiveCostModel& collectives) {
  ASSIGN_OR_RETURN(const auto call, stage.CallOf(op));
  if (call.kind == Effect::kSend || call.kind == Effect::kRecv) return 0;  // it takes as long as the other side lets it
  return collectives.Time(call.kind, call.bytes, stage.groups()[call.group]);
}

std::vector<int64_t> TimesRun(const StageTrace& stage) {
  return graph::TimesRun(*stage.trace, stage.instances != nullptr ? *stage.instances : graph::WholeOf(*stage.trace));
}

absl::StatusOr<double> LeastSecondsOfStage(const StageTrace& stage, const ComputeCostModel& compute,
                                           const CollectiveCostModel& collectives) {
  ASSIGN_OR_RETURN(const auto each, ComputeStreamSeconds(stage, compute, collectives));
  const std::vector<int64_t> times = TimesRun(stage);
  double seconds = 0;
  for (size_t i = 0; i < each.size(); ++i) seconds += static_cast<double>(times[i]) * each[i];
  return seconds;
}

constexpr size_t kShown = 10;

size_t BusiestStage(const StepSimulation& step) {
  const auto busy = [](const v1::Breakdown& stage) { return stage.compute_seconds() + stage.optimizer_seconds(); };
  const auto most =
      std::max_element(step.stages.begin(), step.stages.end(), [&](const auto& a, const auto& b) { return busy(a) < busy(b); });
  return static_cast<size_t>(most - step.stages.begin());
}

// What makes two calls equal: operator, phase, the geometries of what goes in and comes out, with their places, and of
// communication the group and the peer, which decide over which link it goes.
using CallKind = std::tuple<uint32_t, graph::Phase, std::vector<uint32_t>, int64_t, int64_t>;

CallKind KindOf(const StageTrace& stage, const TaskInfo& task) {
  const graph::Trace& trace = *stage.trace;
  const graph::Instruction& instruction = trace.instructions[task.instruction];
  const graph::InstructionView op(trace, instruction);
  std::vector<uint32_t> geometries;
  const auto add = [&](int place, uint32_t value) {
    geometries.push_back(static_cast<uint32_t>(place));
    geometries.push_back(trace.values[value].geometry);
  };
  op.ForEachInput(add);
  geometries.push_back(UINT32_MAX);  // from here on results
  op.ForEachResult(add);
  int64_t group = -1, peer = -1;
  if (const auto call = task.kind == TaskKind::kCommunication ? stage.CallOf(op) : absl::NotFoundError(""); call.ok())
    group = call->group, peer = call->peer;
  return {instruction.operator_index, instruction.phase, std::move(geometries), group, peer};
}

struct Calls {
  TaskId first = kNoTask;
  int64_t count = 0;
  double seconds = 0;
};

// The largest by `seconds_of`, kShown at most; equal ones in the order of the map.
template <typename Map, typename SecondsOf>
std::vector<typename Map::const_iterator> Largest(const Map& map, SecondsOf seconds_of) {
  std::vector<typename Map::const_iterator> all;
  for (auto i = map.begin(); i != map.end(); ++i) all.push_back(i);
  std::stable_sort(all.begin(), all.end(), [&](auto a, auto b) { return seconds_of(a->second) > seconds_of(b->second); });
  if (all.size() > kShown) all.resize(kShown);
  return all;
}

absl::Status AddOperators(size_t stage, const StageTrace& trace, const v1::Cluster& cluster, const StepSimulation& step,
                          v1::Estimate* estimate) {
  std::map<CallKind, Calls> kinds;
  for (const TaskId id : step.lowered.compute[stage]) {
    const TaskInfo& task = step.lowered.tasks[id];
    if (task.kind == TaskKind::kMarker) continue;
    Calls& calls = kinds[KindOf(trace, task)];
    if (calls.count++ == 0) calls.first = id;
    calls.seconds += step.lowered.program.tasks()[id].seconds;
  }
  ASSIGN_OR_RETURN(auto args, SliceArgs::Create(trace, cluster));
  for (const auto& found : Largest(kinds, [](const Calls& calls) { return calls.seconds; })) {
    const Calls& calls = found->second;
    const TaskInfo& task = step.lowered.tasks[calls.first];
    const graph::Instruction& instruction = trace.trace->instructions[task.instruction];
    const SliceFacts facts = args.Of(task, step.lowered.program.tasks()[calls.first].seconds);
    v1::OperatorTime* const time = estimate->add_largest_operators();
    time->set_name(trace.trace->OperatorName(instruction));
    time->set_shapes(facts.shapes);
    time->set_phase(graph::PhaseName(instruction.phase));
    time->set_calls(calls.count);
    time->set_seconds(calls.seconds);
    time->set_flops(facts.flops);
    time->set_bytes(facts.bytes);
    time->set_bound(facts.bound);
    time->set_stage(trace.stage);
  }
  return absl::OkStatus();
}

struct ModuleSeconds {
  std::set<uint32_t> modules;
  double forward = 0, backward = 0;
};

// "layers.3.feed_forward" and the other layers' as one: "layers.*.feed_forward".
std::string WithoutIndices(const std::string& module) {
  std::vector<std::string> parts = absl::StrSplit(module, '.');
  for (std::string& part : parts) {
    if (!part.empty() && std::all_of(part.begin(), part.end(), absl::ascii_isdigit)) part = "*";
  }
  return absl::StrJoin(parts, ".");
}

void AddModules(size_t stage, const StageTrace& trace, const StepSimulation& step, v1::Estimate* estimate) {
  std::vector<std::string> names;
  for (const std::string& module : trace.trace->modules) names.push_back(WithoutIndices(module));
  std::map<std::string, ModuleSeconds> modules;
  for (const TaskId id : step.lowered.compute[stage]) {
    const TaskInfo& task = step.lowered.tasks[id];
    const graph::Instruction& instruction = trace.trace->instructions[task.instruction];
    const bool optimizer = instruction.phase == graph::Phase::kOptimizer || instruction.phase == graph::Phase::kInit;
    if (task.kind == TaskKind::kMarker || optimizer || names[instruction.module].empty()) continue;
    ModuleSeconds& module = modules[names[instruction.module]];
    module.modules.insert(instruction.module);
    const bool forward = instruction.phase == graph::Phase::kForward;
    (forward ? module.forward : module.backward) += step.lowered.program.tasks()[id].seconds;
  }
  for (const auto& found : Largest(modules, [](const ModuleSeconds& m) { return m.forward + m.backward; })) {
    v1::ModuleTime* const time = estimate->add_largest_modules();
    time->set_module(found->first);
    time->set_modules(static_cast<int64_t>(found->second.modules.size()));
    time->set_forward_seconds(found->second.forward);
    time->set_backward_seconds(found->second.backward);
    time->set_stage(trace.stage);
  }
}

std::string KindOnPath(const StageTrace& trace, const TaskInfo& task) {
  const graph::Instruction& instruction = trace.trace->instructions[task.instruction];
  if (task.kind != TaskKind::kCommunication) return graph::PhaseName(instruction.phase);
  const auto call = ParseCollective(graph::InstructionView(*trace.trace, instruction));
  return call.ok() ? std::string(graph::FindEffect(trace.trace->OperatorName(instruction))->label)
                   : trace.trace->OperatorName(instruction);
}

// What passes between the end of one task of the path and the start of the next is the host's, which had not dispatched it yet.
void AddCriticalPath(const std::vector<StageTrace>& stages, const StepSimulation& step, v1::Estimate* estimate) {
  std::map<std::pair<std::string, int64_t>, Calls> parts;
  const auto add = [&](const std::string& kind, uint32_t stage, double seconds) {
    if (seconds <= 0) return;
    Calls& part = parts[{kind, stages[stage].stage}];
    ++part.count;
    part.seconds += seconds;
  };
  double now = 0;
  for (const TaskId id : step.critical_path) {
    const TaskInfo& task = step.lowered.tasks[id];
    const double start = step.schedule.start[id], finish = step.schedule.finish[id];
    add("dispatch", task.stage, start - now);
    add(KindOnPath(stages[task.stage], task), task.stage, finish - std::max(start, now));
    now = std::max(now, finish);
  }
  std::vector<v1::CriticalPathPart> sorted;
  for (const auto& [key, part] : parts) {
    v1::CriticalPathPart& added = sorted.emplace_back();
    added.set_kind(key.first);
    added.set_stage(key.second);
    added.set_seconds(part.seconds);
    added.set_tasks(part.count);
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.seconds() > b.seconds(); });
  for (v1::CriticalPathPart& part : sorted) *estimate->add_critical_path() = std::move(part);
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

absl::StatusOr<std::vector<double>> ComputeStreamSeconds(const StageTrace& stage, const ComputeCostModel& compute,
                                                         const CollectiveCostModel& collectives) {
  const graph::Trace& trace = *stage.trace;
  ASSIGN_OR_RETURN(const auto rows, ResolveOperators(trace));
  const std::vector<int64_t> times = TimesRun(stage);
  CostCache costs(trace, compute);
  std::vector<double> seconds(trace.instructions.size());
  for (size_t i = 0; i < trace.instructions.size(); ++i) {
    const graph::Instruction& instruction = trace.instructions[i];
    if (instruction.kind != graph::Instruction::Kind::kOperator || instruction.stream != comm::kCompute) continue;
    const OpClass op_class = rows[instruction.operator_index]->op_class;
    if (times[i] == 0 || op_class == OpClass::kView || op_class == OpClass::kControl) continue;
    if (op_class == OpClass::kCollective) {
      ASSIGN_OR_RETURN(seconds[i], SecondsOfCollective(stage, graph::InstructionView(trace, instruction), collectives));
    } else {
      ASSIGN_OR_RETURN(const Cost cost, costs.Time(instruction));
      seconds[i] = cost.seconds;
    }
  }
  return seconds;
}

absl::StatusOr<double> LeastStepSeconds(const std::vector<StageTrace>& stages, const ComputeCostModel& compute,
                                        const CollectiveCostModel& collectives) {
  double most = 0;
  for (const StageTrace& stage : stages) {
    ASSIGN_OR_RETURN(const double seconds, LeastSecondsOfStage(stage, compute, collectives));
    most = std::max(most, seconds);
  }
  return most;
}

absl::Status AddStepDetails(const std::vector<StageTrace>& stages, const v1::Cluster& cluster, const StepSimulation& step,
                            v1::Estimate* estimate) {
  if (stages.empty()) return absl::OkStatus();
  const size_t busiest = BusiestStage(step);
  RETURN_IF_ERROR(AddOperators(busiest, stages[busiest], cluster, step, estimate));
  AddModules(busiest, stages[busiest], step, estimate);
  AddCriticalPath(stages, step, estimate);
  return absl::OkStatus();
}

}  // namespace legoai::sim

// Lowers Traces to a Program: streams become queues; operators, collectives and messages become tasks with a duration; events
// become waits; the two ends of a message become joint tasks.
//
// One step per pipeline stage (of one of its ranks, as the ranks of a stage do the same). For each rank:
// - compute is a resource of capacity 1 on a GPU; operators demand all of it and running communication the device's
//   communication_compute_share, so operators slow down while communication runs beside them; rotations through symmetric memory
//   (simulator/cost/collective_cost.h) demand none of it;
// - each tier's link has an outgoing and an incoming direction: a collective demands both, at the outermost tier that its group
//   spans; a message demands its sender's outgoing and its receiver's incoming direction. Collectives that overlap on one tier
//   share it.
// CUDA: the host dispatches instructions one after the other, host_dispatch_seconds each (kCheapDispatch of that for views, sizes
// and events), and nothing starts before it is dispatched. CPU: the compute stream is the dispatching thread, so dispatch is part
// of its operators' time, and a side stream's task waits for earlier work of that thread. The cores of a host are shared by its
// ranks of all stages, pinned round-robin as by the launcher, and by a rank's operators and its communication: costs are those of
// a thread alone on its core, and threads on a shared core take turns.
//
// Thread-safety: pure functions. Units: seconds.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "core/trace/instances.h"
#include "core/trace/trace.h"
#include "proto/legoai/v1/cluster.pb.h"
#include "simulator/cost/collective_cost.h"
#include "simulator/cost/compute_cost.h"
#include "simulator/engine/simulate.h"

namespace legoai::sim {

// Dispatch of an operator that launches nothing, relative to one that does. Assumption, not measured.
inline constexpr double kCheapDispatch = 0.3;
constexpr double DispatchShare(OpClass op_class) {
  return op_class == OpClass::kView || op_class == OpClass::kControl ? kCheapDispatch : 1;
}

// One rank's step. What it points to is not owned and must outlive everything made from it.
struct StageTrace {
  const graph::Trace* trace = nullptr;
  int64_t stage = 0;
  int64_t rank = 0;                             // global rank whose step it is
  const graph::Instances* instances = nullptr;  // null: the step is the whole Trace, once

  const std::vector<mesh::Group>& groups() const { return instances != nullptr ? instances->groups : trace->groups; }
  // Full path of a module, with this rank's layer numbers.
  std::string Module(uint32_t module) const {
    return instances == nullptr ? trace->modules[module] : graph::ShiftLayer(trace->modules[module], instances->layer_shifts);
  }
  // As ParseCollective, with this rank's peers.
  absl::StatusOr<CollectiveCall> CallOf(const graph::InstructionView& op) const;
};

enum class TaskKind : uint8_t { kCompute, kCommunication, kMarker };

struct TaskInfo {
  uint32_t stage = 0;        // index into the list of stages
  uint32_t instruction = 0;  // of that stage's Trace
  uint32_t position = 0;     // of that instruction in the stage's step (core/trace/instances.h)
  int32_t microbatch = -1;   // -1 outside
  uint16_t stream = 0;
  TaskKind kind = TaskKind::kCompute;
  float dispatch_seconds = 0;  // part of a compute task's time in which the host dispatches (CPU)
};

struct LoweredStep {
  Program program;
  std::vector<TaskInfo> tasks;                  // by TaskId
  std::vector<std::vector<TaskId>> compute;     // by stage: tasks of the compute stream in order
  std::map<std::string, double> model_seconds;  // by cost model: seconds of operators
  int64_t operators = 0;
};

// `stages` in the order of the pipeline. Errors: those of the cost models; Internal for a wait for an event that was never
// recorded; InvalidArgument for a message to a rank without a Trace, or one that nobody receives.
absl::StatusOr<LoweredStep> LowerTraces(const std::vector<StageTrace>& stages, const v1::Cluster& cluster,
                                        const ComputeCostModel& compute, const CollectiveCostModel& collectives);

// "stage 1, all_gather: lego::all_gather_into in model.layers.3, forward (instruction 17)"
std::string DescribeTask(const std::vector<StageTrace>& stages, const LoweredStep& step, TaskId id);

// Caches the costs of a Trace's operators: layers repeat, so most instructions have been seen before.
//
// Two instructions are equal if operator, geometries, constants and the pattern of equal operands are. Not thread-safe. Trace and
// model must outlive it.
class CostCache {
 public:
  CostCache(const graph::Trace& trace, const ComputeCostModel& model) : trace_(trace), model_(model) {}

  absl::StatusOr<Cost> Time(const graph::Instruction& instruction);
  size_t distinct() const { return distinct_; }

 private:
  // Everything the cost may depend on, as numbers.
  void Key(const graph::Instruction& instruction, std::vector<uint32_t>* key) const;

  struct Entry {
    std::vector<uint32_t> key;
    Cost cost;
  };
  const graph::Trace& trace_;
  const ComputeCostModel& model_;
  std::unordered_map<uint64_t, std::vector<Entry>> entries_;
  std::vector<uint32_t> scratch_;
  size_t distinct_ = 0;
};

}  // namespace legoai::sim

// The arguments of a slice in a trace file: its operator's shapes, arithmetic and traffic, and what bounds its time.
//
// Not thread-safe. Trace and cluster must outlive it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "core/trace/module_slices.h"
#include "core/trace/shape_text.h"
#include "simulator/cost/collective_cost.h"
#include "simulator/cost/compute_cost.h"
#include "simulator/engine/chrome_trace.h"
#include "simulator/engine/lower_trace.h"
#include "simulator/engine/step_simulation.h"

namespace legoai::sim {

// The same for one task, as values.
struct SliceFacts {
  std::string shapes, bound;
  double flops = 0;  // 0 for a collective
  double bytes = 0;
};

class SliceArgs {
 public:
  // Errors: those of ResolveOperators.
  static absl::StatusOr<SliceArgs> Create(const StageTrace& stage, const v1::Cluster& cluster);

  // Appends members of a JSON object, each after a comma:
  // - "shapes": "bfloat16[8192,4096] bfloat16[4096,1024] -> bfloat16[8192,1024]"; for a list its first tensors;
  // - for an operator "flops" and "bytes" (read and written), by its cost model's rules;
  // - for a collective "bytes" (S of CollectiveCostModel), "group", "ranks" or "peer", and "link", the tier;
  // - "bound": "compute", "memory bandwidth" or "launch", by the roofline; "link bandwidth" or "link latency". Omitted if the
  //   device has no peak for the dtype.
  // `task` belongs to this stage and is not a marker; `seconds` is how long it takes alone.
  void Append(const TaskInfo& task, double seconds, std::string* text);

  // The same values as Append.
  SliceFacts Of(const TaskInfo& task, double seconds);

  // Not for collectives.
  OpFacts Facts(const graph::Instruction& instruction) const;

 private:
  SliceArgs(const StageTrace& stage, const v1::Cluster& cluster, std::vector<const OperatorRow*> rows);
  void AppendOperator(const TaskInfo& task, double seconds, std::string* text) const;
  const char* BoundOf(const TaskInfo& task, const OpFacts& facts, double seconds) const;
  const char* BoundOf(const std::string& name, const OpFacts& facts) const;
  // What bounds a collective over `tier` (-1: within the device); null if unknown.
  const char* BoundOf(const CollectiveCall& call, int tier) const;
  int TierOf(const CollectiveCall& call) const;
  std::string CollectiveText(const CollectiveCall& call) const;

  const StageTrace stage_;
  const v1::Cluster* cluster_;
  std::vector<const OperatorRow*> rows_;  // by operator of the Trace
  graph::ShapeText shapes_;
  std::unique_ptr<RooflineModel> roofline_;  // null: the device lacks what it needs
  std::unique_ptr<CollectiveCostModel> collectives_;
  std::map<std::tuple<Effect, int64_t, int64_t, int64_t>, std::string> collective_texts_;  // by kind, bytes, group, peer
};

// The modules of a stage's compute stream as nested slices (core/trace/module_slices.h). Spans that are not drawn have none.
std::vector<graph::ModuleSlice> ModuleSlices(uint32_t stage, const StageTrace& trace, const StepSimulation& simulation,
                                             const TraceSpans& spans);

}  // namespace legoai::sim

#include "simulator/engine/slice_args.h"

#include "absl/strings/str_cat.h"
#include "core/trace/trace_text.h"
#include "proto/status.h"

namespace legoai::sim {
namespace {

using graph::InstructionView;
using graph::Quoted;

}  // namespace

SliceArgs::SliceArgs(const StageTrace& stage, const v1::Cluster& cluster, std::vector<const OperatorRow*> rows)
    : stage_(stage),
      cluster_(&cluster),
      rows_(std::move(rows)),
      shapes_(*stage.trace),
      collectives_(std::make_unique<CollectiveCostModel>(cluster)) {
  auto roofline = RooflineModel::Create(cluster.device());
  if (roofline.ok()) roofline_ = *std::move(roofline);
}

absl::StatusOr<SliceArgs> SliceArgs::Create(const StageTrace& stage, const v1::Cluster& cluster) {
  ASSIGN_OR_RETURN(auto rows, ResolveOperators(*stage.trace));
  return SliceArgs(stage, cluster, std::move(rows));
}

OpFacts SliceArgs::Facts(const graph::Instruction& instruction) const {
  return FactsOf(InstructionView(*stage_.trace, instruction), *rows_[instruction.operator_index]);
}

SliceFacts SliceArgs::Of(const TaskInfo& task, double seconds) {
  const graph::Instruction& instruction = stage_.trace->instructions[task.instruction];
  const InstructionView op(*stage_.trace, instruction);
  SliceFacts result;
  result.shapes = shapes_.Of(op);
  const char* bound = nullptr;
  if (task.kind == TaskKind::kCompute) {
    const OpFacts facts = Facts(instruction);
    result.flops = facts.flops;
    result.bytes = static_cast<double>(facts.bytes());
    bound = BoundOf(task, facts, seconds);
  } else if (const auto call = stage_.CallOf(op); call.ok()) {
    result.bytes = static_cast<double>(call->bytes);
    bound = BoundOf(*call, TierOf(*call));
  }
  if (bound != nullptr) result.bound = bound;
  return result;
}

void SliceArgs::Append(const TaskInfo& task, double seconds, std::string* text) {
  const InstructionView op(*stage_.trace, stage_.trace->instructions[task.instruction]);
  absl::StrAppend(text, ",\"shapes\":\"", shapes_.Of(op), "\"");
  if (task.kind == TaskKind::kCompute) return AppendOperator(task, seconds, text);
  const auto call = stage_.CallOf(op);
  if (!call.ok()) return;  // lowering has refused such a Trace
  std::string& known = collective_texts_[{call->kind, call->bytes, call->group, call->peer}];
  if (known.empty()) known = CollectiveText(*call);
  absl::StrAppend(text, known);
}

void SliceArgs::AppendOperator(const TaskInfo& task, double seconds, std::string* text) const {
  const OpFacts facts = Facts(stage_.trace->instructions[task.instruction]);
  absl::StrAppend(text, FactsAsJson(facts));
  const char* bound = BoundOf(task, facts, seconds);
  if (bound != nullptr) absl::StrAppend(text, ",\"bound\":\"", bound, "\"");
}

// Of a CPU dispatch is part of the operator's time.
const char* SliceArgs::BoundOf(const TaskInfo& task, const OpFacts& facts, double seconds) const {
  if (task.dispatch_seconds > seconds / 2) return "launch";
  return BoundOf(stage_.trace->OperatorName(stage_.trace->instructions[task.instruction]), facts);
}

// Asks the roofline what would be left without traffic, and without arithmetic.
const char* SliceArgs::BoundOf(const std::string& name, const OpFacts& facts) const {
  if (roofline_ == nullptr) return nullptr;
  OpFacts arithmetic = facts;
  arithmetic.read_bytes = arithmetic.written_bytes = 0;
  OpFacts nothing = arithmetic;
  nothing.flops = 0;
  const auto seconds = roofline_->Seconds(name, facts);
  if (!seconds.ok()) return nullptr;
  if (*roofline_->Seconds(name, nothing) >= *seconds) return "launch";
  return *roofline_->Seconds(name, arithmetic) >= *seconds ? "compute" : "memory bandwidth";
}

int SliceArgs::TierOf(const CollectiveCall& call) const {
  const mesh::RankLine& ranks = stage_.groups()[call.group].ranks;
  return call.peer >= 0 ? collectives_->TierOf(stage_.rank, ranks[call.peer]) : collectives_->TierOf(ranks);
}

const char* SliceArgs::BoundOf(const CollectiveCall& call, int tier) const {
  if (tier < 0) return "memory bandwidth";  // a copy within the device
  const mesh::Group& group = stage_.groups()[call.group];
  const auto seconds_of = [&](int64_t bytes) {
    return call.peer < 0 ? collectives_->Time(call.kind, bytes, group)
                         : collectives_->MessageTime(bytes, stage_.rank, group.ranks[call.peer]);
  };
  const auto empty = seconds_of(0), whole = seconds_of(call.bytes);
  if (!empty.ok() || !whole.ok()) return nullptr;
  return *empty > *whole / 2 ? "link latency" : "link bandwidth";
}

std::string SliceArgs::CollectiveText(const CollectiveCall& call) const {
  const mesh::Group& group = stage_.groups()[call.group];
  std::string text = absl::StrCat(",\"bytes\":", call.bytes, ",\"group\":", Quoted(mesh::NameOf(group.dim)));
  const bool message = call.peer >= 0;
  absl::StrAppend(&text, message ? ",\"peer\":" : ",\"ranks\":", message ? group.ranks[call.peer] : group.ranks.size);
  const int tier = TierOf(call);
  if (tier >= 0) absl::StrAppend(&text, ",\"link\":", Quoted(cluster_->tiers(tier).name()));
  const char* bound = BoundOf(call, tier);
  if (bound != nullptr) absl::StrAppend(&text, ",\"bound\":\"", bound, "\"");
  return text;
}

std::vector<graph::ModuleSlice> ModuleSlices(uint32_t stage, const StageTrace& trace, const StepSimulation& simulation,
                                             const TraceSpans& spans) {
  std::vector<std::string> modules;
  for (uint32_t module = 0; module < trace.trace->modules.size(); ++module) modules.push_back(trace.Module(module));
  graph::ModuleNesting nesting;
  for (TaskId id : simulation.lowered.compute[stage]) {
    const TaskInfo& info = simulation.lowered.tasks[id];
    if (info.kind == TaskKind::kMarker) continue;
    const graph::Instruction& instruction = trace.trace->instructions[info.instruction];
    const TraceSpan& span = spans.spans[spans.of[id]];
    const int64_t start = graph::Nanoseconds(simulation.schedule.start[id]);
    const int64_t finish = graph::Nanoseconds(simulation.schedule.finish[id]);
    const std::string* const module = span.drawn ? &modules[instruction.module] : nullptr;
    nesting.Add(graph::SpanName(span.phase, span.microbatch), span.phase, instruction.phase, module, start, finish);
  }
  return nesting.Take();
}

}  // namespace legoai::sim

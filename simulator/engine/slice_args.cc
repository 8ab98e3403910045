#include "simulator/engine/slice_args.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "proto/status.h"
#include "simulator/engine/trace_text.h"

namespace legoai::sim {
namespace {

using graph::InstructionView;

constexpr int kShownOfList = 2;  // tensors: an optimizer takes hundreds

// The tensors of one side of an operator. `shapes`: text by geometry.
class ShapeList {
 public:
  ShapeList(const graph::Trace& trace, const std::vector<std::string>& shapes, std::string* text)
      : trace_(trace), shapes_(shapes), text_(text) {}
  ~ShapeList() { EndPlace(); }

  void operator()(int place, uint32_t value) {
    if (place != place_) EndPlace();
    place_ = place;
    if (++of_place_ > kShownOfList) return;
    absl::StrAppend(text_, separator_, shapes_[trace_.values[value].geometry]);
    separator_ = " ";
  }

 private:
  void EndPlace() {
    if (of_place_ > kShownOfList) absl::StrAppend(text_, " and ", of_place_ - kShownOfList, " more");
    of_place_ = 0;
  }

  const graph::Trace& trace_;
  const std::vector<std::string>& shapes_;
  std::string* text_;
  const char* separator_ = "";
  int place_ = -1, of_place_ = 0;
};

// "model.layers.3.mlp": "model", "model.layers.3" and "model.layers.3.mlp". A number belongs to the name before it.
std::vector<std::string> PathsTo(const std::string& module) {
  std::vector<std::string> paths;
  for (size_t end = 0; end < module.size();) {
    end = std::min(module.find('.', end + 1), module.size());
    const bool number_follows = end + 1 < module.size() && std::isdigit(static_cast<unsigned char>(module[end + 1])) != 0;
    if (!number_follows) paths.push_back(module.substr(0, end));
  }
  return paths;
}

class Nesting {
 public:
  // What runs from `start` to `finish` is in these slices, outermost first; those that the task before it was in too go on.
  void Add(const std::vector<ModuleSlice>& path, int64_t start, int64_t finish) {
    size_t same = 0;
    while (same < path.size() && same < open_.size() && Same(slices_[open_[same]], path[same])) ++same;
    open_.resize(same);
    for (size_t depth = same; depth < path.size(); ++depth) {
      open_.push_back(slices_.size());
      slices_.push_back(path[depth]);
      slices_.back().start = start;
    }
    for (size_t index : open_) slices_[index].finish = finish;
  }
  std::vector<ModuleSlice> Take() { return std::move(slices_); }

 private:
  static bool Same(const ModuleSlice& a, const ModuleSlice& b) { return a.module == b.module && a.name == b.name; }

  std::vector<ModuleSlice> slices_;
  std::vector<size_t> open_;  // those that the last task was in
};

}  // namespace

SliceArgs::SliceArgs(const StageTrace& stage, const v1::Cluster& cluster, std::vector<const OperatorRow*> rows)
    : stage_(stage), cluster_(&cluster), rows_(std::move(rows)), collectives_(std::make_unique<CollectiveCostModel>(cluster)) {
  auto roofline = RooflineModel::Create(cluster.device());
  if (roofline.ok()) roofline_ = *std::move(roofline);
  for (const graph::Geometry& geometry : stage.trace->geometries) {
    shapes_.push_back(
        absl::StrCat(absl::AsciiStrToLower(v1::DType_Name(geometry.dtype)), "[", absl::StrJoin(geometry.sizes, ","), "]"));
  }
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
  result.shapes = ShapesOf(op);
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
  absl::StrAppend(text, ",\"shapes\":\"", ShapesOf(op), "\"");
  if (task.kind == TaskKind::kCompute) return AppendOperator(task, seconds, text);
  const auto call = stage_.CallOf(op);
  if (!call.ok()) return;  // lowering has refused such a Trace
  std::string& known = collective_texts_[{call->kind, call->bytes, call->group, call->peer}];
  if (known.empty()) known = CollectiveText(*call);
  absl::StrAppend(text, known);
}

std::string SliceArgs::ShapesOf(const InstructionView& op) const {
  std::string text;
  op.ForEachInput(ShapeList(*stage_.trace, shapes_, &text));
  if (op.result_count() > 0) {
    absl::StrAppend(&text, " -> ");
    op.ForEachResult(ShapeList(*stage_.trace, shapes_, &text));
  }
  return text;
}

void SliceArgs::AppendOperator(const TaskInfo& task, double seconds, std::string* text) const {
  const OpFacts facts = Facts(stage_.trace->instructions[task.instruction]);
  absl::StrAppend(text, ",\"flops\":", absl::StrFormat("%.0f", facts.flops), ",\"bytes\":", facts.bytes());
  const char* bound = BoundOf(task, facts, seconds);
  if (bound != nullptr) absl::StrAppend(text, ",\"bound\":\"", bound, "\"");
}

// Of a CPU dispatch is part of the operator's time.
const char* SliceArgs::BoundOf(const TaskInfo& task, const OpFacts& facts, double seconds) const {
  return task.dispatch_seconds > seconds / 2 ? "launch" : BoundOf(facts);
}

// Asks the roofline what would be left without traffic, and without arithmetic.
const char* SliceArgs::BoundOf(const OpFacts& facts) const {
  if (roofline_ == nullptr) return nullptr;
  OpFacts arithmetic = facts;
  arithmetic.read_bytes = arithmetic.written_bytes = 0;
  OpFacts nothing = arithmetic;
  nothing.flops = 0;
  const auto seconds = roofline_->Seconds(facts);
  if (!seconds.ok()) return nullptr;
  if (*roofline_->Seconds(nothing) >= *seconds) return "launch";
  return *roofline_->Seconds(arithmetic) >= *seconds ? "compute" : "memory bandwidth";
}

int SliceArgs::TierOf(const CollectiveCall& call) const {
  const mesh::RankLine& ranks = stage_.groups()[call.group].ranks;
  return call.peer >= 0 ? collectives_->TierOf(stage_.rank, ranks[call.peer]) : collectives_->TierOf(ranks);
}

const char* SliceArgs::BoundOf(const CollectiveCall& call, int tier) const {
  if (tier < 0) return "memory bandwidth";  // a copy within the device
  const mesh::RankLine& ranks = stage_.groups()[call.group].ranks;
  const auto seconds_of = [&](int64_t bytes) {
    return call.peer < 0 ? collectives_->Time(call.kind, bytes, ranks)
                         : collectives_->MessageTime(bytes, stage_.rank, ranks[call.peer]);
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

std::vector<ModuleSlice> ModuleSlices(uint32_t stage, const StageTrace& trace, const StepSimulation& simulation,
                                      const TraceSpans& spans) {
  std::vector<std::vector<std::string>> paths;
  for (uint32_t module = 0; module < trace.trace->modules.size(); ++module) paths.push_back(PathsTo(trace.Module(module)));
  Nesting nesting;
  std::vector<ModuleSlice> path;
  for (TaskId id : simulation.lowered.compute[stage]) {
    const TaskInfo& info = simulation.lowered.tasks[id];
    if (info.kind == TaskKind::kMarker) continue;
    const graph::Instruction& instruction = trace.trace->instructions[info.instruction];
    const TraceSpan& span = spans.spans[spans.of[id]];
    path.clear();
    path.push_back({SpanName(span), "", span.phase});
    if (span.drawn && instruction.phase == graph::Phase::kRecompute) path.push_back({"recompute", "", instruction.phase});
    if (span.drawn) {
      size_t outer = 0;  // characters of the module around
      for (const std::string& module : paths[instruction.module]) {
        path.push_back({module.substr(outer), module, instruction.phase});
        outer = module.size() + 1;
      }
    }
    nesting.Add(path, Nanoseconds(simulation.schedule.start[id]), Nanoseconds(simulation.schedule.finish[id]));
  }
  return nesting.Take();
}

}  // namespace legoai::sim

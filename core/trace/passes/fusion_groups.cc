#include "core/trace/passes/fusion_groups.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <tuple>
#include <utility>

#include "core/trace/annotation.h"
#include "core/trace/passes/rewriter.h"

namespace legoai::graph {
namespace {

constexpr size_t kMostMembers = 16;
constexpr size_t kMostOpen = 32;          // groups that a member may join
constexpr int64_t kLongestRow = 1 << 14;  // elements: kernels keep rows on the stack

bool IsFloat(v1::DType dtype) { return dtype == v1::FLOAT32 || dtype == v1::BFLOAT16; }

// Whether each element of a loop reads what the same element made. Strides of dimensions of one element mean nothing.
bool LiesWhereItWasMade(const Geometry& read, const Geometry& made, const std::vector<int64_t>& sizes) {
  const auto strides = BroadcastStrides(read, sizes);
  if (!strides || read.dtype != made.dtype || read.offset != made.offset) return false;
  const std::vector<int64_t> of_made = ResultStrides(made, sizes);
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] != 1 && (*strides)[d] != of_made[d]) return false;
  }
  return true;
}

// The shift of a roll along the last dimension.
std::optional<double> Shift(const InstructionView& op, const Geometry& of) {
  const auto by = op.Constant<std::vector<int64_t>>(1), dims = op.Constant<std::vector<int64_t>>(2);
  const auto rank = static_cast<int64_t>(of.sizes.size());
  if (!by || !dims || by->size() != 1 || dims->size() != 1 || rank == 0) return std::nullopt;
  if ((*dims)[0] != rank - 1 && (*dims)[0] != -1) return std::nullopt;
  return static_cast<double>((*by)[0]);
}

// Finds groups, instruction by instruction.
class Grouping {
 public:
  explicit Grouping(const Trace& trace)
      : trace_(trace),
        last_write_(trace.storages.size()),
        last_use_(trace.storages.size()),
        is_used_elsewhere_(trace.storages.size()) {}

  std::vector<FusionGroup> Run() {
    for (uint32_t i = 0; i < trace_.instructions.size(); ++i) Step(i);
    CloseAll();
    return std::move(closed_);
  }

 private:
  struct Write {
    uint32_t at = 0;  // 1 + the instruction; 0: before the step
    bool on_compute = true;
    const FusionGroup* group = nullptr;  // of a member, which may run later
  };

  const Geometry& GeometryOf(uint32_t value) const { return trace_.geometries[trace_.values[value].geometry]; }
  uint32_t StorageOf(uint32_t value) const { return trace_.values[value].storage; }

  void Step(uint32_t i) {
    const Instruction& instruction = trace_.instructions[i];
    if (instruction.kind == Instruction::Kind::kFree) return;
    if (instruction.kind == Instruction::Kind::kResize) {
      Pin([&](const FusionGroup& group) { return Touches(group, instruction.operator_index); });
      last_write_[instruction.operator_index] = {i + 1, false};
      return;
    }
    if (IsViewOf(trace_, instruction)) return;
    const auto mark = std::make_tuple(instruction.phase, instruction.microbatch, instruction.action);
    if (mark != mark_) CloseAll();
    mark_ = mark;
    if (const auto event = EventOf(trace_, instruction); event && event->is_record && event->stream == comm::kCompute)
      Pin([](const FusionGroup&) { return true; });
    if (const auto candidate = FusionCandidateOf(trace_, instruction)) {
      if (Join(i, *candidate)) return;
    } else {
      PinWhatIsInTheWay(i);
    }
    Note(i, nullptr);
  }

  void Note(uint32_t i, const FusionGroup* group) {
    const Operands operands = OperandsOf(trace_, trace_.instructions[i]);
    const bool on_compute = trace_.instructions[i].stream == comm::kCompute;
    for (const std::vector<uint32_t>* values : {&operands.reads, &operands.writes, &operands.results}) {
      for (const uint32_t value : *values) {
        last_use_[StorageOf(value)] = i + 1;
        if (!on_compute) is_used_elsewhere_[StorageOf(value)] = true;
      }
    }
    for (const std::vector<uint32_t>* values : {&operands.writes, &operands.results}) {
      for (const uint32_t value : *values) {
        last_write_[StorageOf(value)] = {i + 1, on_compute, group};
      }
    }
  }

  static bool Touches(const FusionGroup& group, uint32_t storage) {
    return group.written.count(storage) > 0 || group.read.count(storage) > 0;
  }
  template <class If>
  void Pin(If is_hit) {
    for (const auto& group : open_) group->is_pinned = group->is_pinned || is_hit(*group);
  }
  // Groups that cannot wait until after an instruction with these operands.
  bool IsInTheWay(const Operands& operands, const FusionGroup& group) const {
    const auto any = [](const std::vector<uint32_t>& values, auto is_hit) {
      return std::any_of(values.begin(), values.end(), is_hit);
    };
    const auto writes = [&](uint32_t value) { return Touches(group, StorageOf(value)); };
    return any(operands.writes, writes) || any(operands.results, writes) ||
           any(operands.reads, [&](uint32_t value) { return group.written.count(StorageOf(value)) > 0; });
  }
  void PinWhatIsInTheWay(uint32_t i, const FusionGroup* but = nullptr) {
    const Operands operands = OperandsOf(trace_, trace_.instructions[i]);
    Pin([&](const FusionGroup& group) { return &group != but && IsInTheWay(operands, group); });
  }

  void Close(const std::shared_ptr<FusionGroup>& group) {
    group->is_pinned = true;
    kept_.push_back(group);
    closed_.push_back(*group);
  }
  void CloseAll() {
    for (const auto& group : open_) Close(group);
    open_.clear();
  }

  // Whether the member reads what the group makes, or reads in full what the group reads, too.
  bool IsConnected(const FusionCandidate& candidate, const FusionGroup& group) const {
    return std::any_of(candidate.reads.begin(), candidate.reads.end(), [&](uint32_t value) {
      const uint32_t storage = StorageOf(value);
      if (group.written.count(storage) > 0) return true;
      const auto read = group.read.find(storage);
      return read != group.read.end() && read->second.count(value) > 0 && GeometryOf(value).sizes == group.sizes;
    });
  }

  // Whether what the member reads from the group's results lies where the group writes it, and so for what it writes.
  bool Fits(const FusionCandidate& candidate, const FusionGroup& group) const {
    if (candidate.sizes != group.sizes || group.members.size() >= kMostMembers) return false;
    for (const uint32_t value : candidate.reads) {
      const auto made = group.written.find(StorageOf(value));
      if (made == group.written.end()) continue;
      if (!LiesWhereItWasMade(GeometryOf(value), GeometryOf(made->second), group.sizes)) return false;
    }
    if (!candidate.op->in_place) return true;
    if (group.rolls) return false;  // an element may be read after it was written
    const uint32_t target = candidate.results[0];
    const auto read = group.read.find(StorageOf(target));
    if (read == group.read.end()) return true;
    // Where rows are passed over more than once, a later pass may read what was there before.
    if (group.along_rows) return group.written.count(StorageOf(target)) > 0;
    return read->second.size() == 1 && *read->second.begin() == target;
  }

  // Whether nobody reads or writes, from the group's place on, what the member writes in place.
  bool MayWriteAhead(const FusionCandidate& candidate, const FusionGroup& group) const {
    const uint32_t target = StorageOf(candidate.results[0]);
    const auto is_before = [&](const std::shared_ptr<FusionGroup>& other) {
      return other.get() == &group || !Touches(*other, target) || (other->is_pinned && other->place < group.place);
    };
    return last_use_[target] <= group.place && is_used_elsewhere_[target] == 0 &&
           std::all_of(open_.begin(), open_.end(), is_before) && std::all_of(kept_.begin(), kept_.end(), is_before);
  }

  // Whether the member may run at the group's place, before others that were before it.
  bool MayComeForward(const FusionCandidate& candidate, const FusionGroup& group) const {
    if (!group.is_pinned) return true;
    if (candidate.op->in_place && !MayWriteAhead(candidate, group)) return false;
    return std::all_of(candidate.reads.begin(), candidate.reads.end(), [&](uint32_t value) {
      const Write& write = last_write_[StorageOf(value)];
      if (group.written.count(StorageOf(value)) > 0) return write.group == &group;
      if (!write.on_compute || write.at > group.place) return false;
      return write.group == nullptr || (write.group->is_pinned && write.group->place < group.place);
    });
  }

  bool MayJoin(const FusionCandidate& candidate, const FusionGroup& group) const {
    return Fits(candidate, group) && MayComeForward(candidate, group) && !(group.in_place && candidate.op->rolls);
  }

  void Add(uint32_t i, const FusionCandidate& candidate, FusionGroup* group) {
    for (const uint32_t value : candidate.reads) {
      if (group->written.count(StorageOf(value)) == 0) group->read[StorageOf(value)].insert(value);
    }
    for (const uint32_t value : candidate.results) group->written[StorageOf(value)] = value;
    group->members.push_back(i);
    group->along_rows = group->along_rows || candidate.op->along_rows;
    group->rolls = group->rolls || candidate.op->rolls;
    group->in_place = group->in_place || candidate.op->in_place;
    if (!group->is_pinned) group->place = i + 1;
  }

  // Two open groups as one, where both may wait.
  static bool MayMerge(const FusionGroup& a, const FusionGroup& b) {
    if (a.is_pinned || b.is_pinned || a.in_place || b.in_place || a.sizes != b.sizes) return false;
    // What one makes the other must not have read: it would have joined it.
    const auto meets = [](const FusionGroup& x, const FusionGroup& y) {
      return std::any_of(x.written.begin(), x.written.end(), [&](const auto& written) { return Touches(y, written.first); });
    };
    return !meets(a, b) && !meets(b, a) && a.members.size() + b.members.size() < kMostMembers;
  }

  bool Join(uint32_t i, const FusionCandidate& candidate) {
    std::shared_ptr<FusionGroup> chosen;
    for (auto group = open_.rbegin(); group != open_.rend(); ++group) {
      if (!IsConnected(candidate, **group) || !MayJoin(candidate, **group)) continue;
      if (chosen == nullptr) {
        chosen = *group;
      } else if (MayMerge(*chosen, **group)) {
        Merge(chosen.get(), **group);
      }
    }
    const auto is_merged = [](const auto& group) { return group->members.empty(); };
    open_.erase(std::remove_if(open_.begin(), open_.end(), is_merged), open_.end());
    PinWhatIsInTheWay(i, chosen.get());
    if (chosen == nullptr) {
      if (open_.size() == kMostOpen) {
        Close(open_.front());
        open_.erase(open_.begin());
      }
      chosen = open_.emplace_back(std::make_shared<FusionGroup>());
      chosen->sizes = candidate.sizes;
    }
    Add(i, candidate, chosen.get());
    Note(i, chosen.get());
    return true;
  }

  void Merge(FusionGroup* into, FusionGroup& from) {
    std::vector<uint32_t> members;
    std::merge(into->members.begin(), into->members.end(), from.members.begin(), from.members.end(), std::back_inserter(members));
    into->members = std::move(members);
    into->place = std::max(into->place, from.place);
    into->along_rows = into->along_rows || from.along_rows;
    into->rolls = into->rolls || from.rolls;
    into->written.insert(from.written.begin(), from.written.end());
    for (const auto& [storage, values] : from.read) into->read[storage].insert(values.begin(), values.end());
    for (Write& write : last_write_) {
      if (write.group == &from) write.group = into;
    }
    from.members.clear();
  }

  const Trace& trace_;
  std::vector<Write> last_write_;
  std::vector<uint32_t> last_use_;       // 1 + the instruction
  std::vector<char> is_used_elsewhere_;  // on another stream
  std::vector<std::shared_ptr<FusionGroup>> open_, kept_;  // kept: what last_write_ points to
  std::vector<FusionGroup> closed_;
  std::tuple<Phase, int32_t, int32_t> mark_;
};

}  // namespace

std::optional<std::vector<int64_t>> BroadcastStrides(const Geometry& geometry, const std::vector<int64_t>& sizes) {
  if (geometry.sizes.size() > sizes.size()) return std::nullopt;
  std::vector<int64_t> strides(sizes.size(), 0);
  const size_t lead = sizes.size() - geometry.sizes.size();
  for (size_t i = 0; i < geometry.sizes.size(); ++i) {
    if (geometry.sizes[i] == sizes[lead + i]) {
      strides[lead + i] = geometry.sizes[i] == 1 ? 0 : geometry.strides[i];
    } else if (geometry.sizes[i] != 1) {
      return std::nullopt;
    }
  }
  return strides;
}

std::vector<int64_t> ResultStrides(const Geometry& geometry, const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides = geometry.strides;
  if (geometry.sizes == sizes) return strides;
  strides.resize(sizes.size());
  strides.back() = 0;
  return strides;
}

std::optional<double> NumberAt(const InstructionView& op, int i) {
  if (const auto real = op.Constant<double>(i)) return *real;
  if (const auto integer = op.Constant<int64_t>(i)) return static_cast<double>(*integer);
  return std::nullopt;
}

std::optional<FusionCandidate> FusionCandidateOf(const Trace& trace, const Instruction& instruction) {
  if (instruction.kind != Instruction::Kind::kOperator || instruction.stream != comm::kCompute) return std::nullopt;
  const InstructionView op(trace, instruction);
  FusionCandidate made;
  made.op = FindFusible(op.name());
  if (made.op == nullptr) return std::nullopt;
  const auto is_float = [&](uint32_t value) {
    const Geometry& geometry = trace.geometries[trace.values[value].geometry];
    return IsFloat(geometry.dtype) && Elements(geometry) > 0;
  };
  for (const int position : made.op->tensors) {
    const Argument& argument = trace.arguments[instruction.first_argument + position];
    if (argument.kind == Argument::Kind::kValue) {
      made.reads.push_back(argument.index);
    } else if (const auto number = NumberAt(op, position); !number || !std::isfinite(*number)) {
      return std::nullopt;
    }
  }
  if (made.op->in_place) {
    if (op.Input(0) == nullptr) return std::nullopt;
    made.results.push_back(trace.arguments[instruction.first_argument].index);
  } else {
    for (int i = 0; i < made.op->results; ++i) {
      if (op.Result(i) == nullptr) return std::nullopt;
      made.results.push_back(trace.results[instruction.first_result + i].index);
    }
    for (int i = made.op->results; i < op.result_count(); ++i) {
      if (op.Result(i) != nullptr) return std::nullopt;  // the whole gradient of a norm
    }
  }
  if (made.reads.empty() || !std::all_of(made.reads.begin(), made.reads.end(), is_float) ||
      !std::all_of(made.results.begin(), made.results.end(), is_float))
    return std::nullopt;
  const Geometry& shape = trace.geometries[trace.values[made.results[0]].geometry];
  made.sizes = shape.sizes;
  if (made.sizes.empty() || (made.op->along_rows && made.sizes.back() > kLongestRow)) return std::nullopt;
  if (made.op->name == "aten::roll") {
    const auto shift = Shift(op, shape);
    if (!shift) return std::nullopt;
    made.scalars.push_back(*shift);
  } else {
    for (const int position : made.op->scalars) {
      const auto number = NumberAt(op, position);
      if (!number || !std::isfinite(*number)) return std::nullopt;
      made.scalars.push_back(*number);
    }
  }
  const std::vector<int64_t> row = {made.sizes.back()};
  if (made.op->name == "aten::native_layer_norm" && op.Constant<std::vector<int64_t>>(1) != row) return std::nullopt;
  if (made.op->name == "aten::native_layer_norm_backward" && op.Constant<std::vector<int64_t>>(2) != row) return std::nullopt;
  if (made.op->is_tanh_gelu && op.Constant<std::string>(op.argument_count() - 1) != "tanh") return std::nullopt;
  const Geometry& last = trace.geometries[trace.values[made.reads.back()].geometry];
  if (made.op->name == "lego::rms_norm_backward" && last.sizes.size() != made.sizes.size())
    return std::nullopt;  // numbers of rows, without a last dimension
  for (const uint32_t value : made.reads) {
    if (!BroadcastStrides(trace.geometries[trace.values[value].geometry], made.sizes)) return std::nullopt;
  }
  return made;
}

std::vector<FusionGroup> FindFusionGroups(const Trace& trace) { return Grouping(trace).Run(); }

}  // namespace legoai::graph

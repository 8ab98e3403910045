#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "core/trace/annotation.h"
#include "core/trace/effects.h"
#include "core/trace/fused_kernel.h"
#include "core/trace/passes/fusion_groups.h"
#include "core/trace/passes/norm_gradients.h"
#include "core/trace/passes/passes.h"
#include "core/trace/passes/rewriter.h"
#include "core/trace/passes/step_memory.h"

namespace legoai::graph {
namespace {

constexpr uint32_t kNever = std::numeric_limits<uint32_t>::max();

// Where storages are used, and when they are freed.
struct Uses {
  std::vector<std::vector<uint32_t>> operators;  // by storage: instructions that use it, views left out
  std::vector<std::vector<uint32_t>> views;
  std::vector<uint32_t> freed, born;  // the instruction; kNever
  std::vector<char> stays;            // bound, or an output

  explicit Uses(const Trace& trace)
      : operators(trace.storages.size()),
        views(trace.storages.size()),
        freed(trace.storages.size(), kNever),
        born(trace.storages.size(), kNever),
        stays(trace.storages.size()) {
    for (uint32_t i = 0; i < trace.instructions.size(); ++i) {
      const Instruction& instruction = trace.instructions[i];
      if (instruction.kind == Instruction::Kind::kFree) freed[instruction.immediate] = i;
      if (instruction.kind == Instruction::Kind::kResize) stays[instruction.operator_index] = true;
      const bool is_view = IsViewOf(trace, instruction);
      for (const uint32_t storage : StoragesOf(trace, instruction)) {
        (is_view ? views : operators)[storage].push_back(i);
        born[storage] = std::min(born[storage], i);
      }
    }
    for (size_t s = 0; s < stays.size(); ++s) stays[s] = stays[s] || trace.storages[s].kind != StorageKind::kInner;
    for (const auto& [_, value] : trace.outputs) stays[trace.values[value].storage] = true;
  }

  // Whether only these instructions know the storage.
  bool IsInner(uint32_t storage, const std::vector<uint32_t>& members) const {
    return stays[storage] == 0 && freed[storage] != kNever &&
           std::all_of(operators[storage].begin(), operators[storage].end(),
                       [&](uint32_t i) { return std::binary_search(members.begin(), members.end(), i); });
  }
};

// Storages that are never written, by the instruction that made them: each group that reads one computes it again.
using Recomputed = std::map<uint32_t, uint32_t>;

// Turns a group into its kernel.
class KernelMaker {
 public:
  KernelMaker(const Trace& trace, const Uses& uses, const FusionGroup& group, const Recomputed& recomputed)
      : trace_(trace), uses_(uses), group_(group), recomputed_(recomputed) {}

  FusedKernel kernel;
  std::vector<uint32_t> inputs, written, results;  // values
  std::vector<uint32_t> inner;                     // storages that vanish
  int64_t bytes_before = 0, bytes_after = 0;       // that are read and written

  void Make() {
    kernel.sizes = group_.sizes;
    const std::vector<uint32_t> computed = Computed();
    for (const uint32_t i : computed) AddInputs(i);
    registers_ = static_cast<int32_t>(inputs.size());
    std::vector<std::pair<uint32_t, int32_t>> made;  // value, register
    for (const uint32_t i : computed) AddStatement(i, &made);
    AddOutputs(made);
    Simplify();
  }

 private:
  const Geometry& GeometryOf(uint32_t value) const { return trace_.geometries[trace_.values[value].geometry]; }
  int64_t BytesOf(uint32_t value) const {
    const Geometry& geometry = GeometryOf(value);
    int64_t elements = 1;
    for (size_t i = 0; i < geometry.sizes.size(); ++i) elements *= geometry.strides[i] == 0 ? 1 : geometry.sizes[i];
    return elements * ElementBytes(geometry.dtype);
  }

  bool IsMember(uint32_t i) const { return std::binary_search(group_.members.begin(), group_.members.end(), i); }

  // The members, and before them what they read that is computed again.
  std::vector<uint32_t> Computed() const {
    std::set<uint32_t> again;
    for (const uint32_t i : group_.members) {
      const FusionCandidate candidate = *FusionCandidateOf(trace_, trace_.instructions[i]);
      for (const uint32_t value : candidate.reads) {
        const auto maker = recomputed_.find(trace_.values[value].storage);
        if (maker != recomputed_.end() && !IsMember(maker->second)) again.insert(maker->second);
      }
    }
    std::vector<uint32_t> computed(again.begin(), again.end());
    computed.insert(computed.end(), group_.members.begin(), group_.members.end());
    return computed;
  }

  void AddInputs(uint32_t i) {
    const FusionCandidate candidate = *FusionCandidateOf(trace_, trace_.instructions[i]);
    const NormGradient* const gradient = FindNormGradient(candidate.op->name);
    const bool is_read_anyway = gradient != nullptr && gradient->reads_once;  // by the other part
    for (const uint32_t value : candidate.reads) {
      if (!is_read_anyway) bytes_before += BytesOf(value);
      const bool is_input = std::find(inputs.begin(), inputs.end(), value) != inputs.end();
      if (is_input || known_.count(trace_.values[value].storage) > 0) continue;
      inputs.push_back(value);
      const Geometry& geometry = GeometryOf(value);
      kernel.inputs.push_back({geometry.dtype, *BroadcastStrides(geometry, kernel.sizes)});
      bytes_after += BytesOf(value);
    }
    for (const uint32_t value : candidate.results) known_.insert(trace_.values[value].storage), bytes_before += BytesOf(value);
  }

  void AddStatement(uint32_t i, std::vector<std::pair<uint32_t, int32_t>>* made) {
    const Instruction& instruction = trace_.instructions[i];
    const FusionCandidate candidate = *FusionCandidateOf(trace_, instruction);
    const InstructionView op(trace_, instruction);
    FusedStatement statement{op.name(), {}, {}};
    for (const int position : candidate.op->tensors) {
      const Argument& argument = trace_.arguments[instruction.first_argument + position];
      if (argument.kind == Argument::Kind::kValue) {
        statement.operands.push_back({RegisterOf(argument.index), 0});
      } else {
        statement.operands.push_back({-1, *NumberAt(op, position)});
      }
    }
    for (const double number : candidate.scalars) statement.operands.push_back({-1, number});
    for (const uint32_t value : candidate.results) {
      current_[trace_.values[value].storage] = registers_;
      made->emplace_back(value, registers_);
      statement.results.push_back(registers_++);
    }
    kernel.statements.push_back(std::move(statement));
  }
  int32_t RegisterOf(uint32_t value) const {
    const auto made = current_.find(trace_.values[value].storage);
    if (made != current_.end()) return made->second;
    return static_cast<int32_t>(std::find(inputs.begin(), inputs.end(), value) - inputs.begin());
  }

  // Of a storage that several members write the last value counts.
  void AddOutputs(const std::vector<std::pair<uint32_t, int32_t>>& made) {
    for (const auto& [value, reg] : made) {
      const uint32_t storage = trace_.values[value].storage;
      if (current_.at(storage) != reg) continue;
      const auto maker = recomputed_.find(storage);
      if (maker != recomputed_.end() && !IsMember(maker->second)) continue;  // it vanishes with the group that has it
      if (maker != recomputed_.end() || uses_.IsInner(storage, group_.members)) {
        inner.push_back(storage);
        continue;
      }
      const Geometry& geometry = GeometryOf(value);
      FusedOutput output{reg, {geometry.dtype, ResultStrides(geometry, kernel.sizes)}, {}, {}};
      const bool is_born = trace_.storages[storage].kind == StorageKind::kInner && IsMember(uses_.born[storage]);
      output.own_sizes = geometry.sizes, output.own_strides = geometry.strides;
      (is_born ? kernel.results : kernel.written).push_back(std::move(output));
      (is_born ? results : written).push_back(value);
      bytes_after += BytesOf(value);
    }
  }

  template <class F>
  void ForEachTensor(F f) {
    for (FusedTensor& tensor : kernel.inputs) f(tensor);
    for (FusedOutput& output : kernel.written) f(output.tensor);
    for (FusedOutput& output : kernel.results) f(output.tensor);
  }
  // The loop with as few dimensions as do: those of one element left out, and two that lie behind each other in all tensors are
  // one. A row stays a row where a statement looks along it.
  void Simplify() {
    const size_t keep = kernel.HasRows() ? 1 : 0;
    for (size_t d = kernel.sizes.size() - keep; d-- > 0;) {
      if (kernel.sizes[d] == 1 && kernel.sizes.size() > 1) Drop(d);
    }
    for (size_t d = kernel.sizes.size() < 1 + keep ? 0 : kernel.sizes.size() - 1 - keep; d-- > 0;) {
      bool joins = true;
      ForEachTensor([&](const FusedTensor& t) { joins = joins && t.strides[d] == t.strides[d + 1] * kernel.sizes[d + 1]; });
      if (!joins) continue;
      kernel.sizes[d + 1] *= kernel.sizes[d];
      Drop(d);
    }
  }
  void Drop(size_t d) {
    kernel.sizes.erase(kernel.sizes.begin() + static_cast<std::ptrdiff_t>(d));
    ForEachTensor([&](FusedTensor& t) { t.strides.erase(t.strides.begin() + static_cast<std::ptrdiff_t>(d)); });
  }

  const Trace& trace_;
  const Uses& uses_;
  const FusionGroup& group_;
  const Recomputed& recomputed_;
  std::set<uint32_t> known_;            // storages that members have written
  std::map<uint32_t, int32_t> current_;  // their registers
  int32_t registers_ = 0;
};

class Fusing {
 public:
  explicit Fusing(Trace trace) : uses_(trace), memory_(trace), rewriter_(std::move(trace)) {
    for (FusionGroup& group : FindFusionGroups(this->trace())) {
      if (Pays(&group)) groups_.push_back(std::move(group));
    }
  }

  // Whether the instruction becomes a part of a kernel.
  bool Takes(uint32_t instruction) const {
    return std::any_of(groups_.begin(), groups_.end(), [&](const FusionGroup& group) {
      return std::binary_search(group.members.begin(), group.members.end(), instruction);
    });
  }

  Trace Run() {
    const Recomputed recomputed = FindRecomputed();
    for (const FusionGroup& group : groups_) {
      KernelMaker made(trace(), uses_, group, recomputed);
      made.Make();
      Replace(group, made);
    }
    return rewriter_.Finish();
  }

 private:
  const Trace& trace() { return rewriter_.trace(); }

  // With as many of its members as memory lets it have. Without one that waits, or without the last one, the others still run
  // behind all that they read; one that comes forward makes what those behind it read at the same place.
  bool Pays(FusionGroup* group) {
    const Recomputed nothing;
    while (group->members.size() > 1) {
      KernelMaker made(trace(), uses_, *group, nothing);
      made.Make();
      if (made.bytes_after >= made.bytes_before) return false;
      if (TakesItsMemory(*group, made)) return true;
      if (group->members.front() < group->place) {
        group->members.erase(group->members.begin());  // it waited, and held memory meanwhile
      } else {
        group->members.pop_back();
      }
    }
    return false;
  }

  // What a group makes of tensors that every other reader, a later group each, reads as well, and as they were: SiLU of a gate,
  // which its gradient reads. To compute it again moves no bytes, and its memory between forward and backward is spared.
  Recomputed FindRecomputed() {
    Recomputed found;
    for (const FusionGroup& group : groups_) {
      for (const uint32_t i : group.members) {
        const FusionCandidate candidate = *FusionCandidateOf(trace(), rewriter_.At(i));
        const uint32_t storage = trace().values[candidate.results[0]].storage;
        if (candidate.op->in_place || candidate.op->along_rows) continue;
        if (uses_.stays[storage] != 0 || uses_.freed[storage] == kNever || IsWrittenBetween(storage, i, kNever)) continue;
        const std::vector<uint32_t>& users = uses_.operators[storage];
        bool is_read_later = false;
        const bool may_be = std::all_of(users.begin(), users.end(), [&](uint32_t user) {
          if (std::binary_search(group.members.begin(), group.members.end(), user)) return true;
          is_read_later = true;
          const auto other = std::find_if(groups_.begin(), groups_.end(), [&](const FusionGroup& of) {
            return std::binary_search(of.members.begin(), of.members.end(), user);
          });
          return other != groups_.end() && MayComputeAgain(candidate, i, user, *other);
        });
        if (may_be && is_read_later) found[storage] = i;
      }
    }
    return found;
  }

  // Whether `user` of another group reads the whole result as it was made, and the group reads all that it was made of, which
  // nobody has written since.
  bool MayComputeAgain(const FusionCandidate& candidate, uint32_t maker, uint32_t user, const FusionGroup& group) {
    const FusionCandidate reader = *FusionCandidateOf(trace(), rewriter_.At(user));
    const uint32_t made = candidate.results[0], storage = trace().values[made].storage;
    const bool reads_it = std::all_of(reader.reads.begin(), reader.reads.end(), [&](uint32_t value) {
      return trace().values[value].storage != storage || trace().values[value].geometry == trace().values[made].geometry;
    });
    if (!reads_it || reader.op->in_place || group.in_place || group.along_rows || group.sizes != candidate.sizes) return false;
    std::set<uint32_t> read;
    for (const uint32_t i : group.members) {
      const FusionCandidate member = *FusionCandidateOf(trace(), rewriter_.At(i));
      read.insert(member.reads.begin(), member.reads.end());
    }
    return std::all_of(candidate.reads.begin(), candidate.reads.end(), [&](uint32_t value) {
      return read.count(value) > 0 &&
             !IsWrittenBetween(trace().values[value].storage, maker, std::max(group.members.back(), group.place));
    });
  }
  bool IsWrittenBetween(uint32_t storage, uint32_t first, uint32_t last) {
    const auto& users = uses_.operators[storage];
    return std::any_of(users.begin(), users.end(), [&](uint32_t user) {
      if (user <= first || user > last) return false;
      const Operands operands = OperandsOf(trace(), rewriter_.At(user));
      const auto is_it = [&](uint32_t value) { return trace().values[value].storage == storage; };
      return std::any_of(operands.writes.begin(), operands.writes.end(), is_it) ||
             std::any_of(operands.results.begin(), operands.results.end(), is_it);
    });
  }

  // Whether the step has room for the group beside those before it; if so it takes it.
  bool TakesItsMemory(const FusionGroup& group, const KernelMaker& made) {
    using Held = StepMemory::Held;
    const int64_t place = StepMemory::BeforeOf(group.place);
    std::map<uint32_t, Held> held;
    const auto hold = [&](uint32_t value, bool is_made) {
      const uint32_t storage = trace().values[value].storage;
      if (trace().storages[storage].kind != StorageKind::kInner) return;
      Held when = memory_.HeldNow(storage);
      if (is_made) when.from = place;
      when.until = std::max(when.until, place + 1);
      held[storage] = when;
    };
    for (const uint32_t value : made.inputs) hold(value, false);
    for (const uint32_t value : made.written) hold(value, false);
    for (const uint32_t value : made.results) hold(value, true);
    for (const uint32_t storage : made.inner) held[storage] = Held();
    return memory_.TryChange(held, group.members);
  }

  uint32_t AddList(const std::vector<uint32_t>& values) {
    rewriter_.trace().lists.emplace_back(values.begin(), values.end());
    return static_cast<uint32_t>(trace().lists.size() - 1);
  }

  void Replace(const FusionGroup& group, const KernelMaker& made) {
    const Instruction like = rewriter_.At(group.members.back());
    const std::vector<Argument> arguments = {
        {Argument::Kind::kList, AddList(made.inputs)},
        {Argument::Kind::kList, AddList(made.written)},
        {Argument::Kind::kConstant, rewriter_.AddConstant(TextOf(made.kernel))}};
    Instruction fused = rewriter_.Make(like, kFusedOperator, /*writes=*/2, arguments, {}, comm::kCompute);
    fused.result_count = 1;
    rewriter_.trace().results.push_back({Argument::Kind::kList, AddList(made.results)});
    if (!made.written.empty() || !made.results.empty()) rewriter_.Insert(group.place, fused);
    for (const uint32_t i : group.members) rewriter_.Remove(i);
    for (const uint32_t value : made.results) MoveViewsBehind(trace().values[value].storage, group.place);
    for (const uint32_t storage : made.inner) {
      rewriter_.Remove(uses_.freed[storage]);
      for (const uint32_t i : uses_.views[storage]) rewriter_.Remove(i);
    }
  }

  // Views of what was made before `place`, and is made there now.
  void MoveViewsBehind(uint32_t storage, uint32_t place) {
    for (const uint32_t i : uses_.views[storage]) {
      if (i < place) rewriter_.Move(i, place);
    }
  }

  std::vector<FusionGroup> groups_;  // that pay
  const Uses uses_;
  StepMemory memory_;
  Rewriter rewriter_;
};

}  // namespace

absl::StatusOr<Trace> FuseElementwise(Trace trace) {
  std::set<uint32_t> whole;  // gradients of norms that no kernel takes: they stay one operator
  while (true) {
    SplitTrace split = SplitNormGradients(trace, whole);
    Fusing fusing(std::move(split.trace));
    const size_t known = whole.size();
    for (const auto& [gradient, input_part] : split.input_parts) {
      if (!fusing.Takes(input_part)) whole.insert(gradient);
    }
    if (whole.size() == known) return fusing.Run();
  }
}

}  // namespace legoai::graph

#include "simulator/capture/instance_actions.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/trace/effects.h"
#include "core/trace/interner.h"
#include "proto/status.h"
#include "simulator/capture/captured_actions.h"

namespace legoai::sim {
namespace {

using graph::Argument;
using graph::Instruction;
using graph::Trace;
using parallel::LoweredAction;

constexpr uint32_t kUnset = UINT32_MAX;

// Writes the new Trace in the order in which a recorder would have, so that all its indices are the same.
class Instancer {
 public:
  Instancer(const Trace& trace, const CapturedActions& parts, const Labels& labels, const StageShift& shift)
      : from_(trace),
        parts_(parts),
        labels_(labels),
        shift_(shift),
        interner_(&out_),
        operators_(trace.operators.size(), kUnset),
        geometries_(trace.geometries.size(), kUnset),
        constants_(trace.constants.size(), kUnset),
        modules_(trace.modules.size(), kUnset),
        global_(trace.storages.size(), kUnset) {
    slots_.resize(parts.chunks());
    for (int32_t chunk = 0; chunk < parts.chunks(); ++chunk) {
      for (int64_t m = 0; m < labels.microbatches; ++m) {
        slots_[chunk].emplace_back(parts.StoragesOf(chunk, labels.Of(m)), kUnset);
      }
    }
  }

  absl::StatusOr<Trace> Run(const std::vector<LoweredAction>& all) {
    Reserve(all.size());
    CopyInputs();
    Emit(parts_.prologue(), false);
    for (size_t i = 0; i < all.size() && error_.ok(); ++i) {
      microbatch_ = all[i].microbatch;
      action_ = static_cast<int32_t>(i);
      label_ = labels_.Of(microbatch_);
      LoweredAction captured = all[i];
      captured.chunk -= static_cast<int32_t>(shift_.ranks);
      const auto segment = parts_.Find(captured, label_);
      if (!segment) return absl::FailedPreconditionError(absl::StrCat("no captured action is like ", parallel::Print(all[i])));
      Emit(*segment, microbatch_ > labels_.next && label_ == labels_.next && !labels_.AllCaptured());
    }
    label_ = kNoMicrobatch;
    Emit(parts_.epilogue(), false);
    FlushFrees(from_.instructions.empty() ? Instruction() : from_.instructions.back());
    CopyOutputs();
    if (!error_.ok()) return error_;
    out_.groups = from_.groups;
    return std::move(out_);
  }

 private:
  // About as much of everything for each action as was captured for one; vectors grow where that is too little.
  void Reserve(size_t actions) {
    const size_t captured = parts_.size();
    const auto grown = [&](size_t size) { return size * (actions + 1) / (captured + 1); };
    out_.instructions.reserve(grown(from_.instructions.size()));
    out_.arguments.reserve(grown(from_.arguments.size()));
    out_.results.reserve(grown(from_.results.size()));
  }

  // Storages and values of the inputs come first, as they were bound.
  void CopyInputs() {
    uint32_t values = 0;
    for (const auto& [_, value] : from_.inputs) values = std::max(values, value + 1);
    for (uint32_t s = 0; s < parts_.initial_storages(); ++s) global_[s] = AddStorage(s);
    for (uint32_t v = 0; v < values; ++v) ValueOf(v, v);
    for (const auto& [name, value] : from_.inputs) out_.inputs[Renamed(name)] = value;
  }

  void CopyOutputs() {
    std::vector<std::pair<uint32_t, std::string>> by_value;
    for (const auto& [name, value] : from_.outputs) by_value.emplace_back(value, name);
    std::sort(by_value.begin(), by_value.end());
    for (const auto& [value, name] : by_value) out_.outputs[name] = ValueOf(value, value);
  }

  // "model.layers.3.mlp" becomes "model.layers.7.mlp".
  std::string Renamed(const std::string& name) const {
    static const std::string kLayers = "layers.";
    const size_t at = shift_.layers == 0 ? std::string::npos : name.find(kLayers);
    if (at == std::string::npos) return name;
    const size_t begin = at + kLayers.size(), end = std::min(name.find('.', begin), name.size());
    int64_t layer = 0;
    if (!absl::SimpleAtoi(name.substr(begin, end - begin), &layer)) return name;
    return absl::StrCat(name.substr(0, begin), layer + shift_.layers, name.substr(end));
  }

  uint32_t AddStorage(uint32_t storage) {
    out_.storages.push_back(from_.storages[storage]);
    out_.storages.back().name = Renamed(out_.storages.back().name);
    return out_.storages.size() - 1;
  }

  // Where the new number of a storage is kept that is mentioned in the part that is being written.
  uint32_t* Slot(uint32_t storage) {
    const int home = parts_.Home(storage);
    if (home == kNoMicrobatch) return &global_[storage];
    int64_t of = -1;
    if (home == label_) {
      of = label_ == kNoMicrobatch ? -1 : microbatch_;
    } else if (home < labels_.steady || labels_.AllCaptured()) {
      of = home;  // the same for all
    } else if (home == labels_.steady && label_ == labels_.next) {
      of = microbatch_ - 1;
    } else if (home == labels_.next && (label_ == labels_.last || label_ == kNoMicrobatch)) {
      of = labels_.microbatches - 2;
    } else if (home == labels_.last && label_ == kNoMicrobatch) {
      of = labels_.microbatches - 1;
    }
    if (of < 0) return nullptr;
    return &slots_[parts_.ChunkOf(storage)][of][parts_.Local(storage)];
  }

  uint32_t StorageOf(uint32_t storage) {
    uint32_t* const slot = Slot(storage);
    if (slot == nullptr) {
      Fail("a storage of another microbatch is used");
      return 0;
    }
    if (*slot == kUnset) *slot = AddStorage(storage);
    return *slot;
  }

  // From both steady microbatches to where this one is: what grows with the number goes on.
  int64_t Extrapolate(int64_t before, int64_t at) const { return at + (microbatch_ - labels_.next) * (at - before); }

  // `before`: the same place in the part of the microbatch before, where the number counts; otherwise the same.
  uint32_t GeometryOf(uint32_t geometry, uint32_t before) {
    if (geometry == before) {
      uint32_t& known = geometries_[geometry];
      if (known == kUnset) known = interner_.Geometry(View(from_.geometries[geometry]));
      return known;
    }
    graph::GeometryView moved = View(from_.geometries[geometry]);
    moved.offset = Extrapolate(from_.geometries[before].offset, moved.offset);
    return interner_.Geometry(moved);
  }
  static graph::GeometryView View(const graph::Geometry& geometry) {
    return {geometry.dtype, geometry.offset, geometry.sizes, geometry.strides};
  }

  uint32_t ValueOf(uint32_t value, uint32_t before) {
    const graph::Value& from = from_.values[value];
    const uint32_t storage = StorageOf(from.storage);
    return interner_.Value(storage, GeometryOf(from.geometry, from_.values[before].geometry));
  }

  uint32_t ConstantOf(uint32_t constant, uint32_t before) {
    if (constant == before) {
      uint32_t& known = constants_[constant];
      if (known == kUnset) known = interner_.Constant(from_.constants[constant]);
      return known;
    }
    graph::Constant moved = from_.constants[constant];
    const graph::Constant& earlier = from_.constants[before];
    if (auto* number = std::get_if<int64_t>(&moved)) {
      *number = Extrapolate(std::get<int64_t>(earlier), *number);
    } else {
      auto& list = std::get<std::vector<int64_t>>(moved);
      for (size_t i = 0; i < list.size(); ++i) list[i] = Extrapolate(std::get<std::vector<int64_t>>(earlier)[i], list[i]);
    }
    return interner_.Constant(moved);
  }

  Argument Convert(const Argument& argument, const Argument& before) {
    switch (argument.kind) {
      case Argument::Kind::kConstant:
      case Argument::Kind::kWrappedNumber: return {argument.kind, ConstantOf(argument.index, before.index)};
      case Argument::Kind::kValue: return {argument.kind, ValueOf(argument.index, before.index)};
      case Argument::Kind::kUndefined: return argument;
      case Argument::Kind::kList:
      case Argument::Kind::kOptionalList: break;
    }
    std::vector<int64_t> list = from_.lists[argument.index];
    const std::vector<int64_t>& earlier = from_.lists[before.index];
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i] >= 0) list[i] = ValueOf(static_cast<uint32_t>(list[i]), static_cast<uint32_t>(earlier[i]));
    }
    out_.lists.push_back(std::move(list));
    return {argument.kind, static_cast<uint32_t>(out_.lists.size() - 1)};
  }

  // `moves`: integers and offsets go on from the part of the microbatch before.
  void Emit(CapturedActions::Part part, bool moves) {
    for (uint32_t i = part.begin; i < part.end; ++i) {
      const Instruction& from = from_.instructions[i];
      if (from.kind == Instruction::Kind::kFree) {
        frees_.push_back(StorageOf(static_cast<uint32_t>(from.immediate)));
        continue;
      }
      Instruction to = from;
      if (label_ != kNoMicrobatch) to.action = action_, to.microbatch = microbatch_;
      FlushFrees(to);
      if (from.kind == Instruction::Kind::kResize) {
        to.operator_index = StorageOf(from.operator_index);
      } else {
        EmitOperator(from, moves ? from_.instructions[part.before + (i - part.begin)] : from, &to);
      }
      out_.instructions.push_back(to);
    }
  }

  void EmitOperator(const Instruction& from, const Instruction& before, Instruction* to) {
    uint32_t& module = modules_[from.module];
    if (module == kUnset) module = interner_.Module(Renamed(from_.modules[from.module]));
    to->module = module;
    uint32_t& op = operators_[from.operator_index];
    if (op == kUnset) {
      op = out_.operators.size();
      out_.operators.push_back(from_.operators[from.operator_index]);
    }
    to->operator_index = op;
    to->first_argument = out_.arguments.size();
    const graph::EffectRow* const effect = shift_.ranks != 0 ? graph::FindEffect(from_.OperatorName(from)) : nullptr;
    const int peer = effect != nullptr ? effect->peer : -1;
    for (uint32_t a = 0; a < from.argument_count; ++a) {
      const Argument& argument = from_.arguments[from.first_argument + a];
      const bool is_peer = static_cast<int>(a) == peer;
      out_.arguments.push_back(is_peer ? Peer(argument) : Convert(argument, from_.arguments[before.first_argument + a]));
    }
    to->first_result = out_.results.size();
    for (uint32_t r = 0; r < from.result_count; ++r) {
      out_.results.push_back(Convert(from_.results[from.first_result + r], from_.results[before.first_result + r]));
    }
  }

  Argument Peer(const Argument& peer) {
    return {peer.kind, interner_.Constant(std::get<int64_t>(from_.constants[peer.index]) + shift_.ranks)};
  }

  // A recorder notes deaths when the next operator comes, in the order of numbers, and with what is going on then.
  void FlushFrees(const Instruction& next) {
    std::sort(frees_.begin(), frees_.end());
    for (uint32_t storage : frees_) {
      Instruction free;
      free.kind = Instruction::Kind::kFree;
      free.phase = next.phase;
      free.action = next.action;
      free.microbatch = next.microbatch;
      free.immediate = storage;
      out_.instructions.push_back(free);
    }
    frees_.clear();
  }

  void Fail(const char* why) {
    if (error_.ok()) error_ = absl::FailedPreconditionError(absl::StrCat(why, " in microbatch ", microbatch_));
  }

  const Trace& from_;
  const CapturedActions& parts_;
  const Labels labels_;
  const StageShift shift_;
  Trace out_;
  graph::Interner interner_;
  // Captured number -> new number; kUnset before its first use.
  std::vector<uint32_t> operators_, geometries_, constants_, modules_, global_;
  std::vector<std::vector<std::vector<uint32_t>>> slots_;  // by chunk and microbatch, by storage of its own
  std::vector<uint32_t> frees_;                            // since the last instruction
  absl::Status error_;
  // Of the part that is being written:
  int label_ = kNoMicrobatch;
  int64_t microbatch_ = -1;
  int32_t action_ = -1;
};

}  // namespace

int64_t CapturedMicrobatches(int64_t ranks) { return Labels(ranks, 1).last + 1; }

std::vector<LoweredAction> ActionsToCapture(int64_t ranks, int64_t chunks, int64_t rank, int64_t microbatches) {
  const int64_t captured = std::min(microbatches, CapturedMicrobatches(ranks));
  const auto schedule = parallel::MakeSchedule(chunks > ranks ? v1::LOOPED_BFS : v1::GPIPE, ranks, chunks, captured);
  if (!schedule.ok()) return {};
  std::vector<LoweredAction> actions = parallel::Lower(*schedule).ranks[rank];
  for (LoweredAction& action : actions) {
    if (action.microbatch + 1 == captured) action.microbatch = static_cast<int32_t>(microbatches - 1);
  }
  return actions;
}

bool ServesOtherLayers(const Trace& captured) {
  return std::none_of(captured.operators.begin(), captured.operators.end(),
                      [](const graph::Operator& op) { return op.name == "lego::dropout"; });
}

absl::StatusOr<Trace> InstanceActions(const Trace& captured, const std::vector<LoweredAction>& captured_actions,
                                      const std::vector<LoweredAction>& all, int64_t ranks, int64_t microbatches,
                                      const StageShift& shift) {
  if (shift.layers != 0 && !ServesOtherLayers(captured)) {
    return absl::FailedPreconditionError("dropout's sites are those of the captured layers");
  }
  const Labels labels(ranks, microbatches);
  ASSIGN_OR_RETURN(auto parts, CapturedActions::Read(captured, captured_actions, labels));
  return Instancer(captured, parts, labels, shift).Run(all);
}

}  // namespace legoai::sim

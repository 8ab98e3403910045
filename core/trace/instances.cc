#include "core/trace/instances.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/trace/effects.h"
#include "core/trace/interner.h"

namespace legoai::graph {
namespace {

constexpr uint32_t kUnset = UINT32_MAX;

// Writes the new Trace in the order in which a recorder would have, so that all its indices are the same.
class Flattener {
 public:
  Flattener(const Trace& trace, const Instances& instances)
      : from_(trace),
        instances_(instances),
        interner_(&out_),
        operators_(trace.operators.size(), kUnset),
        geometries_(trace.geometries.size(), kUnset),
        constants_(trace.constants.size(), kUnset),
        modules_(trace.modules.size(), kUnset),
        storages_(instances.storages, kUnset) {}

  Trace Run() {
    out_.instructions.reserve(instances_.positions());
    now_ = &instances_.list.front();
    CopyInputs();
    for (const Instance& instance : instances_.list) Emit(instance);
    FlushFrees(from_.instructions.empty() ? Instruction() : from_.instructions.back());
    CopyOutputs();
    out_.groups = instances_.groups;
    out_.warnings = from_.warnings;
    return std::move(out_);
  }

 private:
  // Storages and values of the inputs come first, as they were bound.
  void CopyInputs() {
    uint32_t values = 0;
    for (const auto& [_, value] : from_.inputs) values = std::max(values, value + 1);
    uint32_t storages = 0;
    for (uint32_t v = 0; v < values; ++v) storages = std::max(storages, from_.values[v].storage + 1);
    for (uint32_t s = 0; s < storages; ++s) storages_[s] = AddStorage(s);
    for (uint32_t v = 0; v < values; ++v) ValueOf(v, v);
    for (const auto& [name, value] : from_.inputs) out_.inputs[Renamed(name)] = value;
  }

  void CopyOutputs() {
    std::vector<std::pair<uint32_t, std::string>> by_value;
    for (const auto& [name, value] : from_.outputs) by_value.emplace_back(value, name);
    std::sort(by_value.begin(), by_value.end());
    for (const auto& [value, name] : by_value) out_.outputs[name] = ValueOf(value, value);
  }

  std::string Renamed(const std::string& name) const { return ShiftLayer(name, instances_.layer_shifts); }

  uint32_t AddStorage(uint32_t storage) {
    out_.storages.push_back(from_.storages[storage]);
    out_.storages.back().name = Renamed(out_.storages.back().name);
    return out_.storages.size() - 1;
  }

  // The new number of a storage of the part that is being written.
  uint32_t StorageOf(uint32_t storage) {
    uint32_t& known = storages_[instances_.StorageOf(*now_, storage)];
    if (known == kUnset) known = AddStorage(storage);
    return known;
  }

  // `before`: the same place in the part of the microbatch before, where the number counts; otherwise the same.
  uint32_t GeometryOf(uint32_t geometry, uint32_t before) {
    if (geometry == before) {
      uint32_t& known = geometries_[geometry];
      if (known == kUnset) known = interner_.Geometry(View(from_.geometries[geometry]));
      return known;
    }
    GeometryView moved = View(from_.geometries[geometry]);
    moved.offset = now_->Grown(moved.offset, from_.geometries[before].offset);
    return interner_.Geometry(moved);
  }
  static GeometryView View(const Geometry& geometry) {
    return {geometry.dtype, geometry.offset, geometry.sizes, geometry.strides};
  }

  uint32_t ValueOf(uint32_t value, uint32_t before) {
    const Value& from = from_.values[value];
    const uint32_t storage = StorageOf(from.storage);
    return interner_.Value(storage, GeometryOf(from.geometry, from_.values[before].geometry));
  }

  uint32_t ConstantOf(uint32_t constant, uint32_t before) {
    if (constant == before) {
      uint32_t& known = constants_[constant];
      if (known == kUnset) known = interner_.Constant(from_.constants[constant]);
      return known;
    }
    Constant moved = from_.constants[constant];
    const Constant& earlier = from_.constants[before];
    if (auto* number = std::get_if<int64_t>(&moved)) {
      *number = now_->Grown(*number, std::get<int64_t>(earlier));
    } else {
      auto& list = std::get<std::vector<int64_t>>(moved);
      for (size_t i = 0; i < list.size(); ++i) list[i] = now_->Grown(list[i], std::get<std::vector<int64_t>>(earlier)[i]);
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

  void Emit(const Instance& instance) {
    now_ = &instance;
    for (uint32_t i = instance.begin; i < instance.end; ++i) {
      const Instruction& from = from_.instructions[i];
      if (from.kind == Instruction::Kind::kFree) {
        frees_.push_back(StorageOf(static_cast<uint32_t>(from.immediate)));
        continue;
      }
      Instruction to = from;
      if (instance.microbatch >= 0) to.action = instance.action, to.microbatch = instance.microbatch;
      FlushFrees(to);
      if (from.kind == Instruction::Kind::kResize) {
        to.operator_index = StorageOf(from.operator_index);
      } else {
        EmitOperator(from, from_.instructions[instance.Before(i)], &to);
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
    const EffectRow* const effect = instances_.rank_shift != 0 ? FindEffect(from_.OperatorName(from)) : nullptr;
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
    return {peer.kind, interner_.Constant(std::get<int64_t>(from_.constants[peer.index]) + instances_.rank_shift)};
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

  const Trace& from_;
  const Instances& instances_;
  Trace out_;
  Interner interner_;
  // Number in the Trace -> new number; kUnset before its first use. Storages: of the step.
  std::vector<uint32_t> operators_, geometries_, constants_, modules_, storages_;
  std::vector<uint32_t> frees_;    // since the last instruction
  const Instance* now_ = nullptr;  // what is being written
};

}  // namespace

int64_t Instances::ResidentBytes() const {
  size_t bytes = list.capacity() * sizeof(Instance) + pieces.capacity() * sizeof(int32_t) + places.capacity() * sizeof(uint32_t) +
                 groups.capacity() * sizeof(mesh::Group);
  for (const auto& binding : bindings) bytes += sizeof(binding) + binding.capacity() * sizeof(int64_t);
  return static_cast<int64_t>(bytes);
}

Instances WholeOf(const Trace& trace) {
  Instances whole;
  Instance all;
  all.end = static_cast<uint32_t>(trace.instructions.size());
  whole.list.push_back(all);
  whole.pieces.assign(trace.storages.size(), kSharedPiece);
  whole.places.assign(trace.storages.size(), 0);
  whole.bindings.resize(1);
  whole.storages = static_cast<uint32_t>(trace.storages.size());
  whole.groups = trace.groups;
  return whole;
}

std::vector<int64_t> TimesRun(const Trace& trace, const Instances& instances) {
  std::vector<int64_t> times(trace.instructions.size() + 1, 0);  // first by how much more often than the one before
  for (const Instance& instance : instances.list) ++times[instance.begin], --times[instance.end];
  std::partial_sum(times.begin(), times.end(), times.begin());
  times.pop_back();
  return times;
}

std::string ShiftLayer(const std::string& name, const std::vector<LayerShift>& shifts) {
  static constexpr char kLayers[] = "layers.";
  const size_t at = shifts.empty() ? std::string::npos : name.find(kLayers);
  if (at == std::string::npos) return name;
  const size_t begin = at + sizeof(kLayers) - 1, end = std::min(name.find('.', begin), name.size());
  int64_t layer = 0;
  if (!absl::SimpleAtoi(name.substr(begin, end - begin), &layer)) return name;
  int64_t by = 0;
  for (const LayerShift& shift : shifts) by = layer >= shift.from ? shift.by : by;
  return absl::StrCat(name.substr(0, begin), layer + by, name.substr(end));
}

Trace Flatten(const Trace& trace, const Instances& instances) { return Flattener(trace, instances).Run(); }

}  // namespace legoai::graph

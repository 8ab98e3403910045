#include "simulator/memory/memory_simulator.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/status.h"
#include "simulator/memory/workspace.h"

namespace legoai::sim {
namespace {

using graph::Instance;
using graph::Instances;
using graph::Instruction;
using graph::InstructionView;
using graph::StorageKind;
using graph::Trace;

class Replay {
 public:
  Replay(const Trace& trace, const Instances& instances, const MemoryOptions& options, std::vector<const OperatorRow*> rows)
      : trace_(trace),
        instances_(instances),
        options_(options),
        rows_(std::move(rows)),
        bytes_(instances.storages, kUnborn),
        workspaces_(trace.instructions.size(), -1) {}

  absl::StatusOr<MemoryProfile> Run() {
    for (uint32_t id = 0; id < trace_.storages.size(); ++id) {
      if (trace_.storages[id].kind == StorageKind::kExternal) Resize(id, id, trace_.storages[id].bytes);
    }
    profile_.start_bytes = live_;
    if (!trace_.instructions.empty()) peak_ = &trace_.instructions.front();
    Peak(0, 0);
    if (options_.live_bytes) profile_.live_bytes.reserve(instances_.positions());
    for (const Instance& instance : instances_.list) {
      now_ = &instance;
      for (uint32_t i = instance.begin; i < instance.end; ++i) RETURN_IF_ERROR(Step(i));
    }
    profile_.categories = ToProto(peak_categories_);
    if (peak_ != nullptr) profile_.peak_at = Place(*peak_);
    return std::move(profile_);
  }

 private:
  static constexpr int64_t kUnborn = -1, kDead = -2;

  int64_t Rounded(int64_t bytes) const {
    return (bytes + options_.rounding_bytes - 1) / options_.rounding_bytes * options_.rounding_bytes;
  }

  // `id`: of the step; `storage`: of the Trace, what it is an instance of.
  void Resize(uint32_t id, uint32_t storage, int64_t bytes) {
    int64_t before = std::max<int64_t>(bytes_[id], 0), after = std::max<int64_t>(bytes, 0);
    bytes_[id] = bytes;
    if (before == after) return;
    live_ += after - before;
    allocated_ += Rounded(after) - Rounded(before);
    categories_[static_cast<int>(trace_.storages[storage].category)] += after - before;
    changed_ = true;
  }

  void Resize(uint32_t storage, int64_t bytes) { Resize(instances_.StorageOf(*now_, storage), storage, bytes); }

  void Peak(uint32_t position, int64_t workspace) {
    profile_.peak_allocated_bytes = std::max(profile_.peak_allocated_bytes, allocated_ + Rounded(workspace));
    if (live_ + workspace <= profile_.peak_requested_bytes) return;
    profile_.peak_requested_bytes = live_ + workspace;
    profile_.peak_position = position;
    if (now_ != nullptr) peak_ = &trace_.instructions[now_->begin + (position - now_->position)];
    peak_categories_ = categories_;
    peak_categories_.back() = workspace;
  }

  bool Unborn(uint32_t value) const { return bytes_[instances_.StorageOf(*now_, trace_.values[value].storage)] == kUnborn; }
  int64_t RecordedBytes(uint32_t value) const { return trace_.storages[trace_.values[value].storage].bytes; }

  absl::Status Step(uint32_t index) {
    const uint32_t position = now_->PositionOf(index);
    RETURN_IF_ERROR(Run(index, position));
    if (options_.live_bytes) profile_.live_bytes.push_back(live_);
    if (options_.timeline && changed_) profile_.timeline.push_back({position, categories_});
    changed_ = false;
    return absl::OkStatus();
  }

  // The same in every instance: it depends on geometries alone.
  int64_t WorkspaceOf(uint32_t index, const InstructionView& op, const OperatorRow& row) {
    int64_t& bytes = workspaces_[index];
    if (bytes < 0) bytes = WorkspaceBytes(op, row, {options_.kind, options_.threads, options_.onednn_bfloat16});
    return bytes;
  }

  absl::Status Run(uint32_t index, uint32_t position) {
    const Instruction& instruction = trace_.instructions[index];
    switch (instruction.kind) {
      case Instruction::Kind::kFree: return Free(static_cast<uint32_t>(instruction.immediate), position);
      case Instruction::Kind::kResize:
        Resize(instruction.operator_index, instruction.immediate);
        Peak(position, 0);
        return absl::OkStatus();
      case Instruction::Kind::kOperator: break;
    }
    InstructionView op(trace_, instruction);
    const OperatorRow& row = *rows_[instruction.operator_index];
    op.ForEachInput([this](int, uint32_t value) {
      if (Unborn(value)) Resize(trace_.values[value].storage, RecordedBytes(value));
    });
    op.ForEachResult([&](int place, uint32_t value) {
      if (!Unborn(value)) return;
      Resize(trace_.values[value].storage, ResultBytes(op, row, place, RecordedBytes(value), options_.kind));
    });
    if (row.op_class == OpClass::kControl) {
      if (const auto resize = graph::StorageResizeOf(trace_, instruction)) Resize(resize->storage, resize->bytes);
    }
    const int64_t workspace = WorkspaceOf(index, op, row);
    Peak(position, workspace);
    if (options_.timeline && workspace > 0) {
      profile_.timeline.push_back({position, categories_});
      profile_.timeline.back().bytes.back() = workspace;
      changed_ = true;  // when it is gone
    }
    return absl::OkStatus();
  }

  absl::Status Free(uint32_t storage, uint32_t position) {
    const uint32_t id = instances_.StorageOf(*now_, storage);
    if (bytes_[id] < 0) {
      return absl::InternalError(absl::StrCat("instruction ", position, " frees storage ", id, ", which does not live"));
    }
    Resize(id, storage, 0);
    bytes_[id] = kDead;
    return absl::OkStatus();
  }

  std::string Place(const Instruction& instruction) const {
    const std::string module = graph::ShiftLayer(trace_.modules[instruction.module], instances_.layer_shifts);
    return absl::StrCat(module.empty() ? "step" : module, ", ", graph::PhaseName(instruction.phase));
  }

  const Trace& trace_;
  const Instances& instances_;
  const MemoryOptions& options_;
  std::vector<const OperatorRow*> rows_;
  std::vector<int64_t> bytes_;       // of each storage of the step now
  std::vector<int64_t> workspaces_;  // by instruction of the Trace; -1: not known yet
  const Instance* now_ = nullptr;
  const Instruction* peak_ = nullptr;
  int64_t live_ = 0, allocated_ = 0;
  bool changed_ = false;
  CategoryBytes categories_{}, peak_categories_{};
  MemoryProfile profile_;
};

using graph::Geometry;

constexpr int64_t kFloatBytes = 4;
constexpr int64_t kTokensOfLogSumExp = 32;  // PyTorch 2.11, kAlignLSE of mem_eff_attention/kernel_forward.h

const Geometry* First(const InstructionView& op) {
  const graph::Value* value = op.Input(0);
  return value == nullptr ? nullptr : &op.GeometryOf(*value);
}

// lego::attention(q [batch, heads, seq, head_dim], ...) -> (out, lse)
int64_t AttentionBytes(const InstructionView& op, int place, int64_t recorded) {
  const Geometry* q = First(op);
  if (place != 1 || q == nullptr || q->dtype != v1::FLOAT32 || q->sizes.size() != 4) return recorded;
  const int64_t tokens = (q->sizes[2] + kTokensOfLogSumExp - 1) / kTokensOfLogSumExp * kTokensOfLogSumExp;
  return q->sizes[0] * q->sizes[1] * tokens * kFloatBytes;
}

// aten::native_layer_norm(...) -> (out, mean, rstd)
int64_t LayerNormBytes(const InstructionView& op, int place, int64_t recorded) {
  const graph::Value* statistic = op.Result(place);
  if (place == 0 || statistic == nullptr) return recorded;
  return graph::Elements(op.GeometryOf(*statistic)) * kFloatBytes;
}

}  // namespace

MemoryOptions MemoryOptionsOf(const v1::Device& device) {
  MemoryOptions options;
  options.kind = device.kind();
  options.rounding_bytes = std::max<int64_t>(1, device.allocation_rounding_bytes());
  return options;
}

absl::StatusOr<MemoryProfile> SimulateMemory(const Trace& trace, const MemoryOptions& options) {
  return SimulateMemory(trace, graph::WholeOf(trace), options);
}

absl::StatusOr<MemoryProfile> SimulateMemory(const Trace& trace, const Instances& instances, const MemoryOptions& options) {
  ASSIGN_OR_RETURN(auto rows, ResolveOperators(trace));
  return Replay(trace, instances, options, std::move(rows)).Run();
}

v1::MemoryByCategory ToProto(const CategoryBytes& bytes) {
  using graph::Category;
  auto of = [&](Category category) { return bytes[static_cast<int>(category)]; };
  v1::MemoryByCategory proto;
  proto.set_sharded_parameter(of(Category::kShardedParameter));
  proto.set_unsharded_parameter(of(Category::kUnshardedParameter));
  proto.set_buffer(of(Category::kBuffer));
  proto.set_sharded_gradient(of(Category::kShardedGradient));
  proto.set_unsharded_gradient(of(Category::kUnshardedGradient));
  proto.set_activation(of(Category::kActivation));
  proto.set_activation_gradient(of(Category::kActivationGradient));
  proto.set_optimizer_state(of(Category::kOptimizerState));
  proto.set_input(of(Category::kInput));
  proto.set_all_gather_buffer(of(Category::kAllGatherBuffer));
  proto.set_reduce_scatter_buffer(of(Category::kReduceScatterBuffer));
  proto.set_other(of(Category::kOther));
  proto.set_workspace(bytes.back());
  return proto;
}

int64_t Sum(const v1::MemoryByCategory& c) {
  return c.sharded_parameter() + c.unsharded_parameter() + c.buffer() + c.sharded_gradient() + c.unsharded_gradient() +
         c.activation() + c.activation_gradient() + c.optimizer_state() + c.input() + c.all_gather_buffer() +
         c.reduce_scatter_buffer() + c.workspace() + c.other();
}

int64_t ResultBytes(const InstructionView& op, const OperatorRow& row, int place, int64_t recorded, v1::DeviceKind kind) {
  if (kind == v1::CPU) return recorded;
  switch (row.results) {
    case ResultRule::kAsRecorded:
    case ResultRule::kContiguous: return recorded;
    case ResultRule::kAttention: return AttentionBytes(op, place, recorded);
    case ResultRule::kLayerNorm: return LayerNormBytes(op, place, recorded);
  }
  return recorded;
}

}  // namespace legoai::sim

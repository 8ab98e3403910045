#include "core/trace/device_results.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/status.h"

namespace legoai::graph {
namespace {

constexpr char kLayerNorm[] = "aten::native_layer_norm", kAttention[] = "lego::attention";
constexpr int64_t kTokensOfLogSumExp = 32;  // PyTorch 2.11, kAlignLSE of mem_eff_attention/kernel_forward.h

bool Is16Bits(v1::DType dtype) { return dtype == v1::BFLOAT16 || dtype == v1::FLOAT16; }

// lego::attention(q [batch, heads, seq, head_dim], ...) -> (out, lse)
std::optional<Geometry> LogSumExp(const InstructionView& op) {
  const Value* const q = op.Input(0);
  const Value* const lse = op.Result(1);
  if (q == nullptr || lse == nullptr || op.GeometryOf(*q).sizes.size() != 4) return std::nullopt;
  const std::vector<int64_t>& of = op.GeometryOf(*q).sizes;
  const bool pads = op.GeometryOf(*q).dtype == v1::FLOAT32;
  const int64_t tokens = pads ? (of[2] + kTokensOfLogSumExp - 1) / kTokensOfLogSumExp * kTokensOfLogSumExp : of[2];
  return Geometry{v1::FLOAT32, 0, {of[0], of[1], tokens}, {of[1] * tokens, tokens, 1}};
}

// aten::native_layer_norm(x, ...) -> (out, mean, rstd)
std::optional<Geometry> Statistic(const InstructionView& op, int place) {
  const Value* const statistic = op.Result(place);
  if (statistic == nullptr || !Is16Bits(op.GeometryOf(*statistic).dtype)) return std::nullopt;
  Geometry geometry = op.GeometryOf(*statistic);
  geometry.dtype = v1::FLOAT32;
  return geometry;
}

// Gives storages other geometries.
class Change {
 public:
  explicit Change(Trace trace) : trace_(std::move(trace)), values_(trace_.storages.size()) {
    for (uint32_t value = 0; value < trace_.values.size(); ++value) values_[trace_.values[value].storage].push_back(value);
  }

  absl::StatusOr<Trace> Run() {
    for (const Instruction& instruction : trace_.instructions) {
      if (instruction.kind != Instruction::Kind::kOperator) continue;
      for (int place = 1; place < instruction.result_count; ++place) {
        const InstructionView op(trace_, instruction);
        const std::optional<Geometry> to = ResultOnGpu(op, place);
        if (to) RETURN_IF_ERROR(Give(op.name(), *op.Result(place), *to));
      }
    }
    return std::move(trace_);
  }

 private:
  absl::Status Give(const std::string& name, const Value& made, const Geometry& to) {
    const uint32_t before = made.geometry, storage = made.storage;
    if (trace_.geometries[before] == to) return absl::OkStatus();
    for (const uint32_t value : values_[storage]) {
      if (trace_.values[value].geometry != before)
        return absl::UnimplementedError(absl::StrCat("what ", name, " gives for its gradient is read in parts, and a GPU's "
                                                     "kernel lays it otherwise than programs know"));
    }
    const uint32_t after = Add(before, to);
    for (const uint32_t value : values_[storage]) trace_.values[value].geometry = after;
    trace_.storages[storage].bytes = Elements(to) * ElementBytes(to.dtype);
    return absl::OkStatus();
  }

  // Equal geometries keep one number.
  uint32_t Add(uint32_t before, const Geometry& to) {
    std::vector<uint32_t>& known = added_[before];
    const auto found =
        std::find_if(known.begin(), known.end(), [&](uint32_t geometry) { return trace_.geometries[geometry] == to; });
    if (found != known.end()) return *found;
    trace_.geometries.push_back(to);
    return known.emplace_back(static_cast<uint32_t>(trace_.geometries.size() - 1));
  }

  Trace trace_;
  std::vector<std::vector<uint32_t>> values_;         // by storage
  std::map<uint32_t, std::vector<uint32_t>> added_;  // geometries, by what they take the place of
};

}  // namespace

std::optional<Geometry> ResultOnGpu(const InstructionView& op, int place) {
  if (place == 0) return std::nullopt;
  if (op.name() == kLayerNorm) return Statistic(op, place);
  if (place == 1 && op.name().substr(0, op.name().find('.')) == kAttention) return LogSumExp(op);
  return std::nullopt;
}

absl::StatusOr<Trace> ProgramFor(v1::DeviceKind kind, Trace trace) {
  if (kind == v1::CPU) return trace;
  return Change(std::move(trace)).Run();
}

}  // namespace legoai::graph

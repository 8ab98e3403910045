#include "simulator/memory/result_bytes.h"

namespace legoai::sim {
namespace {

using graph::Geometry;
using graph::InstructionView;

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

int64_t ResultBytes(const InstructionView& op, const OperatorRow& row, int place, int64_t recorded, v1::DeviceKind kind) {
  if (kind == v1::CPU) return recorded;
  switch (row.results) {
    case ResultRule::kAsRecorded: return recorded;
    case ResultRule::kAttention: return AttentionBytes(op, place, recorded);
    case ResultRule::kLayerNorm: return LayerNormBytes(op, place, recorded);
  }
  return recorded;
}

}  // namespace legoai::sim

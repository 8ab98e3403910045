// The table of operators: class, memory traffic, arithmetic, workspace rule. One row per operator, for all its overloads. An
// operator without a row is an error that names it, never a guess.
//
// To add an operator, add a row in operator_table.cc. Thread-safety: const.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/trace/trace.h"

namespace legoai::sim {

enum class OpClass : uint8_t {
  kView,         // another geometry of a storage, or an allocation without writing; takes no time on the device
  kMatmul,       // bound by peak FLOP/s
  kAttention,    // bound by peak FLOP/s, at an efficiency of its own
  kElementwise,  // the rest is bound by memory bandwidth
  kReduction,
  kCopy,
  kOptimizer,
  kCollective,  // and point-to-point: simulator/cost/collective_cost.h
  kControl,     // events, storage sizes: no time of their own
};
// "matmul", as in v1::Efficiency.op_class.
const char* OpClassName(OpClass op_class);

enum class Traffic : uint8_t {
  kAll,         // reads all inputs, writes all results and in-place arguments
  kOverwrites,  // the same, but its first argument is only written
  kGathers,     // reads only as much of its first argument as it writes
  kPicks,       // reads one element of its first argument for each of the second's
  kWrites,      // reads next to nothing
  kScatters,    // reads and writes as much of its first argument as its largest other input holds
};

enum class FlopRule : uint8_t { kPerElement, kMatmul, kAttention, kAttentionBackward, kFused /* its statements' */ };

enum class WorkspaceRule : uint8_t {
  kNone,
  kMatmul,
  kLayerNormBackward,
  kFlashAttention,
  kFlashAttentionBackward,
  kAttention,          // lego::attention
  kAttentionBackward,  // lego::attention_backward
  kRmsNormBackward,    // lego::rms_norm_backward
  kEmbeddingBackward,
  kForeachNorm,
  kCasts,  // arithmetic of operands that may have different types, or of a tensor and a number
};

// Operators whose results differ on CUDA from those on CPU, which a Trace has: in sizes or types
// (simulator/memory/memory_simulator.h), or in strides alone.
enum class ResultRule : uint8_t {
  kAsRecorded,
  kAttention,
  kLayerNorm,
  // Row-major, where the CPU's kernel keeps its input's strides (PyTorch 2.11, ATen/native/cuda/TensorTransformations.cu).
  kContiguous,
};

struct OperatorRow {
  std::string_view name = {};  // "aten::add"
  OpClass op_class = OpClass::kElementwise;
  double flops_per_element = 1;  // of the largest tensor it touches
  Traffic traffic = Traffic::kAll;
  FlopRule flops = FlopRule::kPerElement;
  WorkspaceRule workspace = WorkspaceRule::kNone;
  ResultRule results = ResultRule::kAsRecorded;
};

const std::vector<OperatorRow>& OperatorTable();

// The row of "aten::add.Tensor"; null if there is none.
const OperatorRow* FindOperator(std::string_view name);

// One row per entry of trace.operators. Errors: NotFound, naming the operator.
absl::StatusOr<std::vector<const OperatorRow*>> ResolveOperators(const graph::Trace& trace);

}  // namespace legoai::sim

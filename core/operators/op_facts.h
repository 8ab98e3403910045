// Arithmetic and memory traffic of one instruction, from the geometry of its operands.
//
// Thread-safety: const. Units: FLOPs (a multiply-add is two) and bytes. A dimension of stride 0 is one element in
// memory, so it counts once. Views cost nothing.
#pragma once

#include <cstdint>
#include <string>

#include "core/operators/operator_table.h"
#include "core/trace/effects.h"
#include "proto/legoai/v1/dtype.pb.h"

namespace legoai::sim {

struct OpFacts {
  OpClass op_class = OpClass::kView;
  v1::DType dtype = v1::FLOAT32;  // of the arithmetic: the first floating-point input's or result's
  double flops = 0;
  int64_t read_bytes = 0;
  int64_t written_bytes = 0;
  // Of a matrix product: rows of a factor or of the result begin at no multiple of 16 bytes, as with a vocabulary of 50257 in 16
  // bits. Libraries of GPUs then take kernels without wide loads, which are several times slower.
  bool unaligned = false;

  int64_t bytes() const { return read_bytes + written_bytes; }
};

// Pairs of a query and a key before it or itself, in a sequence of `seq` positions that see the last `window` (0: all).
double CausalPairs(int64_t seq, int64_t window);

// The window of lego::attention.window and its backward, whose q is argument `q`; 0 for other attention.
int64_t AttentionWindow(const graph::InstructionView& instruction, int q);

// `row` is the operator's. Matrix products: 2 m n k for each batch. Attention: 4 batch heads pairs head_dim forward and 10
// backward (it recomputes the scores), where a causal mask on equal lengths leaves CausalPairs.
OpFacts FactsOf(const graph::InstructionView& instruction, const OperatorRow& row);

// Members of a slice of a trace file (docs/traces.md), each after a comma: "flops" and "bytes".
std::string FactsAsJson(const OpFacts& facts);

// As model::FlopsPerToken counts: of matrix products and attention only, the half that a causal mask saves not deducted; with a
// window each position counts as many as the window has. Attention of a sequence of `seq` tokens may be done in blocks of keys
// (context parallelism): the block in which queries meet themselves, the causal one, counts all `seq` keys, and the others none.
double ConventionalFlops(const graph::InstructionView& instruction, const OperatorRow& row, int64_t seq);

// Bytes of the distinct elements of a geometry.
int64_t DistinctBytes(const graph::Geometry& geometry);

// Name, dtypes, sizes, strides and constants, without identities: two instructions of one signature take the same time.
std::string SignatureOf(const graph::InstructionView& instruction);

}  // namespace legoai::sim

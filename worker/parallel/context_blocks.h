// The blocks of causal attention over a sequence that lies on several ranks, each by itself and merged: inside of context
// parallelism (context_parallel.h). Below autograd; pure functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "worker/parallel/context_parallel.h"

namespace legoai::parallel {

// Attention as a tensor [batch, heads, queries, head_dim] and the log-sum-exp of its scores, fp32 [batch, heads, queries].
struct Attended {
  at::Tensor out, lse;
};
struct AttentionGradients {
  at::Tensor q, k, v;
};

// Which of the equal parts of each sequence, in its order, a rank has as its `part`: heads count down from the middle, tails up.
inline int64_t PartOf(const ContextPlace& place, int64_t rank, int64_t part) {
  return part == 0 ? place.size - 1 - rank : place.size + rank;
}

double ScaleOf(const at::Tensor& q);

Attended Attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal);
// Of one block. `attended` is that of these queries over the keys of all blocks.
AttentionGradients AttendBackward(const at::Tensor& gradient, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const Attended& attended, bool causal);

// What one softmax over the keys of both would have given, `out` in fp32 until all are merged. In new memory.
Attended Merge(const Attended& a, const Attended& b);

// The parts of a rank, [batch, heads, tokens, ...] each, along the tokens. They lie by token, so that the projection behind
// attention copies nothing.
at::Tensor Join(const std::vector<at::Tensor>& parts);
// `out` becomes of type `dtype`.
Attended JoinAttended(const std::vector<Attended>& parts, at::ScalarType dtype);

}  // namespace legoai::parallel

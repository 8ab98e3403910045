// Cross entropy over vocabulary shards, without gathering them (loss parallel: Shoeybi et al. 2019). Thread-safety: as operators.
//
// With x the logits of one token, m their maximum and t its target: loss = log(sum_v exp(x_v - m)) - (x_t - m). Each rank sums
// its own shard; one all-reduce computes m, another adds up the sums and the target logit, which one rank has.
//
// Memory, with n = batch x seq tokens and v columns here: forward saves one fp32 [n, v] (the softmax) for backward and needs
// nothing else of that size besides the logits, which the caller may free. Backward turns it into the gradient in place, so a
// graph can be run backward only once; bf16 logits take one more bf16 [n, v].
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace legoai::parallel {

inline constexpr int64_t kIgnoredTarget = -100;

// The loss of a training step, the same with and without a pipeline. logits [batch, seq, vocab], or [batch, seq, vocab / tp] with
// loss parallel, in the compute dtype; targets int64 [batch, seq]. Returns fp32 []: the sum over the tokens times a scale fixed
// at construction, so that losses and gradients of microbatches and ranks simply add up. Differentiable in logits. Without
// gradients, targets may be kIgnoredTarget: such a token adds nothing, whatever its logits are. Evaluation pads its last batch
// with them, because a step's shapes are fixed.
using LossFunction = std::function<at::Tensor(const at::Tensor& logits, const at::Tensor& targets)>;

// logits [batch, seq, v]: columns [vocabulary_offset, vocabulary_offset + v) of the vocabulary; targets int64 [batch, seq], ids
// of the whole vocabulary, or kIgnoredTarget if no gradients are computed. Returns the same fp32 [] on every rank of `group` (a
// number of the current comm::Runtime).
at::Tensor LossParallelCrossEntropy(const at::Tensor& logits, const at::Tensor& targets, double scale, int64_t vocabulary_offset,
                                    int64_t group);

LossFunction MakeLossParallel(double scale, int64_t vocabulary_offset, int64_t group);

}  // namespace legoai::parallel

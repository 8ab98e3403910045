// Cross entropy over vocabulary shards, without gathering them (loss parallel: Shoeybi et al. 2019). Thread-safety: as operators.
//
// With x the logits of one token, m their maximum and t its target: loss = log(sum_v exp(x_v - m)) - (x_t - m). Each rank sums
// its own shard; one all-reduce finds m, another adds up the sums and the one target logit that some rank has.
//
// Memory, with n = batch x seq tokens and v columns here: forward leaves one fp32 [n, v] (the softmax) for backward and needs
// nothing else of that size besides the logits, which die when the caller lets go of them. Backward turns it into the gradient in
// place, so a graph can be run backward once; bf16 logits then get one bf16 [n, v] more.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace legoai::parallel {

inline constexpr int64_t kIgnoredTarget = -100;

// The loss of a training step, the same with and without a pipeline. logits [batch, seq, vocab], or [batch, seq, vocab / tp] with
// loss parallel, in the compute dtype; targets int64 [batch, seq]. Gives fp32 []: the sum over the tokens times a scale fixed at
// construction, so that losses and gradients of microbatches and ranks just add up. Differentiable in logits. Where no gradients
// are computed, targets may be kIgnoredTarget: such a token adds nothing, whatever its logits are. Evaluation pads its last batch
// with them, since a step's shapes are fixed.
using LossFunction = std::function<at::Tensor(const at::Tensor& logits, const at::Tensor& targets)>;

// logits [batch, seq, v]: columns [vocabulary_offset, vocabulary_offset + v) of the vocabulary; targets int64 [batch, seq], ids
// of the whole vocabulary, or kIgnoredTarget where no gradients are computed. The same fp32 [] on every rank of `group` (a number
// of the current comm::Runtime).
at::Tensor LossParallelCrossEntropy(const at::Tensor& logits, const at::Tensor& targets, double scale, int64_t vocabulary_offset,
                                    int64_t group);

LossFunction MakeLossParallel(double scale, int64_t vocabulary_offset, int64_t group);

}  // namespace legoai::parallel

// The loss of a training step, the same with and without a pipeline.
//
// logits [batch, seq, vocab], or [batch, seq, vocab / tp] with loss parallel, in the compute dtype; targets int64 [batch, seq].
// Gives fp32 []: the sum over the tokens times a scale fixed at construction, so that losses and gradients of microbatches and
// ranks just add up. Differentiable in logits. Where no gradients are computed, targets may be kIgnoredTarget: such a token adds
// nothing, whatever its logits are. Evaluation pads its last batch with them, since a step's shapes are fixed.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace legoai::parallel {

inline constexpr int64_t kIgnoredTarget = -100;

using LossFunction = std::function<at::Tensor(const at::Tensor& logits, const at::Tensor& targets)>;

}  // namespace legoai::parallel

// The loss of a training step, the same with and without a pipeline (seed 000 §3.2.4, "shared loss_fn").
//
// logits [batch, seq, vocab], or [batch, seq, vocab / tp] with loss parallel, in the compute dtype; targets int64 [batch, seq].
// Gives fp32 []: the sum over the tokens times a scale fixed at construction, so that losses and gradients of microbatches and
// ranks just add up. Differentiable in logits.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace legoai::parallel {

using LossFunction = std::function<at::Tensor(const at::Tensor& logits, const at::Tensor& targets)>;

}  // namespace legoai::parallel

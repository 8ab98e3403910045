// Attention whose keys and values go round the ranks of context parallelism (Liu et al. 2023): inside of context_parallel.h.
// Below autograd, on the dispatching thread. Shapes as of ContextAttention.
#pragma once

#include <ATen/core/Tensor.h>

#include "worker/parallel/context_blocks.h"
#include "worker/parallel/context_parallel.h"

namespace legoai::parallel {

Attended RingForward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const ContextPlace& place);

// `attended` is what RingForward gave.
AttentionGradients RingBackward(const at::Tensor& gradient, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                const Attended& attended, const ContextPlace& place);

}  // namespace legoai::parallel

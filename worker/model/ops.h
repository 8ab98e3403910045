// Dispatcher operators (library `lego`) for models, where ATen has none that behaves the same on CPU and GPU, and their
// differentiable forms:
//
//   lego::rms_norm(Tensor x, Tensor weight, float eps) -> (Tensor out, Tensor rstd)
//   lego::rms_norm_backward(Tensor grad, Tensor x, Tensor weight, Tensor rstd) -> (Tensor grad_x, Tensor grad_weight)
//   lego::rms_norm_backward.weight(Tensor grad, Tensor x, Tensor rstd) -> Tensor grad_weight
//   lego::attention(Tensor q, Tensor k, Tensor v, bool causal, float scale) -> (Tensor out, Tensor lse)
//   lego::attention_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, bool causal, float scale)
//       -> (Tensor grad_q, Tensor grad_k, Tensor grad_v)
//   lego::attention.window(Tensor q, Tensor k, Tensor v, int window, float scale) -> (Tensor out, Tensor lse)
//   lego::attention_backward.window(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, int window, float scale)
//       -> (Tensor grad_q, Tensor grad_k, Tensor grad_v)
//   lego::dropout(Tensor x, Tensor rng, Tensor samples, int site, float p, int first, int[] runs) -> Tensor
//
// Each has a CPU, a CUDA (dropout's is in the CUDA plugin) and a Meta kernel; the CUDA kernels of `window` refuse by name. Meta gives exactly the CPU's sizes and strides.
// CUDA gives the same except for lse, which only attention_backward reads: dense there, and padded to 32 tokens for fp32
// attention (simulator/memory/memory_simulator.h counts that). The operators have no autograd kernel; the functions below do.
// Errors: c10::Error for sizes or dtypes that do not fit. Results of norms and dropout do not depend on the number of threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "worker/model/philox.h"

namespace legoai::model {

// x / sqrt(mean(x^2) + eps) * (added + weight) over the last dimension. x [..., dim] contiguous, weight [dim], both of one dtype:
// fp32 or bf16. Sums in fp32. Saves x and rstd (fp32 [...]). `added` + weight is summed in the weight's type, again in backward.
at::Tensor RmsNormFunction(const at::Tensor& x, const at::Tensor& weight, double eps, double added = 0);

// softmax(scale * q k^T) v without materializing the product. q [batch, heads, seq, head_dim]; k, v [batch, kv_heads, seq,
// head_dim] with kv_heads a divisor of heads (query head h reads kv head h / (heads / kv_heads)); last stride 1. Result
// [batch, heads, seq, head_dim], on CPU with the memory layout of q. Saves q, k, v, the result and lse (fp32). On CUDA:
// FlashAttention for bf16 (head_dim a multiple of 8, at most 256), ATen's memory-efficient attention for fp32 (head_dim a
// multiple of 4).
at::Tensor AttentionFunction(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal, double scale);

// The same where each position attends to the last `window` positions only, itself included (Mistral 7B, Jiang et al. 2023). seq
// of k is that of q, window at least 1. For a window as long as the sequence AttentionFunction is the same and cheaper.
at::Tensor WindowedAttentionFunction(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t window, double scale);

// Zeroes elements with probability p and scales the others by 1 / (1 - p). Dimension 0 of x (contiguous; fp32 or bf16) is the
// batch, samples int64 [batch] the global sample index of each row, rng int64 [2] seed and step. Whether an element is dropped
// depends only on (seed, step, sample, site, its position within the sample): it is the same in every layout, for every split
// into microbatches, and when recomputed. `runs`: the positions of x if it holds a part of each sample; the operator takes its
// first number, and none or the other four. Backward is the same operator on the gradient. Limits: 2^34 elements per sample, 2^32
// steps, 2^48 samples, 2^16 sites.
at::Tensor DropoutFunction(const at::Tensor& x, const at::Tensor& rng, const at::Tensor& samples, int64_t site, double p,
                           const DropoutRuns& runs = {});

}  // namespace legoai::model

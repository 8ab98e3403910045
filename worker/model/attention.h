// Self-attention as every family here has it: projections to queries, keys and values, a mixing of values, a projection back. How
// the values are mixed is a function of its own: context parallelism and a cache of keys and values put another one in its place.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "worker/model/module.h"

namespace legoai::model {

// q [batch, heads, seq, head_dim]; k, v [batch, kv_heads, seq, head_dim]; result like q. Causal.
using AttentionCore = std::function<at::Tensor(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v)>;

// AttentionFunction (ops.h), scaled by 1 / sqrt(head_dim).
at::Tensor LocalAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

class SelfAttention : public Module {
 public:
  // Before the first forward.
  void ReplaceCore(AttentionCore core) { core_ = std::move(core); }

 protected:
  SelfAttention(int64_t head_dim, AttentionCore core) : head_dim_(head_dim), core_(std::move(core)) {}

  // [batch, seq, width] -> [batch, seq, heads, head_dim]
  at::Tensor Heads(const at::Tensor& projected) const {
    return projected.view({projected.size(0), projected.size(1), -1, head_dim_});
  }
  // q, k, v [batch, heads, seq, head_dim] -> [batch, seq, heads * head_dim]
  at::Tensor Mix(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const {
    return core_(q, k, v).transpose(1, 2).reshape({q.size(0), q.size(2), -1});
  }
  int64_t head_dim() const { return head_dim_; }

 private:
  int64_t head_dim_;
  AttentionCore core_;
};

}  // namespace legoai::model

// The layers that model families are made of. Weights are [out, in] as in Hugging Face's nn.Linear.
//
// All read Parameter::value when they run, and take their sizes from it: tensor parallelism may have cut it. The weights are
// held for backward without a saved-tensor hook or version check, since FSDP frees and refills their storage in between.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "worker/model/module.h"

namespace legoai::model {

// x [..., in] -> x * weight^T + bias [..., out]. `weight` of shape [out, in], `bias` [out] or undefined. Differentiable; the
// gradients of input and weight are computed apart from each other.
at::Tensor LinearFunction(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

// tokens int64 [batch, seq] -> [batch, seq, dim], times `scale` (rounded to the type of the weight, as transformers does).
class Embedding : public Module {
 public:
  Embedding(int64_t rows, int64_t dim, InitRule init, double scale = 1);
  Parameter* weight() const { return weight_; }

 protected:
  at::Tensor Forward(const at::Tensor& input) override;

 private:
  Parameter* weight_;  // [rows, dim]
  double scale_;
};

class Linear : public Module {
 public:
  Linear(int64_t in, int64_t out, bool bias, InitRule init);
  // Uses a weight that another module owns, which must outlive this one.
  explicit Linear(Parameter* tied_weight) : weight_(tied_weight), tied_(true) {}
  Parameter* weight() const { return weight_; }
  Parameter* bias() const { return bias_; }  // null if there is none
  bool tied() const { return tied_; }
  // Takes the place of the owner of a tied weight, which goes: a parameter of the same name, shape and initial values.
  void OwnWeight();
  // Forward does not add the bias: whoever cuts the weight by its inputs adds it once, to the sum of the parts.
  void LeaveBiasOut() { adds_bias_ = false; }

 protected:
  at::Tensor Forward(const at::Tensor& input) override;

 private:
  Parameter* weight_;
  Parameter* bias_ = nullptr;
  bool tied_ = false, adds_bias_ = true;
};

// x / sqrt(mean(x^2) + eps) * weight over the last dimension, in fp32 inside (operator lego::rms_norm). With kOnePlusWeight
// 1 + weight, summed in the weight's type, takes the weight's place, and the weight starts from zeros.
class RmsNorm : public Module {
 public:
  enum class Factor { kWeight, kOnePlusWeight };
  RmsNorm(int64_t dim, double eps, Factor factor = Factor::kWeight);

 protected:
  at::Tensor Forward(const at::Tensor& input) override;

 private:
  Parameter* weight_;
  double eps_;
  Factor factor_;
};

class LayerNorm : public Module {
 public:
  LayerNorm(int64_t dim, double eps);

 protected:
  at::Tensor Forward(const at::Tensor& input) override;

 private:
  Parameter* weight_;
  Parameter* bias_;
  double eps_;
};

// The end of a model: final norm, then logits. Children "norm" and "lm_head"; the builder gives them their full paths.
class OutputHead : public Module {
 public:
  OutputHead(std::unique_ptr<Module> norm, std::unique_ptr<Linear> lm_head);
  Linear* lm_head() const { return lm_head_; }

 protected:
  at::Tensor Forward(const at::Tensor& input) override;

 private:
  Module* norm_;
  Linear* lm_head_;
};

// q [batch, heads, seq, head_dim]; k, v [batch, kv_heads, seq, head_dim]; result like q. Causal. Under context parallelism `seq`
// is this rank's tokens.
using AttentionCore = std::function<at::Tensor(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v)>;

// Attention of ops.h, scaled by 1 / sqrt(head_dim). `window`: positions that one attends to, itself included; 0: all before it.
// A window as long as the sequence is none.
at::Tensor LocalAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t window = 0);

// Self-attention as every family here has it: projections to queries, keys and values, a mixing of values, a projection back. How
// the values are mixed is a function of its own: context parallelism and a cache of keys and values put another one in its place.
class SelfAttention : public Module {
 public:
  // Before the first forward.
  void ReplaceCore(AttentionCore core) { core_ = std::move(core); }
  const AttentionCore& core() const { return core_; }

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

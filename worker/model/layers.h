// The layers of the model families. Weights are [out, in] as in nn.Linear.
//
// All read Parameter::value when they run, and take their sizes from it, because tensor parallelism may have sharded it. Weights
// are kept for backward without saved-tensor hooks or version checks, because FSDP frees and refills their storage in between.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "worker/model/module.h"

namespace legoai::model {

// x [..., in] -> x * weight^T + bias [..., out]. `weight` of shape [out, in], `bias` [out] or undefined. Differentiable; the
// gradients of input and weight are computed separately.
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
  // Call it before the owner of a tied weight is destroyed: declares a parameter of the same name, shape and initial values.
  void OwnWeight();
  // Forward does not add the bias: row-wise tensor parallelism adds it once, to the sum of the parts.
  void LeaveBiasOut() { adds_bias_ = false; }

 protected:
  at::Tensor Forward(const at::Tensor& input) override;

 private:
  Parameter* weight_;
  Parameter* bias_ = nullptr;
  bool tied_ = false, adds_bias_ = true;
};

// x / sqrt(mean(x^2) + eps) * weight over the last dimension, computed in fp32 (operator lego::rms_norm). With kOnePlusWeight the
// factor is 1 + weight, summed in the weight's type, and the weight starts at zero.
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

// The end of a model: final norm, then logits; with a `cap` above 0 cap * tanh(logits / cap). Children "norm" and "lm_head"; the
// builder sets their full paths.
class OutputHead : public Module {
 public:
  OutputHead(std::unique_ptr<Module> norm, std::unique_ptr<Linear> lm_head, double cap = 0);
  Linear* lm_head() const { return lm_head_; }

 protected:
  at::Tensor Forward(const at::Tensor& input) override;

 private:
  Module* norm_;
  Linear* lm_head_;
  double cap_;
};

// q [batch, heads, seq, head_dim]; k, v [batch, kv_heads, seq, head_dim]; result like q. Causal. Under context parallelism `seq`
// is this rank's tokens.
using AttentionCore = std::function<at::Tensor(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v)>;

// Attention of ops.h, scaled by 1 / sqrt(head_dim). `window`: how many positions each one attends to, itself included; 0: all
// preceding ones. A window as long as the sequence has no effect.
at::Tensor LocalAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t window = 0);

// [seq, seq]: 0 where a query (row) attends to a key, -inf elsewhere: to itself and all before it, or the `window` last of these.
at::Tensor CausalMask(int64_t seq, int64_t window, const at::TensorOptions& options);

// Of such a mask, or of some queries' rows of it, what `queries` queries and `seq` keys need. Error: c10::Error if it has less.
at::Tensor MaskOf(const at::Tensor& mask, int64_t queries, int64_t seq);

// Attention with scores cap * tanh(scale * q k^T / cap) + mask (Gemma 2, Gemma Team 2024), by operators of which each score is a
// result, as in transformers: memory grows with queries x keys. q [batch, heads, queries, head_dim]; k, v [batch, kv_heads, seq,
// head_dim]; mask [queries, seq], undefined: all keys are seen; result like q.
at::Tensor CappedAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& mask, double scale,
                           double cap);

// Self-attention of all families here: projections to queries, keys and values, the attention core, an output projection. The
// core is a replaceable function: context parallelism and the key-value cache substitute their own.
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

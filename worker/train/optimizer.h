// What makes new masters of old ones and their gradients: AdamW, Adam, SGD and Muon (muon.h). Everything that changes from step
// to step is a tensor: learning rate and step count are 0-dimensional inputs, state exists before the first step. Gradient
// clipping by the global norm over all meshes.
//
// What is updated is Parameter::master itself, in fp32 or bf16 (rounding.h), or with optimizer.master_weights a tensor in fp32
// that the optimizer keeps beside it, and of which Parameter::master is the rounding (Micikevicius et al. 2018). Its other state
// is of the same type.
//
// Not thread-safe. Formulas: Adam (Kingma and Ba 2015), where weight decay adds to the gradient; AdamW, where it is decoupled
// (Loshchilov and Hutter 2019); SGD with momentum (Sutskever et al. 2013) without dampening. As torch.optim's with fused=True.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proto/legoai/v1/recipe.pb.h"
#include "worker/comm/runtime.h"
#include "worker/model/language_model.h"
#include "worker/model/module.h"
#include "worker/train/loss_scale.h"
#include "worker/train/rounding.h"

namespace legoai::train {

// What one update depends on besides the gradients.
struct UpdateFacts {
  at::Tensor learning_rate;  // fp32 []
  Rounding rounding;
  at::Tensor skip;  // fp32 []: 1 changes nothing, 0 updates; undefined: updates
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // The norm of all gradients of the model over all meshes, fp32 []; the same on every rank.
  at::Tensor GradientNorm(comm::Runtime& runtime) const;
  // Scales gradients so that their norm is at most max_norm. Reads no host value: the factor is clamped to 1.
  void Clip(const at::Tensor& norm, double max_norm);
  // From now on gradients are those of a scaled loss: call Unscale() before anything else that is done to them.
  void SetLossScale(std::unique_ptr<LossScale> loss_scale) { loss_scale_ = std::move(loss_scale); }
  const LossScale* loss_scale() const { return loss_scale_.get(); }  // null: the loss is not scaled
  void Unscale();
  // Parameter::grad -> Parameter::master. `learning_rate`: fp32 []; `rng`: int64 [2], seed and step; `norm`: GradientNorm(), read
  // only if the loss is scaled: if it is not finite, nothing changes but the scale.
  void Update(const at::Tensor& learning_rate, const at::Tensor& rng, const at::Tensor& norm);

  const std::vector<model::Parameter*>& parameters() const { return parameters_; }
  // What it updates, by parameter.
  const std::vector<HeldTensor>& masters() const { return masters_; }
  // Rounds masters that are apart from the parameters to these. Update() does so itself: call it when masters were filled.
  void RoundMasters();
  const std::vector<HeldTensor>& state() const { return state_; }  // what it keeps from step to step besides
  const at::Tensor& step() const { return step_; }  // updates so far, fp32 []
  // Its state that belongs to no parameter, by checkpoint name ("optimizer.step"): fp32 [] each.
  std::vector<std::pair<std::string, at::Tensor>> Counters() const;

 protected:
  // `parameters` are not owned; there is at least one.
  Optimizer(std::vector<model::Parameter*> parameters, const v1::OptimizerSection& section);
  const v1::OptimizerSection& section() const { return section_; }
  // Zeros of the shape and type of a master, which state() names.
  HeldTensor AddState(const char* name, const HeldTensor& master);
  virtual void UpdateParameters(const UpdateFacts& facts) = 0;

 private:
  const v1::OptimizerSection section_;
  std::vector<model::Parameter*> parameters_;
  std::vector<HeldTensor> masters_, state_;
  std::unique_ptr<LossScale> loss_scale_;
  at::Tensor step_;
};

// Masters that a fused operator updates: all at once, or, where they are held in bf16, one after the other, so that there are
// fp32 copies of one at a time.
class FusedGroup {
 public:
  using Tensors = std::vector<at::Tensor>;
  // In fp32, in the order in which they were added; state[k]: the k-th that is kept of each.
  using Operator = std::function<void(const Tensors& masters, const Tensors& gradients, const std::vector<Tensors>& state)>;

  // `state`: what is kept of it, as much for each. Masters of which this rank holds nothing are left out.
  void Add(const HeldTensor& master, std::vector<HeldTensor> state);
  void Update(const Operator& update, const Rounding& rounding) const;

 private:
  using Member = std::vector<HeldTensor>;  // the master, then what is kept of it
  std::vector<Member> members_;
};

// By AdamW, or Adam if that is the section's name; the state is exp_avg and exp_avg_sq. `step` counts this update.
void UpdateByAdam(const FusedGroup& group, const v1::OptimizerSection& section, const at::Tensor& step, const UpdateFacts& facts);

// The matrices inside blocks: what Muon is for, neither embeddings nor the head.
std::set<const model::Parameter*> HiddenMatrices(model::LanguageModel& model);

// Allocates the state, and masters that are apart as copies of the parameters. `section` is checked (core/recipe/optimizer.h).
// `hidden`: HiddenMatrices() of the parameters. Uses the current comm::Runtime.
std::unique_ptr<Optimizer> MakeOptimizer(std::vector<model::Parameter*> parameters,
                                         const std::set<const model::Parameter*>& hidden, const v1::OptimizerSection& section);

}  // namespace legoai::train

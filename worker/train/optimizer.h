// What makes new masters of old ones and their gradients: AdamW, Adam, SGD and Muon (muon.h). Everything that changes from step
// to step is a tensor: learning rate and step count are 0-dimensional inputs, state exists before the first step. Gradient
// clipping by the global norm over all meshes.
//
// Not thread-safe. Formulas: Adam (Kingma and Ba 2015), where weight decay adds to the gradient; AdamW, where it is decoupled
// (Loshchilov and Hutter 2019); SGD with momentum (Sutskever et al. 2013) without dampening. As torch.optim's with fused=True.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "proto/legoai/v1/recipe.pb.h"
#include "worker/comm/runtime.h"
#include "worker/model/language_model.h"
#include "worker/model/module.h"

namespace legoai::train {

// What an optimizer keeps of a parameter from step to step.
struct OptimizerState {
  const char* name;  // as torch.optim has it: "exp_avg", "exp_avg_sq", "momentum_buffer"
  model::Parameter* parameter;
  at::Tensor tensor;  // fp32, shape of the master
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // The norm of all gradients of the model over all meshes, fp32 []; the same on every rank.
  at::Tensor GradientNorm(comm::Runtime& runtime) const;
  // Scales gradients so that their norm is at most max_norm. No host value: a factor clamped to 1.
  void Clip(const at::Tensor& norm, double max_norm);
  // Parameter::grad -> Parameter::master. `learning_rate`: fp32 [].
  void Update(const at::Tensor& learning_rate);

  const std::vector<model::Parameter*>& parameters() const { return parameters_; }
  const std::vector<OptimizerState>& state() const { return state_; }
  const at::Tensor& step() const { return step_; }  // updates so far, fp32 []

 protected:
  // `parameters` are not owned; there is at least one.
  explicit Optimizer(std::vector<model::Parameter*> parameters);
  // Zeros of the parameter's shape, which state() names.
  at::Tensor AddState(const char* name, model::Parameter* parameter);
  virtual void UpdateParameters(const at::Tensor& learning_rate) = 0;

 private:
  std::vector<model::Parameter*> parameters_;
  std::vector<OptimizerState> state_;
  at::Tensor step_;
};

// The parameters that AdamW or Adam updates, in one fused operator.
class AdamGroup {
 public:
  AdamGroup() = default;
  // Parameters of which this rank holds nothing are left out.
  void Add(model::Parameter* parameter, at::Tensor exp_avg, at::Tensor exp_avg_sq);
  // `section`: betas, eps and weight decay; `step` counts this update.
  void Update(const v1::OptimizerSection& section, const at::Tensor& learning_rate, const at::Tensor& step);

 private:
  std::vector<model::Parameter*> parameters_;
  std::vector<at::Tensor> exp_avg_, exp_avg_sq_;
};

// The matrices inside blocks: what Muon is for, neither embeddings nor the head.
std::set<const model::Parameter*> HiddenMatrices(model::LanguageModel& model);

// Allocates the state. `section` is checked (core/recipe/optimizer.h). `hidden`: of the parameters, HiddenMatrices(). Works on
// the comm::Runtime that is current now.
std::unique_ptr<Optimizer> MakeOptimizer(std::vector<model::Parameter*> parameters,
                                         const std::set<const model::Parameter*>& hidden, const v1::OptimizerSection& section);

}  // namespace legoai::train

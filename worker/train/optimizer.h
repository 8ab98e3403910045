// Adam and AdamW on the masters, fused, with everything that changes from step to step as tensors: learning rate and step count
// are 0-dimensional inputs, moments exist before the first step. Gradient clipping by the global norm over all meshes.
//
// Not thread-safe. Formulas: Adam (Kingma and Ba 2015), where weight decay adds to the gradient; AdamW, where it is decoupled
// (Loshchilov and Hutter 2019); as torch.optim.Adam and AdamW with fused=True.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "proto/legoai/v1/recipe.pb.h"
#include "worker/comm/runtime.h"
#include "worker/model/module.h"

namespace legoai::train {

struct OptimizerState {
  model::Parameter* parameter;
  at::Tensor exp_avg, exp_avg_sq;  // fp32, shape of the master
};

class Adam {
 public:
  // Allocates the moments. `section` is checked: its name is "Adam" or "AdamW". `parameters` are not owned; there is at least one.
  Adam(std::vector<model::Parameter*> parameters, const v1::OptimizerSection& section);

  // The norm of all gradients of the model over all meshes, fp32 []; the same on every rank.
  at::Tensor GradientNorm(comm::Runtime& runtime) const;
  // Scales gradients so that their norm is at most max_norm. No host value: a factor clamped to 1.
  void Clip(const at::Tensor& norm, double max_norm);
  // Parameter::grad -> Parameter::master.
  void Update(const at::Tensor& learning_rate);

  std::vector<OptimizerState>& state() { return state_; }
  const at::Tensor& step() const { return step_; }  // updates so far, fp32 []

 private:
  v1::OptimizerSection section_;
  std::vector<OptimizerState> state_;
  at::Tensor step_;
};

}  // namespace legoai::train

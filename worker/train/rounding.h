// Updates of what is held in bf16: they are computed in fp32, and what comes out is rounded once, to the nearest, or up or down
// at random, right in the mean (worker/model/stochastic_rounding.h). To the nearest, an update below about 1/256 of a number is
// lost. What is held in fp32 is updated in place, and nothing is copied or rounded.
//
// Thread-safety: a value; pure but for the tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "worker/model/module.h"

namespace legoai::train {

// A tensor of the training's state: what an optimizer updates of a parameter, or what it keeps for that.
struct HeldTensor {
  const char* name;  // as torch.optim has it: "exp_avg"; empty: what is updated
  model::Parameter* parameter;
  at::Tensor tensor;  // of the shape of Parameter::master
};

// In fp32: the tensor itself, or a copy.
at::Tensor Widened(const at::Tensor& tensor);

class Rounding {
 public:
  // `rng`: int64 [2], seed and step; read if `stochastic`.
  Rounding(bool stochastic, at::Tensor rng) : stochastic_(stochastic), rng_(std::move(rng)) {}

  // Puts an update of Widened(held.tensor) back, if that was a copy.
  void Store(const HeldTensor& held, const at::Tensor& wide) const;

 private:
  bool stochastic_;
  at::Tensor rng_;
};

}  // namespace legoai::train

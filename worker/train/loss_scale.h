// Dynamic loss scaling (Micikevicius et al. 2018). Many gradients of float16 compute are below the least number of float16 unless
// the loss, and so every gradient, is multiplied by a scale. A step whose gradient norm is not finite changes nothing and halves
// the scale; after a number of good steps in a row the scale doubles. As torch.amp.GradScaler.
//
// Scale and count are tensors, so a step reads no host value. They are the same on every rank, since whether a step is good
// follows from the norm of all gradients over all meshes. The scale multiplies the mean loss of the whole global batch, so it
// does not depend on the layout. Not thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "absl/status/status.h"
#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::train {

class LossScale {
 public:
  // Begins at training.initial_loss_scale.
  LossScale(const v1::Training& training, c10::Device device);

  const at::Tensor& scale() const { return scale_; }            // fp32 []
  const at::Tensor& good_steps() const { return good_steps_; }  // fp32 []: in a row, since the scale last changed
  // 1 if the norm, fp32 [], is not finite, else 0: fp32 [].
  static at::Tensor IsBad(const at::Tensor& norm);
  // Call it after each step. `is_bad`: IsBad() of its gradient norm.
  void Update(const at::Tensor& is_bad);

 private:
  const double growth_interval_;
  at::Tensor scale_, good_steps_;
};

// Whether training can go on after a step that was skipped: OutOfRange, a FieldError for training.mixed_precision_param, if
// gradients are not finite even at a scale below 1, or if the loss itself is not finite, which its scale has no part in.
absl::Status CheckSkippedStep(double loss, double scale, int64_t step);

}  // namespace legoai::train

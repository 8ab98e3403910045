#include "worker/train/loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>

namespace legoai::train {

parallel::LossFunction MakeCrossEntropy(double scale) {
  return [scale](const at::Tensor& logits, const at::Tensor& targets) {
    const at::Tensor flat = logits.to(at::kFloat).reshape({-1, logits.size(-1)});
    return at::cross_entropy_loss(flat, targets.reshape({-1}), /*weight=*/{}, at::Reduction::Sum, parallel::kIgnoredTarget) *
           scale;
  };
}

}  // namespace legoai::train

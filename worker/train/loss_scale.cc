#include "worker/train/loss_scale.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/trace/annotation.h"
#include "proto/errors.h"

namespace legoai::train {
namespace {

// An infinite number less itself is NaN. (at::isfinite takes aten::abs, which has no shape rule for captures.)
at::Tensor IsFinite(const at::Tensor& number) { return (number - number).eq(0); }

}  // namespace

LossScale::LossScale(const v1::Training& training, c10::Device device)
    : growth_interval_(static_cast<double>(training.loss_scale_growth_interval())) {
  graph::CategoryScope category(graph::Category::kOptimizerState);
  const auto options = at::TensorOptions().device(device).dtype(at::kFloat);
  scale_ = at::full({}, training.initial_loss_scale(), options);
  good_steps_ = at::zeros({}, options);
}

at::Tensor LossScale::IsBad(const at::Tensor& norm) { return IsFinite(norm).eq(0).to(at::kFloat); }

void LossScale::Update(const at::Tensor& is_bad) {
  good_steps_.add_(1).mul_(at::rsub(is_bad, 1));
  const at::Tensor grows = good_steps_.ge(growth_interval_).to(at::kFloat);
  good_steps_.mul_(at::rsub(grows, 1));
  const at::Tensor next = scale_ * (at::rsub(is_bad * 0.5, 1) + grows);
  scale_.copy_(at::where(IsFinite(next), next, scale_));
}

absl::Status CheckSkippedStep(double loss, double scale, int64_t step) {
  if (std::isfinite(loss) && scale >= 1) return absl::OkStatus();
  const std::string what =
      std::isfinite(loss) ? absl::StrCat("after step ", step, " the loss scale is ", scale, ", and gradients are still infinite")
                          : absl::StrCat("in step ", step, " the loss is ", loss, ": activations exceed float16's 65504");
  return FieldError("training.mixed_precision_param", "float16",
                    absl::StrCat(what, ": use \"bfloat16\", or begin anew (--fresh) with a lower optimizer.lr"),
                    absl::StatusCode::kOutOfRange);
}

}  // namespace legoai::train

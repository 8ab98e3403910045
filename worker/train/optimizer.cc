#include "worker/train/optimizer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <utility>

#include "core/trace/annotation.h"
#include "worker/comm/ops.h"

namespace legoai::train {
namespace {

using mesh::Dim;

constexpr double kNormEpsilon = 1e-6;  // as torch.nn.utils.clip_grad_norm_

// Squared norm of some gradients, fp32 []; zero for none (a rank may hold empty shards only).
at::Tensor SquaredNorm(const std::vector<at::Tensor>& gradients, c10::Device device) {
  if (gradients.empty()) return at::zeros({}, at::TensorOptions().device(device).dtype(at::kFloat));
  return at::stack(at::_foreach_norm(gradients, 2)).square().sum();
}

}  // namespace

Adam::Adam(std::vector<model::Parameter*> parameters, const v1::OptimizerSection& section) : section_(section) {
  graph::CategoryScope category(graph::Category::kOptimizerState);
  for (model::Parameter* parameter : parameters) {
    auto options = parameter->master.options();
    state_.push_back({parameter, at::zeros(parameter->master.sizes(), options), at::zeros(parameter->master.sizes(), options)});
  }
  step_ = at::zeros({}, parameters.front()->master.options());
}

at::Tensor Adam::GradientNorm(comm::Runtime& runtime) const {
  // Tensors cut by the same mesh dimensions are summed together; each sum then goes over its own dimensions, so that what is
  // replicated counts once. The pipeline is outermost: every stage holds other parameters, but for a tied
  // embedding.
  const int64_t tp = runtime.GroupId(Dim::kTp), shard = runtime.GroupId(Dim::kDpShardCp), pp = runtime.GroupId(Dim::kPp);
  std::array<std::array<std::vector<at::Tensor>, 2>, 2> gradients;  // [cut by tp][cut by dp_shard_cp]
  for (const auto& state : state_) {
    const auto& spec = state.parameter->spec;
    const bool is_copy = (spec.copies_over_tp > 1 && runtime.GroupRank(tp) % spec.copies_over_tp != 0) ||
                         (spec.on_both_ends && runtime.GroupRank(runtime.GroupId(Dim::kPpEnds)) != 0);
    if (spec.Elements() == 0 || is_copy) continue;
    gradients[spec.IsShardedOver(Dim::kTp)][spec.IsShardedOver(Dim::kDpShardCp)].push_back(state.parameter->grad);
  }
  const c10::Device device = state_.front().parameter->master.device();
  auto over_tp = [&](bool sharded) {
    at::Tensor sum = SquaredNorm(gradients[0][sharded], device);
    if (runtime.GroupSize(tp) == 1) return sum;
    at::Tensor cut = SquaredNorm(gradients[1][sharded], device);
    comm::AllReduce(cut, tp);
    return sum.add_(cut);
  };
  at::Tensor total = over_tp(false);
  if (runtime.GroupSize(shard) > 1) {
    at::Tensor cut = over_tp(true);
    comm::AllReduce(cut, shard);
    total.add_(cut);
  }
  if (runtime.GroupSize(pp) > 1) comm::AllReduce(total, pp);
  return total.sqrt();
}

void Adam::Clip(const at::Tensor& norm, double max_norm) {
  const at::Tensor factor = at::clamp(at::reciprocal(norm + kNormEpsilon) * max_norm, std::nullopt, at::Scalar(1.0));
  std::vector<at::Tensor> gradients;
  for (const auto& state : state_) gradients.push_back(state.parameter->grad);
  at::_foreach_mul_(gradients, factor);
}

void Adam::Update(const at::Tensor& learning_rate) {
  std::vector<at::Tensor> parameters, gradients, exp_avg, exp_avg_sq, steps;
  step_.add_(1);
  for (auto& state : state_) {
    if (state.parameter->spec.Elements() == 0) continue;
    parameters.push_back(state.parameter->master);
    gradients.push_back(state.parameter->grad);
    exp_avg.push_back(state.exp_avg);
    exp_avg_sq.push_back(state.exp_avg_sq);
    steps.push_back(step_);
  }
  const auto fused = [&](auto update) {
    update(parameters, gradients, exp_avg, exp_avg_sq, {}, steps, learning_rate, section_.beta1(), section_.beta2(),
           section_.weight_decay(), section_.eps(), /*amsgrad=*/false, /*maximize=*/false, std::nullopt, std::nullopt);
  };
  section_.name() == "Adam" ? fused(at::_ops::_fused_adam__tensor_lr::call) : fused(at::_ops::_fused_adamw__tensor_lr::call);
}

}  // namespace legoai::train

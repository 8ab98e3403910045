#include "worker/train/muon.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/rsub.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/recipe/optimizer.h"

namespace legoai::train {
namespace {

double RateFactor(const std::vector<int64_t>& shape, const v1::OptimizerSection& section) {
  const double rows = static_cast<double>(shape[0]), columns = static_cast<double>(shape[1]);
  const bool original = section.muon_adjust_lr_fn() == "original";
  return original ? std::sqrt(std::max(1.0, rows / columns)) : 0.2 * std::sqrt(std::max(rows, columns));
}

}  // namespace

Muon::Muon(std::vector<model::Parameter*> parameters, const std::set<const model::Parameter*>& hidden,
           const v1::OptimizerSection& section)
    : Optimizer(std::move(parameters)), section_(section) {
  for (model::Parameter* parameter : this->parameters()) {
    if (!hidden.count(parameter)) {
      others_.Add(parameter, AddState("exp_avg", parameter), AddState("exp_avg_sq", parameter));
      continue;
    }
    const auto cuts = CutsOf(*parameter);
    auto kind = std::find_if(kinds_.begin(), kinds_.end(), [&](const Kind& one) {
      return one.cuts == cuts && one.matrices.front().parameter->spec.global_shape == parameter->spec.global_shape;
    });
    if (kind == kinds_.end()) {
      kind = kinds_.insert(kind, {cuts, RateFactor(parameter->spec.global_shape, section), {}});
    }
    kind->matrices.push_back({parameter, AddState("momentum_buffer", parameter)});
  }
}

// The buffer's new value, or with Nesterov's momentum what is between it and the gradient.
at::Tensor Muon::MomentumOf(Matrix& matrix) {
  const double momentum = parallel::MomentumOf(section_);
  const at::Tensor &gradient = matrix.parameter->grad, &buffer = matrix.momentum_buffer;
  buffer.lerp_(gradient, 1 - momentum);
  return parallel::NesterovOf(section_) ? at::lerp(gradient, buffer, momentum) : buffer;
}

// `rate`: the learning rate of matrices; `kept`: what weight decay leaves; both fp32 [].
void Muon::UpdateTogether(const Kind& kind, std::span<Matrix> matrices, const at::Tensor& rate, const at::Tensor& kept) {
  std::vector<at::Tensor> updates;
  for (Matrix& matrix : matrices) updates.push_back(MomentumOf(matrix).to(at::kBFloat16));
  updates = Orthogonalize(std::move(updates), kind.cuts, section_.muon_ns_steps());
  for (size_t i = 0; i < matrices.size(); ++i) {
    const at::Tensor& master = matrices[i].parameter->master;
    if (master.numel() == 0) continue;
    if (section_.weight_decay() > 0) master.mul_(kept);
    master.addcmul_(updates[i].to(master.scalar_type()), rate, -kind.rate_factor);
  }
}

void Muon::UpdateParameters(const at::Tensor& learning_rate) {
  const at::Tensor rate = learning_rate * (parallel::MuonLrOf(section_) / section_.lr());
  const at::Tensor kept = at::rsub(rate * section_.weight_decay(), 1);
  for (Kind& kind : kinds_) {
    const size_t at_once = MatricesAtOnce(kind.cuts);
    const std::span<Matrix> all(kind.matrices);
    for (size_t i = 0; i < all.size(); i += at_once) {
      UpdateTogether(kind, all.subspan(i, std::min(at_once, all.size() - i)), rate, kept);
    }
  }
  others_.Update(section_, learning_rate, step());
}

}  // namespace legoai::train

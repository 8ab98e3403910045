#include "worker/train/muon.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/where.h>

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
    : Optimizer(std::move(parameters), section) {
  for (const HeldTensor& master : masters()) {
    const model::Parameter* const parameter = master.parameter;
    if (!hidden.count(parameter)) {
      const HeldTensor exp_avg = AddState("exp_avg", master);
      others_.Add(master, {exp_avg, AddState("exp_avg_sq", master)});
      continue;
    }
    const auto cuts = CutsOf(*parameter);
    auto kind = std::find_if(kinds_.begin(), kinds_.end(), [&](const Kind& one) {
      return one.cuts == cuts && one.matrices.front().master.parameter->spec.global_shape == parameter->spec.global_shape;
    });
    if (kind == kinds_.end()) {
      kind = kinds_.insert(kind, {cuts, RateFactor(parameter->spec.global_shape, section), {}});
    }
    kind->matrices.push_back({master, AddState("momentum_buffer", master)});
  }
}

// The buffer's new value, or with Nesterov's momentum what is between it and the gradient. In a step that is skipped the buffer
// stands for the gradient, so that it stays as it is.
at::Tensor Muon::MomentumOf(const Matrix& matrix, const UpdateFacts& facts) const {
  const double momentum = parallel::MomentumOf(section());
  const at::Tensor buffer = Widened(matrix.momentum_buffer.tensor);
  at::Tensor gradient = matrix.master.parameter->grad;
  if (facts.skip.defined()) gradient = at::where(facts.skip.to(at::kBool), buffer, gradient);
  buffer.lerp_(gradient, 1 - momentum);
  facts.rounding.Store(matrix.momentum_buffer, buffer);
  return parallel::NesterovOf(section()) ? at::lerp(gradient, buffer, momentum) : buffer;
}

// `rate`: the learning rate of matrices; `kept`: what weight decay leaves; both fp32 [].
void Muon::UpdateTogether(const Kind& kind, std::span<const Matrix> matrices, const at::Tensor& rate, const at::Tensor& kept,
                          const UpdateFacts& facts) const {
  std::vector<at::Tensor> updates;
  for (const Matrix& matrix : matrices) updates.push_back(MomentumOf(matrix, facts).to(at::kBFloat16));
  updates = Orthogonalize(std::move(updates), kind.cuts, section().muon_ns_steps());
  for (size_t i = 0; i < matrices.size(); ++i) {
    const HeldTensor& held = matrices[i].master;
    if (held.tensor.numel() == 0) continue;
    const at::Tensor master = Widened(held.tensor);
    if (section().weight_decay() > 0) master.mul_(kept);
    master.addcmul_(updates[i].to(at::kFloat), rate, -kind.rate_factor);
    facts.rounding.Store(held, master);
  }
}

void Muon::UpdateParameters(const UpdateFacts& facts) {
  at::Tensor rate = facts.learning_rate * (parallel::MuonLrOf(section()) / section().lr());
  if (facts.skip.defined()) rate = rate * at::rsub(facts.skip, 1);
  const at::Tensor kept = at::rsub(rate * section().weight_decay(), 1);
  for (const Kind& kind : kinds_) {
    const size_t at_once = MatricesAtOnce(kind.cuts);
    const std::span<const Matrix> all(kind.matrices);
    for (size_t i = 0; i < all.size(); i += at_once) {
      UpdateTogether(kind, all.subspan(i, std::min(at_once, all.size() - i)), rate, kept, facts);
    }
  }
  UpdateByAdam(others_, section(), step(), facts);
}

}  // namespace legoai::train

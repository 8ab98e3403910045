#include "worker/train/optimizer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <optional>
#include <span>
#include <utility>

#include "core/recipe/optimizer.h"
#include "core/trace/annotation.h"
#include "worker/comm/ops.h"
#include "worker/train/muon.h"

namespace legoai::train {
namespace {

using mesh::Dim;

constexpr double kNormEpsilon = 1e-6;  // as torch.nn.utils.clip_grad_norm_

// Squared norm of some gradients, fp32 []; zero for none (a rank may hold empty shards only).
at::Tensor SquaredNorm(const std::vector<at::Tensor>& gradients, c10::Device device) {
  if (gradients.empty()) return at::zeros({}, at::TensorOptions().device(device).dtype(at::kFloat));
  return at::stack(at::_foreach_norm(gradients, 2)).square().sum();
}

std::optional<at::Tensor> IfDefined(const at::Tensor& tensor) { return tensor.defined() ? std::optional(tensor) : std::nullopt; }

class Adam final : public Optimizer {
 public:
  Adam(std::vector<model::Parameter*> parameters, const v1::OptimizerSection& section)
      : Optimizer(std::move(parameters), section) {
    for (const HeldTensor& master : masters()) {
      const HeldTensor exp_avg = AddState("exp_avg", master);
      group_.Add(master, {exp_avg, AddState("exp_avg_sq", master)});
    }
  }

 private:
  void UpdateParameters(const UpdateFacts& facts) override { UpdateByAdam(group_, section(), step(), facts); }

  FusedGroup group_;
};

// A momentum that starts at zero is that of torch.optim.SGD, which starts at the first gradient.
class Sgd final : public Optimizer {
 public:
  Sgd(std::vector<model::Parameter*> parameters, const v1::OptimizerSection& section)
      : Optimizer(std::move(parameters), section) {
    for (const HeldTensor& master : masters()) {
      std::vector<HeldTensor> state;
      if (parallel::MomentumOf(section) > 0) state.push_back(AddState("momentum_buffer", master));
      group_.Add(master, std::move(state));
    }
  }

 private:
  void UpdateParameters(const UpdateFacts& facts) override {
    const auto update = [&](const auto& masters, const auto& gradients, const auto& state) {
      at::_ops::_fused_sgd__tensor_lr::call(masters, gradients, state.empty() ? FusedGroup::Tensors() : state[0],
                                            section().weight_decay(), parallel::MomentumOf(section()), facts.learning_rate,
                                            /*dampening=*/0, parallel::NesterovOf(section()), /*maximize=*/false,
                                            /*is_first_step=*/false, /*grad_scale=*/std::nullopt, IfDefined(facts.skip));
    };
    group_.Update(update, facts.rounding);
  }

  FusedGroup group_;
};

}  // namespace

Optimizer::Optimizer(std::vector<model::Parameter*> parameters, const v1::OptimizerSection& section)
    : section_(section), parameters_(std::move(parameters)) {
  graph::CategoryScope category(graph::Category::kOptimizerState);
  step_ = at::zeros({}, parameters_.front()->master.options().dtype(at::kFloat));
  for (model::Parameter* parameter : parameters_) {
    const at::Tensor& own = parameter->master;
    masters_.push_back({"", parameter, section_.master_weights() ? Widened(own) : own});
  }
}

HeldTensor Optimizer::AddState(const char* name, const HeldTensor& master) {
  graph::CategoryScope category(graph::Category::kOptimizerState);
  state_.push_back({name, master.parameter, at::zeros(master.tensor.sizes(), master.tensor.options())});
  return state_.back();
}

void Optimizer::RoundMasters() {
  for (const HeldTensor& master : masters_) {
    const at::Tensor& own = master.parameter->master;
    if (!master.tensor.is_same(own) && own.numel() > 0) own.copy_(master.tensor);
  }
}

at::Tensor Optimizer::GradientNorm(comm::Runtime& runtime) const {
  // Tensors cut by the same mesh dimensions are summed together; each sum then goes over its own dimensions, so that what is
  // replicated counts once. The pipeline is outermost: every stage holds other parameters, but for a tied
  // embedding.
  const int64_t tp = runtime.GroupId(Dim::kTp), shard = runtime.GroupId(Dim::kDpShardCp), pp = runtime.GroupId(Dim::kPp);
  std::array<std::array<std::vector<at::Tensor>, 2>, 2> gradients;  // [cut by tp][cut by dp_shard_cp]
  for (const model::Parameter* parameter : parameters_) {
    const auto& spec = parameter->spec;
    const bool is_copy = (spec.copies_over_tp > 1 && runtime.GroupRank(tp) % spec.copies_over_tp != 0) ||
                         (spec.on_both_ends && runtime.GroupRank(runtime.GroupId(Dim::kPpEnds)) != 0);
    if (spec.Elements() == 0 || is_copy) continue;
    gradients[spec.IsShardedOver(Dim::kTp)][spec.IsShardedOver(Dim::kDpShardCp)].push_back(parameter->grad);
  }
  const c10::Device device = parameters_.front()->master.device();
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

void Optimizer::Clip(const at::Tensor& norm, double max_norm) {
  const at::Tensor factor = at::clamp(at::reciprocal(norm + kNormEpsilon) * max_norm, std::nullopt, at::Scalar(1.0));
  std::vector<at::Tensor> gradients;
  for (const model::Parameter* parameter : parameters_) gradients.push_back(parameter->grad);
  at::_foreach_mul_(gradients, factor);
}

void Optimizer::Unscale() {
  std::vector<at::Tensor> gradients;
  for (const model::Parameter* parameter : parameters_) gradients.push_back(parameter->grad);
  at::_foreach_mul_(gradients, at::reciprocal(loss_scale_->scale()));
}

void Optimizer::Update(const at::Tensor& learning_rate, const at::Tensor& rng, const at::Tensor& norm) {
  UpdateFacts facts{learning_rate, Rounding(section_.stochastic_rounding(), rng), {}};
  if (loss_scale_ == nullptr) {
    step_.add_(1);
    UpdateParameters(facts);
    return RoundMasters();
  }
  facts.skip = LossScale::IsBad(norm);
  step_.add_(at::rsub(facts.skip, 1));
  UpdateParameters(facts);
  RoundMasters();
  loss_scale_->Update(facts.skip);
}

std::vector<std::pair<std::string, at::Tensor>> Optimizer::Counters() const {
  std::vector<std::pair<std::string, at::Tensor>> counters = {{"optimizer.step", step_}};
  if (loss_scale_ == nullptr) return counters;
  counters.emplace_back("optimizer.loss_scale", loss_scale_->scale());
  counters.emplace_back("optimizer.loss_scale_good_steps", loss_scale_->good_steps());
  return counters;
}

void FusedGroup::Add(const HeldTensor& master, std::vector<HeldTensor> state) {
  if (master.parameter->spec.Elements() == 0) return;
  state.insert(state.begin(), master);
  members_.push_back(std::move(state));
}

void FusedGroup::Update(const Operator& update, const Rounding& rounding) const {
  if (members_.empty()) return;
  const bool copies = members_.front().front().tensor.scalar_type() != at::kFloat;
  const size_t at_once = copies ? 1 : members_.size();
  for (size_t first = 0; first < members_.size(); first += at_once) {
    const std::span<const Member> batch(members_.data() + first, at_once);
    std::vector<Tensors> wide(batch.front().size());
    Tensors gradients;
    for (const Member& member : batch) {
      gradients.push_back(member.front().parameter->grad);
      for (size_t k = 0; k < member.size(); ++k) wide[k].push_back(Widened(member[k].tensor));
    }
    update(wide.front(), gradients, {wide.begin() + 1, wide.end()});
    for (size_t i = 0; i < batch.size(); ++i) {
      for (size_t k = 0; k < batch[i].size(); ++k) rounding.Store(batch[i][k], wide[k][i]);
    }
  }
}

void UpdateByAdam(const FusedGroup& group, const v1::OptimizerSection& section, const at::Tensor& step,
                  const UpdateFacts& facts) {
  const auto update = section.name() == "Adam" ? at::_ops::_fused_adam__tensor_lr::call : at::_ops::_fused_adamw__tensor_lr::call;
  const auto fused = [&](const auto& masters, const auto& gradients, const auto& state) {
    const std::vector<at::Tensor> steps(masters.size(), step);
    update(masters, gradients, state[0], state[1], {}, steps, facts.learning_rate, section.beta1(), section.beta2(),
           section.weight_decay(), section.eps(), /*amsgrad=*/false, /*maximize=*/false, /*grad_scale=*/std::nullopt,
           IfDefined(facts.skip));
  };
  group.Update(fused, facts.rounding);
}

std::set<const model::Parameter*> HiddenMatrices(model::LanguageModel& model) {
  std::set<const model::Parameter*> hidden;
  for (const model::Layer& layer : model.layers()) {
    if (layer.kind != model::Layer::Kind::kBlock) continue;
    for (const model::Parameter* parameter : layer.module->Parameters()) {
      if (parameter->spec.global_shape.size() == 2) hidden.insert(parameter);
    }
  }
  return hidden;
}

std::unique_ptr<Optimizer> MakeOptimizer(std::vector<model::Parameter*> parameters,
                                         const std::set<const model::Parameter*>& hidden, const v1::OptimizerSection& section) {
  if (section.name() == "Muon") return std::make_unique<Muon>(std::move(parameters), hidden, section);
  if (section.name() == "SGD") return std::make_unique<Sgd>(std::move(parameters), section);
  return std::make_unique<Adam>(std::move(parameters), section);
}

}  // namespace legoai::train

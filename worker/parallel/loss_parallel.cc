#include "worker/parallel/loss_parallel.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/custom_function.h>

#include "worker/comm/ops.h"

namespace legoai::parallel {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// x - m in fp32, in memory of its own: [n, v]. m is the maximum over all shards: [n, 1].
Tensor Shifted(const Tensor& logits, int64_t group) {
  const Tensor flat = logits.reshape({-1, logits.size(-1)});
  Tensor largest = at::amax(flat, {-1}, /*keepdim=*/true).to(at::kFloat);
  comm::AllReduce(largest, group, comm::ReduceOp::kMax);
  if (flat.scalar_type() == at::kFloat) return flat.sub(largest);
  return flat.to(at::kFloat).sub_(largest);
}

class LossParallel : public torch::autograd::Function<LossParallel> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& logits, const Tensor& targets, double scale, int64_t offset,
                        int64_t group, bool padded) {
    Tensor shard = Shifted(logits, group);
    Tensor column = targets.reshape({-1, 1}).sub(offset);
    const Tensor elsewhere = column.lt(0).bitwise_or_(column.ge(shard.size(1)));
    column.masked_fill_(elsewhere, 0);
    const Tensor target = shard.gather(1, column).masked_fill_(elsewhere, 0);
    shard.exp_();
    Tensor sums = at::stack({shard.sum(1, /*keepdim=*/true), target});
    comm::AllReduce(sums, group);
    shard.div_(sums.select(0, 0));
    context->save_for_backward({shard, column, elsewhere});
    context->saved_data["scale"] = scale;
    context->saved_data["logits_sizes"] = logits.sizes().vec();
    context->saved_data["dtype"] = static_cast<int64_t>(logits.scalar_type());
    Tensor losses = sums.select(0, 0).log().sub_(sums.select(0, 1));
    if (padded) losses.masked_fill_(targets.reshape({-1, 1}).eq(kIgnoredTarget), 0);
    return losses.sum().mul_(scale);
  }

  // d loss / d x_v = scale (softmax_v - [v = t])
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    Tensor gradient = saved[0];
    const Tensor& column = saved[1];
    const Tensor factor = gradients[0] * context->saved_data["scale"].toDouble();
    gradient.mul_(factor);
    const Tensor at_target = saved[2].bitwise_not().to(at::kFloat).mul_(factor).neg_();
    gradient.scatter_add_(1, column, at_target);
    const auto dtype = static_cast<at::ScalarType>(context->saved_data["dtype"].toInt());
    return {gradient.to(dtype).view(context->saved_data["logits_sizes"].toIntVector()),
            Tensor(),
            Tensor(),
            Tensor(),
            Tensor(),
            Tensor()};
  }
};

}  // namespace

Tensor LossParallelCrossEntropy(const Tensor& logits, const Tensor& targets, double scale, int64_t vocabulary_offset,
                                int64_t group) {
  // A training step has no padding, and pays no operator for it.
  const bool padded = !at::GradMode::is_enabled();
  return LossParallel::apply(logits, targets, scale, vocabulary_offset, group, padded);
}

LossFunction MakeLossParallel(double scale, int64_t vocabulary_offset, int64_t group) {
  return [=](const Tensor& logits, const Tensor& targets) {
    return LossParallelCrossEntropy(logits, targets, scale, vocabulary_offset, group);
  };
}

}  // namespace legoai::parallel

#include "worker/model/weight_gradients.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>

namespace legoai::model {
namespace {

WeightGradients* g_queue = nullptr;

// As AccumulateGrad does in a backward, hooks and all. The engine would copy the gradient, which it cannot know to be nobody's.
void Accumulate(const at::Tensor& weight, at::Tensor gradient) {
  const at::NoGradGuard no_grad;
  at::Tensor& sum = weight.mutable_grad();
  if (sum.defined()) {
    sum.add_(gradient);
  } else {
    sum = gradient;
  }
  const std::shared_ptr<torch::autograd::Node> node = torch::autograd::impl::grad_accumulator(weight);
  const torch::autograd::variable_list gradients = {std::move(gradient)};
  for (const auto& hook : node->post_hooks()) (*hook)({}, gradients);
}

}  // namespace

void WeightGradients::Compute() {
  while (!products_.empty()) {
    Product product = std::move(products_.front());
    products_.pop_front();
    at::Tensor gradient;
    {
      at::AutoDispatchBelowADInplaceOrView below;
      gradient = at::mm(product.gradient.t(), product.input);
    }
    product.gradient.reset();
    product.input.reset();
    Accumulate(product.weight, std::move(gradient));
  }
}

DeferWeightGradients::DeferWeightGradients(WeightGradients* queue) {
  TORCH_CHECK(g_queue == nullptr, "weight gradients are put off already");
  g_queue = queue;
}
DeferWeightGradients::~DeferWeightGradients() { g_queue = nullptr; }
WeightGradients* DeferWeightGradients::Current() { return g_queue; }

}  // namespace legoai::model

#include "worker/model/weight_gradients.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/mm.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace legoai::model {
namespace {

WeightGradients* g_queue = nullptr;

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
    // The engine runs the node with its hooks; calling it would not.
    const torch::autograd::Edge edge(torch::autograd::impl::grad_accumulator(product.weight), 0);
    torch::autograd::Engine::get_default_engine().execute({edge}, {std::move(gradient)}, /*keep_graph=*/false,
                                                          /*create_graph=*/false, /*accumulate_grad=*/true);
  }
}

DeferWeightGradients::DeferWeightGradients(WeightGradients* queue) {
  TORCH_CHECK(g_queue == nullptr, "weight gradients are put off already");
  g_queue = queue;
}
DeferWeightGradients::~DeferWeightGradients() { g_queue = nullptr; }
WeightGradients* DeferWeightGradients::Current() { return g_queue; }

}  // namespace legoai::model

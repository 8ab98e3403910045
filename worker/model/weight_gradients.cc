#include "worker/model/weight_gradients.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>

namespace legoai::model {
namespace {

WeightGradients* g_queue = nullptr;
const SaveInputAs* g_save_as = nullptr;

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

c10::intrusive_ptr<SavedInput> SavedInput::Of(const at::Tensor& x, const at::Tensor& flat) {
  if (g_save_as == nullptr || !g_save_as->whole_.is_same(x)) return c10::make_intrusive<SavedInput>(flat);
  g_save_as->input_->AddUser();
  return g_save_as->input_;
}

at::Tensor SavedInput::TakeSaved() {
  at::Tensor tensor = saved_.unpack();
  saved_.reset_data();
  return tensor;
}

SaveInputAs::SaveInputAs(const at::Tensor& whole, c10::intrusive_ptr<SavedInput> input)
    : whole_(whole), input_(std::move(input)), outer_(std::exchange(g_save_as, this)) {}
SaveInputAs::~SaveInputAs() { g_save_as = outer_; }

void WeightGradients::Compute() {
  while (!products_.empty()) {
    Product product = std::move(products_.front());
    products_.pop_front();
    product.input->Prepare();
    if (!products_.empty()) products_.front().input->Prepare();  // while this product is computed
    at::Tensor gradient;
    {
      at::AutoDispatchBelowADInplaceOrView below;
      gradient = at::mm(product.gradient.t(), product.input->Take());
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

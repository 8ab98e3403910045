#include "worker/parallel/gradient_ready.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace legoai::parallel {

std::shared_ptr<torch::autograd::Node> NotifyOnAccumulate(model::Parameter* parameter) {
  using torch::autograd::variable_list;
  std::shared_ptr<torch::autograd::Node> node = torch::autograd::impl::grad_accumulator(parameter->value);
  node->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
      [parameter](const variable_list& outputs, const variable_list& gradients) {
        if (gradients[0].defined()) parameter->NotifyGradientReady();  // otherwise it was put off (weight_gradients.h)
        return outputs;
      }));
  return node;
}

}  // namespace legoai::parallel

#include "tests/gpu/device_step.h"

#include <ATen/ops/empty_like.h>

namespace legoai::gpu {

void FillDeviceInputs(train::StepInputs& inputs, const integration::Case& test_case, const parallel::ResolvedRecipe& resolved,
                      int64_t rank, int64_t step) {
  const auto on_host = [](const at::Tensor& tensor) { return at::empty_like(tensor, at::TensorOptions().device(at::kCPU)); };
  train::StepInputs host{on_host(inputs.tokens), on_host(inputs.targets), on_host(inputs.samples), on_host(inputs.rng),
                         on_host(inputs.learning_rate)};
  integration::FillInputs(host, test_case, resolved, rank, step);
  inputs.tokens.copy_(host.tokens);
  inputs.targets.copy_(host.targets);
  inputs.samples.copy_(host.samples);
  inputs.rng.copy_(host.rng);
  inputs.learning_rate.copy_(host.learning_rate);
}

integration::Case CaseOfOne(const std::string& name, const v1::Model& model, v1::DType param, bool checkpointed) {
  integration::Case test_case = integration::Reference(integration::ParityCases().front());
  test_case.name = name;
  test_case.model = model;
  test_case.recipe.mutable_training()->set_mixed_precision_param(param);
  test_case.recipe.mutable_activation_checkpoint()->set_mode(checkpointed ? v1::AC_FULL : v1::AC_NONE);
  return test_case;
}

}  // namespace legoai::gpu

#include "worker/model/module.h"

#include <c10/util/Exception.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "core/trace/annotation.h"

namespace legoai::model {

at::Tensor Module::operator()(const at::Tensor& input) {
  graph::AnnotationScope<const std::string*> here(&graph::Annotation::module, &path_);
  return Run(interceptors_.size(), input);
}

at::Tensor Module::Run(size_t depth, const at::Tensor& input) {
  if (depth == 0) return Forward(input);
  return interceptors_[depth - 1](input, [this, depth](const at::Tensor& x) { return Run(depth - 1, x); });
}

Module* Module::Find(const std::string& relative_path) const {
  const size_t dot = relative_path.find('.');
  for (const auto& [name, child] : children_) {
    if (name != relative_path.substr(0, dot)) continue;
    return dot == std::string::npos ? child.get() : child->Find(relative_path.substr(dot + 1));
  }
  return nullptr;
}

Parameter* Module::parameter(const std::string& local_name) const {
  for (const auto& [name, parameter] : parameters_) {
    if (name == local_name) return parameter.get();
  }
  return nullptr;
}

std::vector<Parameter*> Module::Parameters() const {
  std::vector<Parameter*> all;
  for (const auto& [name, parameter] : parameters_) all.push_back(parameter.get());
  for (const auto& [name, child] : children_) {
    for (Parameter* parameter : child->Parameters()) all.push_back(parameter);
  }
  return all;
}

void Module::SetPath(const std::string& path) {
  path_ = path;
  const std::string prefix = path.empty() ? "" : path + ".";
  for (auto& [name, parameter] : parameters_) parameter->spec.name = prefix + name;
  for (auto& [name, child] : children_) child->SetPath(prefix + name);
}

Parameter* Module::AddParameter(const std::string& name, std::vector<int64_t> global_shape, InitRule init) {
  TORCH_CHECK(parameter(name) == nullptr, "parameter ", name, " declared twice in a module");
  parameters_.emplace_back(name, std::make_unique<Parameter>(std::move(global_shape), init));
  return parameters_.back().second.get();
}

std::shared_ptr<torch::autograd::Node> NotifyOnAccumulate(Parameter* parameter) {
  using torch::autograd::variable_list;
  std::shared_ptr<torch::autograd::Node> node = torch::autograd::impl::grad_accumulator(parameter->value);
  const auto notify = [parameter](const variable_list& outputs, const variable_list& gradients) {
    if (gradients[0].defined()) parameter->NotifyGradientReady();  // otherwise it was put off (weight_gradients.h)
    return outputs;
  };
  node->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(notify));
  return node;
}

std::vector<TokenRun> StepContext::RunsOf(int64_t tokens) const {
  // Of this rank's tokens, counted through its runs.
  const int64_t begin = splits_tokens ? part * tokens : 0, end = begin + tokens;
  if (runs.empty()) return {{first_position + begin, tokens}};
  std::vector<TokenRun> here;
  int64_t at = 0;
  for (const TokenRun& run : runs) {
    const int64_t from = std::max(begin, at), to = std::min(end, at + run.length);
    if (from < to) here.push_back({run.first + from - at, to - from});
    at += run.length;
  }
  return here;
}

}  // namespace legoai::model

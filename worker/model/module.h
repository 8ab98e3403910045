// Layers: named children and parameters, and ordered interceptors around forward. Parallelism comes from outside through
// interceptors; a model file never asks how it is parallelized.
//
// Ownership: a module owns its children and the parameters it declares; a tied weight is owned by the first to declare it.
// Not thread-safe. All modules map one tensor to one tensor; activations are [batch, seq, dim] unless a header says otherwise.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/model/parameter.h"

namespace legoai::model {

using ForwardFunction = std::function<at::Tensor(const at::Tensor&)>;
// Gets the input and the rest of the chain; gives the output. Before- and after-hooks are special cases.
using Interceptor = std::function<at::Tensor(const at::Tensor& input, const ForwardFunction& next)>;

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // Forward with all interceptors, annotated with this module's path.
  at::Tensor operator()(const at::Tensor& input);

  // The last one added is the outermost.
  void Intercept(Interceptor interceptor) { interceptors_.push_back(std::move(interceptor)); }

  const std::string& path() const { return path_; }
  const std::vector<std::pair<std::string, std::unique_ptr<Module>>>& children() const { return children_; }
  Module* Find(const std::string& relative_path) const;  // "self_attn.q_proj"; null if there is none
  // Parameters this module declares itself, by local name ("weight").
  const std::vector<std::pair<std::string, std::unique_ptr<Parameter>>>& own_parameters() const { return parameters_; }
  Parameter* parameter(const std::string& local_name) const;  // null if there is none
  // Own and children's, depth first, in the order of declaration.
  std::vector<Parameter*> Parameters() const;
  // Names this module and everything below: children "path.child", parameters "path.child.weight". Called once, at the root.
  void SetPath(const std::string& path);

 protected:
  virtual at::Tensor Forward(const at::Tensor& input) = 0;
  Parameter* AddParameter(const std::string& name, std::vector<int64_t> global_shape, InitRule init);
  template <class M>
  M* AddChild(const std::string& name, std::unique_ptr<M> child) {
    M* raw = child.get();
    children_.emplace_back(name, std::move(child));
    return raw;
  }

 private:
  at::Tensor Run(size_t depth, const at::Tensor& input);

  std::string path_;
  std::vector<std::pair<std::string, std::unique_ptr<Module>>> children_;
  std::vector<std::pair<std::string, std::unique_ptr<Parameter>>> parameters_;
  std::vector<Interceptor> interceptors_;
};

}  // namespace legoai::model

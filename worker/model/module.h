// The building blocks of models: parameters, modules with interceptors around forward, and the ordered layers of a model. Not
// thread-safe.
//
// Parallelism is added from outside through interceptors; model code does not depend on how it is parallelized. All modules map
// one tensor to one tensor; activations are [batch, seq, dim] unless a header says otherwise. A module owns its children and the
// parameters it declares; a tied weight belongs to the module that declares it first.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/mesh/shard_spec.h"

namespace torch::autograd {
struct Node;
}

namespace legoai::model {

// How a parameter is initialized. Values are counter-based: a function of (seed, name, global index), see init.h.
struct InitRule {
  enum class Kind { kNormal, kZeros, kOnes };
  Kind kind = Kind::kNormal;
  double std = 0.02;
};

// Declared with a name and a global shape; memory is allocated only when its layout is known (meta initialization: the same
// weights in every layout).
//
// Lifecycle: a module declares it (no memory); parallel techniques shard `spec`; Materialize() (parallel/parallelize.h)
// allocates. `value` is what forward reads: a leaf that requires grad, of shape `local_shape`. `master` is what the optimizer
// updates, in the dtype of training.dtype, of shape spec.sizes. Without FSDP both share one storage if their dtypes are equal.
class Parameter {
 public:
  Parameter(std::vector<int64_t> global_shape, InitRule rule)
      : spec(parallel::Unsharded("", global_shape)), local_shape(std::move(global_shape)), init(rule) {}
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  const std::string& name() const { return spec.name; }

  parallel::ShardSpec spec;          // of `master`
  std::vector<int64_t> local_shape;  // of `value`: after tensor parallelism, before FSDP
  InitRule init;
  at::Tensor value;
  at::Tensor master;
  at::Tensor grad;  // of `master`, fp32, shape spec.sizes: valid from gradient reduction until the update

  // "Gradient ready": value.grad() of this backward is complete. AccumulateGrad's post hook notifies, as does a deferred weight
  // gradient. Handlers run in the order in which they were added.
  void OnGradientReady(std::function<void(Parameter&)> handler) { handlers_.push_back(std::move(handler)); }
  void NotifyGradientReady() {
    for (auto& handler : handlers_) handler(*this);
  }

 private:
  std::vector<std::function<void(Parameter&)>> handlers_;
};

using ForwardFunction = std::function<at::Tensor(const at::Tensor&)>;
// Takes the input and the rest of the chain and returns the output. Before- and after-hooks are special cases.
using Interceptor = std::function<at::Tensor(const at::Tensor& input, const ForwardFunction& next)>;

// Named children and parameters, and ordered interceptors around forward.
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
  // A parameter that this module itself declares, by local name ("weight"); null if there is none.
  Parameter* parameter(const std::string& local_name) const;
  // Its own and its children's, depth first, in the order of declaration.
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

// Consecutive tokens of a sequence: positions [first, first + length).
struct TokenRun {
  int64_t first = 0, length = 0;
  bool operator==(const TokenRun&) const = default;
};

// What layers read in addition to their input. One object for all layers of a model, set before each forward. Checkpointing that
// recomputes a layer later must restore the contents of the layer's first run (a pipeline runs other microbatches in between).
struct StepContext {
  at::Tensor rng;      // int64 [2]: seed, step. For counter-based dropout.
  at::Tensor samples;  // int64 [batch]: global sample index of each sequence of the microbatch
  bool training = true;
  int64_t first_position = 0;  // of the given tokens within their sequence
  // The tokens of each sequence that this rank holds under context parallelism, in order; the tables below then have only their
  // rows. All runs have the same length. Empty: all tokens.
  std::vector<TokenRun> runs;
  // The index of this rank's part of the heads in attention under tensor parallelism, and of these tokens between blocks, which
  // sequence parallelism splits; parts are equal and consecutive.
  int64_t part = 0;
  bool splits_tokens = true;
  // Auxiliary losses of layers, fp32 [] each. The caller of forward takes them and starts the backward from them too; they are
  // not part of the reported loss.
  std::vector<at::Tensor> auxiliary_losses;

  // Tables created once by LanguageModel::CreateBuffers, in the compute dtype; undefined if a model has none.
  at::Tensor rope_cos, rope_sin;  // [max seq, head_dim], see llama_family.h
  // [max seq, max seq], of attention that materializes scores: 0 where a query may attend, else -inf; the other one has a window.
  at::Tensor causal_mask, window_mask;

  // The positions of the `tokens` tokens of each sequence in a layer: this rank's part of its runs, or those from first_position
  // on.
  std::vector<TokenRun> RunsOf(int64_t tokens) const;
};

// One entry of a model's ordered list of layers.
struct Layer {
  enum class Kind { kEmbedding, kBlock, kHead };
  Kind kind = Kind::kBlock;
  int64_t index = -1;  // of a block in the model
  std::unique_ptr<Module> module;
};

// From now on parameter->NotifyGradientReady() is called once in each backward that reaches `value`, after value.grad() has
// accumulated all of that backward's contributions. `parameter` is not owned. The caller must keep the returned node for as long
// as it wants notifications, because autograd holds it weakly.
std::shared_ptr<torch::autograd::Node> NotifyOnAccumulate(Parameter* parameter);

}  // namespace legoai::model

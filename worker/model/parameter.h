// A parameter of a model: declared with a name and a global shape, given memory only when its layout is known (meta
// initialization: the same weights in every layout).
//
// Life: a module declares it (no memory); techniques cut `spec`; Materialize() (parallel/parallelize.h) allocates. `value` is
// what forward reads: a leaf that requires grad, of shape `local_shape`. `master` is what the optimizer updates, in fp32, of
// shape spec.sizes. Without FSDP and mixed precision both share one storage.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/mesh/shard_spec.h"

namespace legoai::model {

// How a parameter starts. Values are counter-based: a function of (seed, name, global index), see init.h.
struct InitRule {
  enum class Kind { kNormal, kZeros, kOnes };
  Kind kind = Kind::kNormal;
  double std = 0.02;
};

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
  at::Tensor grad;  // of `master`, fp32, shape spec.sizes: from the reduction of a step's gradients until the update

  // "Gradient ready": value.grad() of this backward is complete. AccumulateGrad's post hook notifies; a delayed weight gradient
  // would too. Handlers run in the order of adding.
  void OnGradientReady(std::function<void(Parameter&)> handler) { handlers_.push_back(std::move(handler)); }
  void NotifyGradientReady() {
    for (auto& handler : handlers_) handler(*this);
  }

 private:
  std::vector<std::function<void(Parameter&)>> handlers_;
};

}  // namespace legoai::model

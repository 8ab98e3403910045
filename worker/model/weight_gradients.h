// Gradients of weights that wait: a pipeline rank first computes the gradient of a chunk's input, which the rank before needs,
// and those of its weights when it has nothing else to do (Qi et al. 2024).
//
// While a DeferWeightGradients is there, linear layers put the product that makes their weight's gradient off into its queue,
// with the tensors that it reads. Used by the one thread that runs a backward at a time; autograd's threads of a device count as
// that.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <utility>

namespace legoai::model {

// What a backward brings: the gradients of weights may come in a later one than that of the input.
enum class Gradients { kAll, kInputs, kWeights };

class WeightGradients {
 public:
  struct Product {
    at::Tensor weight;           // a leaf of shape [out, in]
    at::Tensor gradient, input;  // [tokens, out] and [tokens, in]
  };
  void Add(Product product) { products_.push_back(std::move(product)); }
  // Computes all, first come first served, and accumulates them as a backward does, post hooks and all.
  void Compute();
  bool empty() const { return products_.empty(); }

 private:
  std::deque<Product> products_;
};

// The queue of a scope; there is one at a time in a process.
class DeferWeightGradients {
 public:
  explicit DeferWeightGradients(WeightGradients* queue);
  ~DeferWeightGradients();
  DeferWeightGradients(const DeferWeightGradients&) = delete;
  DeferWeightGradients& operator=(const DeferWeightGradients&) = delete;

  static WeightGradients* Current();  // null: weight gradients are computed at once
};

}  // namespace legoai::model

// Gradients of weights, and the inputs that they are made of.
//
// A linear layer keeps its input until the gradient of its weight is computed. It keeps the tensor, or something that the tensor
// can be had from again: whoever makes the input says so by a SaveInputAs around the forward.
//
// Gradients may wait: a pipeline rank first computes the gradient of a chunk's input, which the rank before needs, and those of
// its weights when it has nothing else to do (Qi et al. 2024). While a DeferWeightGradients is there, linear layers put the
// product that makes their weight's gradient off into its queue, with what it reads.
//
// Used by the one thread that runs a forward or a backward at a time; autograd's threads of a device count as that.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <deque>
#include <utility>

namespace legoai::model {

// What a backward computes: weight gradients may come later than input gradients.
enum class Gradients { kAll, kInputs, kWeights };

// The input of linear layers, [tokens, in]. Saved when this is made and not when the layer's function has returned, as an
// AutogradContext would: recomputation of a checkpointed block ends with the last tensor saved, so a layer at the block's end
// would compute a product that nobody reads.
class SavedInput : public torch::CustomClassHolder {
 public:
  explicit SavedInput(const at::Tensor& tensor) : saved_(tensor, /*is_output=*/false) {}
  // What a layer with the input `x`, which is `flat` as [tokens, in], is to keep.
  static c10::intrusive_ptr<SavedInput> Of(const at::Tensor& x, const at::Tensor& flat);

  // One more layer keeps it, and will take it once.
  virtual void AddUser() {}
  // It will be taken soon: what takes time begins beside what is computed.
  virtual void Prepare() {}
  // Gives the input and, after the last layer that keeps it, drops what was saved.
  virtual at::Tensor Take() { return TakeSaved(); }

 protected:
  at::Tensor TakeSaved();

 private:
  torch::autograd::SavedVariable saved_;
};

// While it lives, layers whose input is `whole` keep `input`, which gives [tokens, in] of it.
class SaveInputAs {
 public:
  SaveInputAs(const at::Tensor& whole, c10::intrusive_ptr<SavedInput> input);
  ~SaveInputAs();
  SaveInputAs(const SaveInputAs&) = delete;
  SaveInputAs& operator=(const SaveInputAs&) = delete;

 private:
  friend class SavedInput;
  const at::Tensor whole_;
  const c10::intrusive_ptr<SavedInput> input_;
  const SaveInputAs* const outer_;
};

class WeightGradients {
 public:
  struct Product {
    at::Tensor weight;    // a leaf of shape [out, in]
    at::Tensor gradient;  // [tokens, out]
    c10::intrusive_ptr<SavedInput> input;
  };
  void Add(Product product) { products_.push_back(std::move(product)); }
  // Computes all in the order of adding and accumulates them as a backward does, including post hooks.
  void Compute();
  bool empty() const { return products_.empty(); }

 private:
  std::deque<Product> products_;
};

// A scope that defers weight gradients to `queue`; one at a time in a process.
class DeferWeightGradients {
 public:
  explicit DeferWeightGradients(WeightGradients* queue);
  ~DeferWeightGradients();
  DeferWeightGradients(const DeferWeightGradients&) = delete;
  DeferWeightGradients& operator=(const DeferWeightGradients&) = delete;

  static WeightGradients* Current();  // null: weight gradients are computed at once
};

}  // namespace legoai::model

// A model that goes on with one sequence token by token: each block keeps the keys and values of the tokens it has seen, so that
// a further token costs one pass over the weights and one look at the cache.
//
// The layers are those that train: a cache stands in for the core of each attention, and the step's context says where the tokens
// that are fed stand.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "worker/model/language_model.h"

namespace legoai::generate {

// Keys and values of a cache of `capacity` tokens, in bytes.
int64_t CacheBytes(const v1::Model& config, int64_t capacity, int64_t bytes_per_element);

// Not thread-safe. Errors: c10::Error.
class CachedModel {
 public:
  // `model` is whole (no pipeline stage), its parameters' values are there, in `dtype` on CPU. `capacity`: the most tokens that
  // are fed, up to the model's max_position_embeddings.
  CachedModel(std::unique_ptr<model::LanguageModel> model, at::ScalarType dtype, int64_t capacity);
  CachedModel(const CachedModel&) = delete;
  CachedModel& operator=(const CachedModel&) = delete;

  // Feeds the next tokens: at first any number, later one at a time. Gives the logits after the last of them, fp32 [vocab].
  at::Tensor Feed(std::span<const int64_t> tokens);

  // Tokens fed so far.
  int64_t length() const;
  int64_t capacity() const { return capacity_; }

 private:
  int64_t capacity_;
  std::unique_ptr<model::LanguageModel> model_;
};

}  // namespace legoai::generate

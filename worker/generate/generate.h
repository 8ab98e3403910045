// Continues a prompt token by token. Not thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/generate/sampler.h"
#include "worker/model/hf_weights.h"
#include "worker/model/language_model.h"

namespace legoai::generate {

// Keys and values of a cache for `capacity` tokens, in bytes. Of a model with a sliding window only its last tokens are kept.
int64_t CacheBytes(const v1::Model& config, int64_t capacity, int64_t bytes_per_element);

// A model with a key-value cache for one sequence, so that each further token costs one pass over the weights and the cache. The
// layers are those used in training: a cache replaces the core of each attention, and the step's context has the positions of the
// new tokens. Errors: c10::Error.
class CachedModel {
 public:
  // `model` is whole (not a pipeline stage), with its parameters' values in `dtype` on CPU. `capacity`: the most tokens to feed,
  // up to the model's max_position_embeddings.
  CachedModel(std::unique_ptr<model::LanguageModel> model, at::ScalarType dtype, int64_t capacity);
  CachedModel(const CachedModel&) = delete;
  CachedModel& operator=(const CachedModel&) = delete;

  // Feeds the next tokens: first any number, then one at a time. Returns the logits after the last of them, fp32 [vocab].
  at::Tensor Feed(std::span<const int64_t> tokens);

  // Tokens fed so far.
  int64_t length() const;
  int64_t capacity() const { return capacity_; }

 private:
  int64_t capacity_;
  std::unique_ptr<model::LanguageModel> model_;
};

enum class Finish { kTokens, kEndOfText, kContext, kInterrupted };

struct Limits {
  int64_t max_new_tokens = 0;    // at least 1
  std::vector<int32_t> end_ids;  // generation stops after any of these
};

// How many positions of the context `prompt` tokens and up to `max_new_tokens` new ones take: the last new token is not fed.
// Error (field --prompt): more tokens than the context has.
absl::StatusOr<int64_t> PositionsFor(const v1::Model& model, int64_t prompt, int64_t max_new_tokens);

// The model with its weights, in `dtype`, ready for `positions`. Errors (field RUN|FOLDER, ResourceExhausted): more than this
// machine's memory; those of the weights.
absl::StatusOr<std::unique_ptr<CachedModel>> LoadModel(const v1::Model& config, const model::ParameterSource& weights,
                                                       at::ScalarType dtype, int64_t positions);

// `on_token` gets each new token and returns whether to continue. Errors: those of the sampler and of operators.
absl::StatusOr<Finish> Generate(CachedModel& model, std::span<const int32_t> prompt, const Limits& limits, Sampler& sampler,
                                const std::function<bool(int32_t token)>& on_token);

}  // namespace legoai::generate

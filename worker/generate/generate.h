// Goes on with a prompt, token by token. Not thread-safe.
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

// A model that goes on with one sequence token by token: each block keeps the keys and values of the tokens it has seen, so that
// a further token costs one pass over the weights and one look at the cache. The layers are those that train: a cache stands in
// for the core of each attention, and the step's context says where the tokens that are fed stand. Errors: c10::Error.
class CachedModel {
 public:
  // `model` is whole (no pipeline stage), its parameters' values are there, in `dtype` on CPU. `capacity`: the most tokens that
  // are fed, up to the model's max_position_embeddings.
  CachedModel(std::unique_ptr<model::LanguageModel> model, at::ScalarType dtype, int64_t capacity);
  CachedModel(const CachedModel&) = delete;
  CachedModel& operator=(const CachedModel&) = delete;

  // Feeds the next tokens: at first any number, later one at a time. Returns the logits after the last of them, fp32 [vocab].
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
  std::vector<int32_t> end_ids;  // the last token, if it is one of these
};

// How many positions a text of `prompt` tokens and up to `max_new_tokens` more takes of the model's context: the last token that
// is made is fed no more. Error (field --prompt): more tokens than the context has.
absl::StatusOr<int64_t> PositionsFor(const v1::Model& model, int64_t prompt, int64_t max_new_tokens);

// The model with its weights, in `dtype`, ready for `positions`. Errors (field RUN|FOLDER, ResourceExhausted): more than this
// machine's memory; those of the weights.
absl::StatusOr<std::unique_ptr<CachedModel>> LoadModel(const v1::Model& config, const model::ParameterSource& weights,
                                                       at::ScalarType dtype, int64_t positions);

// `on_token` hears of each token as it is made and says whether to go on. Errors: those of the sampler and of operators.
absl::StatusOr<Finish> Generate(CachedModel& model, std::span<const int32_t> prompt, const Limits& limits, Sampler& sampler,
                                const std::function<bool(int32_t token)>& on_token);

}  // namespace legoai::generate

// Goes on with a prompt, token by token. Not thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/generate/cached_model.h"
#include "worker/generate/sampler.h"
#include "worker/model/hf_weights.h"

namespace legoai::generate {

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

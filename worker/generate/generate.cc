#include "worker/generate/generate.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/model/model_facts.h"
#include "core/process/memory.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "worker/comm/status_error.h"

namespace legoai::generate {
namespace {

constexpr double kGiB = 1 << 30;

absl::Status CheckMemory(const v1::Model& config, at::ScalarType dtype, int64_t positions) {
  const auto element = static_cast<int64_t>(c10::elementSize(dtype));
  const int64_t needed = model::ParameterCount(config) * element + CacheBytes(config, positions, element);
  const int64_t there = launch::HostMemoryBytes();
  if (needed < there) return absl::OkStatus();
  const char* remedy = dtype == at::kFloat ? "--dtype bfloat16 takes half, fewer tokens a smaller cache" : "take a smaller model";
  return FieldError("RUN|FOLDER", config.name(),
                    absl::StrFormat("takes %.1f GiB for weights and cache, and this machine has %.1f GiB: %s",
                                    static_cast<double>(needed) / kGiB, static_cast<double>(there) / kGiB, remedy),
                    absl::StatusCode::kResourceExhausted);
}

// One parameter at a time is there in fp32 besides.
absl::Status LoadWeights(const model::ParameterSource& weights, at::ScalarType dtype, model::LanguageModel* model) {
  for (model::Parameter* parameter : model->Parameters()) {
    const at::Tensor value = at::empty(parameter->local_shape, at::TensorOptions().dtype(at::kFloat));
    RETURN_IF_ERROR(weights(parameter->name(), parameter->local_shape, value.mutable_data_ptr<float>()));
    parameter->value = value.to(dtype);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> PositionsFor(const v1::Model& model, int64_t prompt, int64_t max_new_tokens) {
  const int64_t context = model.max_position_embeddings();
  if (prompt > context)
    return FieldError("--prompt", absl::StrCat(prompt, " tokens"),
                      absl::StrCat("is longer than the model's context of ", context, " tokens: shorten it"));
  return max_new_tokens > context - prompt ? context : prompt + max_new_tokens - 1;
}

absl::StatusOr<std::unique_ptr<CachedModel>> LoadModel(const v1::Model& config, const model::ParameterSource& weights,
                                                       at::ScalarType dtype, int64_t positions) {
  RETURN_IF_ERROR(CheckMemory(config, dtype, positions));
  ASSIGN_OR_RETURN(auto built, model::BuildModel(config));
  std::unique_ptr<CachedModel> model;
  RETURN_IF_ERROR(comm::CatchStatus([&] {
    absl::Status loaded = LoadWeights(weights, dtype, built.get());
    if (loaded.ok()) model = std::make_unique<CachedModel>(std::move(built), dtype, positions);
    return loaded;
  }));
  return model;
}

absl::StatusOr<Finish> Generate(CachedModel& model, std::span<const int32_t> prompt, const Limits& limits, Sampler& sampler,
                                const std::function<bool(int32_t token)>& on_token) {
  Finish finish = Finish::kTokens;
  RETURN_IF_ERROR(comm::CatchStatus([&]() -> absl::Status {
    std::vector<int64_t> next(prompt.begin(), prompt.end());
    for (int64_t made = 0; made < limits.max_new_tokens; ++made) {
      if (model.length() + static_cast<int64_t>(next.size()) > model.capacity()) {
        finish = Finish::kContext;
        return absl::OkStatus();
      }
      const at::Tensor logits = model.Feed(next);
      ASSIGN_OR_RETURN(const auto token, sampler.Next({logits.const_data_ptr<float>(), static_cast<size_t>(logits.numel())}));
      const bool go_on = on_token(static_cast<int32_t>(token));
      const bool ended = std::find(limits.end_ids.begin(), limits.end_ids.end(), token) != limits.end_ids.end();
      if (ended || !go_on) {
        finish = ended ? Finish::kEndOfText : Finish::kInterrupted;
        return absl::OkStatus();
      }
      next = {token};
    }
    return absl::OkStatus();
  }));
  return finish;
}

}  // namespace legoai::generate

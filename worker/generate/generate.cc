#include "worker/generate/generate.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/model/model_facts.h"
#include "core/process/host_resources.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "worker/comm/status_error.h"
#include "worker/model/layers.h"
#include "worker/model/llama_family.h"
#include "worker/model/ops.h"

namespace legoai::generate {
namespace {

// Of a sliding window no position before the last `window` is read again.
int64_t CachedPositions(const v1::Model& config, int64_t block, int64_t capacity) {
  const int64_t window = model::WindowOf(config, block);
  return window > 0 ? std::min(window, capacity) : capacity;
}

// Keys and values of one block, [1, kv_heads, rows, head_dim]: a ring, in which position p lies in row p % rows. In which order
// attention reads them does not matter, for each key carries its position.
class Cache {
 public:
  Cache(const v1::Model& config, int64_t block, at::ScalarType dtype, int64_t capacity, const model::StepContext* context)
      : context_(context),
        window_(model::WindowOf(config, block)),
        scale_(model::ScaleOfScores(config)),
        cap_(config.attn_logit_softcapping()),
        rows_(CachedPositions(config, block, capacity)),
        keys_(at::empty({1, config.num_key_value_heads(), rows_, config.head_dim()}, at::TensorOptions().dtype(dtype))),
        values_(at::empty_like(keys_)) {}

  // Adds k and v and attends to all that is there.
  at::Tensor operator()(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const {
    const int64_t seen = context_->first_position, seq = q.size(2);
    TORCH_CHECK(seen == 0 || seq == 1, "after the first tokens, one at a time can be fed, not ", seq);
    Keep(keys_, k, seen);
    Keep(values_, v, seen);
    if (seen == 0) return First(q, k, v);
    const int64_t count = std::min(rows_, seen + 1);
    const at::Tensor keys = keys_.narrow(2, 0, count), values = values_.narrow(2, 0, count);
    if (cap_ > 0) return model::CappedAttention(q, keys, values, /*mask=*/at::Tensor(), scale_, cap_);
    return model::AttentionFunction(q, keys, values, /*causal=*/false, scale_);
  }

 private:
  at::Tensor First(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const {
    if (cap_ == 0) return model::LocalAttention(q, k, v, window_);
    return model::CappedAttention(q, k, v, model::CausalMask(q.size(2), window_, q.options()), scale_, cap_);
  }

  // The last of `x`, whose first position is `first`, as many as there are rows.
  void Keep(const at::Tensor& kept, const at::Tensor& x, int64_t first) const {
    const int64_t count = std::min(rows_, x.size(2)), begin = x.size(2) - count, row = (first + begin) % rows_;
    const int64_t before_end = std::min(count, rows_ - row);
    kept.narrow(2, row, before_end).copy_(x.narrow(2, begin, before_end));
    if (before_end < count) kept.narrow(2, 0, count - before_end).copy_(x.narrow(2, begin + before_end, count - before_end));
  }

  const model::StepContext* context_;
  int64_t window_;
  double scale_, cap_;
  int64_t rows_;
  at::Tensor keys_, values_;
};

constexpr double kGiB = 1 << 30;

absl::Status CheckMemory(const v1::Model& config, at::ScalarType dtype, int64_t positions) {
  const auto element = static_cast<int64_t>(c10::elementSize(dtype));
  // Capped scores of the text are tensors, of which two are there at once, beside masks (worker/model/layers.h).
  const int64_t of_position = config.attn_logit_softcapping() > 0 ? (2 * config.num_attention_heads() + 3) * element : 0;
  const int64_t needed = model::ParameterCount(config) * element + CacheBytes(config, positions, element) +
                         of_position * positions * positions;
  const int64_t there = launch::HostMemoryBytes();
  if (needed < there) return absl::OkStatus();
  const char* remedy = dtype == at::kFloat ? "--dtype bfloat16 takes half, fewer tokens a smaller cache" : "take a smaller model";
  return FieldError("RUN|FOLDER", config.name(),
                    absl::StrFormat("takes %.1f GiB for weights, cache and scores, and this machine has %.1f GiB: %s",
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

int64_t CacheBytes(const v1::Model& config, int64_t capacity, int64_t bytes_per_element) {
  int64_t positions = 0;  // of all blocks
  for (int64_t block = 0; block < config.num_hidden_layers(); ++block) positions += CachedPositions(config, block, capacity);
  return 2 * positions * config.num_key_value_heads() * config.head_dim() * bytes_per_element;
}

CachedModel::CachedModel(std::unique_ptr<model::LanguageModel> model, at::ScalarType dtype, int64_t capacity)
    : capacity_(capacity), model_(std::move(model)) {
  const v1::Model& config = model_->config();
  TORCH_CHECK(capacity >= 1 && capacity <= config.max_position_embeddings(), "a cache of ", capacity, " tokens for a context of ",
              config.max_position_embeddings());
  model_->context().training = false;
  // Not CreateBuffers: masks are for training.
  if (config.architecture() != v1::GPT2) model::MakeRopeTables(config, at::kCPU, dtype, capacity, &model_->context());
  int64_t block = 0;
  for (model::SelfAttention* attention : model_->Attentions())
    attention->ReplaceCore(Cache(config, block++, dtype, capacity, &model_->context()));
}

int64_t CachedModel::length() const { return model_->context().first_position; }

at::Tensor CachedModel::Feed(std::span<const int64_t> tokens) {
  c10::NoGradGuard no_grad;
  const auto count = static_cast<int64_t>(tokens.size());
  TORCH_CHECK(length() + count <= capacity_, "a cache for ", capacity_, " tokens has ", length(), " and was fed ", count,
              " more");
  at::Tensor hidden = at::empty({1, count}, at::TensorOptions().dtype(at::kLong));
  std::copy(tokens.begin(), tokens.end(), hidden.mutable_data_ptr<int64_t>());
  for (model::Layer& layer : model_->layers()) {
    // The head sees the last position alone: logits of a whole prompt would take more memory than anything else.
    if (layer.kind == model::Layer::Kind::kHead) hidden = hidden.narrow(1, count - 1, 1).contiguous();
    hidden = (*layer.module)(hidden);
  }
  model_->context().first_position += count;
  return hidden.view({-1}).to(at::kFloat);
}

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

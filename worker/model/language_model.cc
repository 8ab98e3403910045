#include "worker/model/language_model.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/model/model_facts.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "worker/model/gpt2.h"
#include "worker/model/llama_family.h"

namespace legoai::model {

namespace {

void AppendAttentions(const Module& module, std::vector<SelfAttention*>* all) {
  for (const auto& [_, child] : module.children()) {
    if (auto* attention = dynamic_cast<SelfAttention*>(child.get())) {
      all->push_back(attention);
    } else {
      AppendAttentions(*child, all);
    }
  }
}

}  // namespace

at::Tensor LanguageModel::operator()(const at::Tensor& input) {
  at::Tensor hidden = input;
  for (size_t chunk = 0; chunk < chunks_.size(); ++chunk) hidden = RunChunk(chunk, hidden);
  return hidden;
}

at::Tensor LanguageModel::RunChunk(size_t chunk, const at::Tensor& input) {
  at::Tensor hidden = input;
  for (size_t i = chunks_.at(chunk).begin; i < chunks_[chunk].end; ++i) hidden = (*layers_[i].module)(hidden);
  return hidden;
}

std::vector<SelfAttention*> LanguageModel::Attentions() const {
  std::vector<SelfAttention*> all;
  for (const Layer& layer : layers_) AppendAttentions(*layer.module, &all);
  return all;
}

std::vector<Parameter*> LanguageModel::Parameters() const {
  std::vector<Parameter*> all;
  for (const Layer& layer : layers_) {
    for (Parameter* parameter : layer.module->Parameters()) all.push_back(parameter);
  }
  return all;
}

void LanguageModel::PartTiedEnds(bool keeps_head) {
  auto* const head = dynamic_cast<OutputHead*>(layers_.back().module.get());
  TORCH_CHECK(head != nullptr && head->lm_head()->tied(), "the head does not hold the tied weight");
  Parameter* const shared = head->lm_head()->weight();
  if (keeps_head) head->lm_head()->OwnWeight();
  (keeps_head ? head->lm_head()->weight() : shared)->spec.on_both_ends = true;
}

void LanguageModel::KeepLayers(const std::vector<ChunkLayers>& chunks) {
  const bool keeps_embedding = std::any_of(chunks.begin(), chunks.end(), [](const auto& chunk) { return chunk.embedding; });
  const bool keeps_head = std::any_of(chunks.begin(), chunks.end(), [](const auto& chunk) { return chunk.head; });
  if (config_.tie_word_embeddings() && keeps_embedding != keeps_head) PartTiedEnds(keeps_head);
  std::vector<Layer> kept;
  chunks_.clear();
  for (const ChunkLayers& chunk : chunks) {
    const size_t begin = kept.size();
    for (Layer& layer : layers_) {
      const bool is_block = layer.kind == Layer::Kind::kBlock, is_embedding = layer.kind == Layer::Kind::kEmbedding;
      const bool keeps =
          is_block ? chunk.first <= layer.index && layer.index < chunk.last : (is_embedding ? chunk.embedding : chunk.head);
      if (keeps && layer.module != nullptr) kept.push_back(std::move(layer));
    }
    chunks_.push_back({begin, kept.size()});
  }
  layers_ = std::move(kept);
}

namespace {

at::Tensor RowsOf(const at::Tensor& table, const std::vector<TokenRun>& runs) {
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> rows;
  for (const TokenRun& run : runs) rows.push_back(table.narrow(0, run.first, run.length));
  return at::cat(rows);
}

}  // namespace

void LanguageModel::CreateBuffers(c10::Device device, at::ScalarType compute_dtype, int64_t seq) {
  if (config_.architecture() != v1::GPT2) MakeRopeTables(config_, device, compute_dtype, seq, context_.get());
  if (MaterializesScores(config_)) {
    const auto options = at::TensorOptions().device(device).dtype(compute_dtype);
    const int64_t window = config_.sliding_window();
    context_->causal_mask = CausalMask(seq, /*window=*/0, options);
    if (window > 0 && window < seq) context_->window_mask = CausalMask(seq, window, options);
  }
  if (context_->runs.empty()) return;
  for (at::Tensor* table : {&context_->rope_cos, &context_->rope_sin, &context_->causal_mask, &context_->window_mask}) {
    if (table->defined()) *table = RowsOf(*table, context_->runs);
  }
}

std::vector<std::pair<std::string, at::Tensor>> LanguageModel::Buffers() const {
  std::vector<std::pair<std::string, at::Tensor>> all = {{"rope_cos", context_->rope_cos},
                                                         {"rope_sin", context_->rope_sin},
                                                         {"causal_mask", context_->causal_mask},
                                                         {"window_mask", context_->window_mask}};
  std::erase_if(all, [](const auto& buffer) { return !buffer.second.defined(); });
  return all;
}

namespace {

absl::Status CheckGpt(const v1::Model& config) {
  if (config.head_dim() * config.num_attention_heads() != config.hidden_size()) {
    return FieldError("model.num_attention_heads", absl::StrCat(config.num_attention_heads()),
                      absl::StrCat("heads of a GPT must split hidden_size = ", config.hidden_size()));
  }
  if (config.attn_pdrop() > 0 && config.num_key_value_heads() != config.num_attention_heads()) {
    return FieldError("model.attn_pdrop", absl::StrCat(config.attn_pdrop()),
                      "must be 0 where heads share keys and values: probabilities are dropped of heads with keys of their own");
  }
  if (config.resid_pdrop() > 0 && config.parallel_block()) {
    return FieldError("model.resid_pdrop", absl::StrCat(config.resid_pdrop()),
                      "must be 0 in blocks with attention and feed-forward side by side, whose outputs are one sum");
  }
  return absl::OkStatus();
}

absl::Status CheckGemma2(const v1::Model& config) {
  const std::pair<const char*, double> positive[] = {{"attn_logit_softcapping", config.attn_logit_softcapping()},
                                                     {"final_logit_softcapping", config.final_logit_softcapping()},
                                                     {"sliding_window", static_cast<double>(config.sliding_window())}};
  for (const auto& [name, value] : positive) {
    if (!(value > 0)) return FieldError(absl::StrCat("model.", name), absl::StrCat(value), "must be positive in Gemma 2");
  }
  return absl::OkStatus();
}

absl::Status CheckConfig(const v1::Model& config) {
  const std::pair<const char*, int64_t> positive[] = {{"vocab_size", config.vocab_size()},
                                                      {"hidden_size", config.hidden_size()},
                                                      {"intermediate_size", config.intermediate_size()},
                                                      {"num_hidden_layers", config.num_hidden_layers()},
                                                      {"num_attention_heads", config.num_attention_heads()},
                                                      {"num_key_value_heads", config.num_key_value_heads()},
                                                      {"head_dim", config.head_dim()},
                                                      {"max_position_embeddings", config.max_position_embeddings()}};
  for (const auto& [name, value] : positive) {
    if (value <= 0) return FieldError(absl::StrCat("model.", name), absl::StrCat(value), "must be positive");
  }
  if (config.num_attention_heads() % config.num_key_value_heads() != 0) {
    return FieldError("model.num_key_value_heads", absl::StrCat(config.num_key_value_heads()),
                      absl::StrCat("must divide num_attention_heads = ", config.num_attention_heads()));
  }
  if (config.sliding_window() < 0) {
    return FieldError("model.sliding_window", absl::StrCat(config.sliding_window()), "must be positive, or 0 for none");
  }
  if (config.architecture() != v1::GPT2 && config.head_dim() % 2 != 0) {
    return FieldError("model.head_dim", absl::StrCat(config.head_dim()), "must be even: rotary positions turn pairs");
  }
  if (config.architecture() == v1::GPT2) return CheckGpt(config);
  if (config.architecture() == v1::GEMMA2) return CheckGemma2(config);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<LanguageModel>> BuildModel(const v1::Model& config) {
  if (!v1::Architecture_IsValid(config.architecture()) || config.architecture() == v1::ARCHITECTURE_UNSPECIFIED) {
    return FieldError("model.architecture", v1::Architecture_Name(config.architecture()),
                      "not known; use LLAMA, MISTRAL, QWEN2, QWEN3, GEMMA, GEMMA2 or GPT2");
  }
  RETURN_IF_ERROR(CheckConfig(config));
  auto context = std::make_shared<StepContext>();
  std::vector<Layer> layers =
      config.architecture() == v1::GPT2 ? Gpt2Layers(config, context) : LlamaFamilyLayers(config, context);
  return std::make_unique<LanguageModel>(config, std::move(layers), std::move(context));
}

}  // namespace legoai::model

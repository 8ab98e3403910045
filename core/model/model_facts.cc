#include "core/model/model_facts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/errors.h"

namespace legoai::model {
namespace {

// RMS norms have a weight, projections no bias but those of queries, keys and values in some families.
int64_t LlamaBlock(const v1::Model& m) {
  const int64_t queries = m.num_attention_heads() * m.head_dim(), keys = m.num_key_value_heads() * m.head_dim();
  int64_t attention = m.hidden_size() * (2 * queries + 2 * keys);  // q, o, k, v
  if (m.qkv_bias()) attention += queries + 2 * keys;
  if (m.qk_norm()) attention += 2 * m.head_dim();
  const int64_t norms = m.architecture() == v1::GEMMA2 ? 4 : 2;
  return attention + 3 * m.hidden_size() * m.intermediate_size() + norms * m.hidden_size();
}

// Layer norms have weight and bias, projections a bias each.
int64_t Gpt2Block(const v1::Model& m) {
  const int64_t h = m.hidden_size(), inner = m.intermediate_size(), kv = m.num_key_value_heads() * m.head_dim();
  const int64_t norms = (m.parallel_block() ? 1 : 2) * 2 * h;
  return norms + (h * h + h) + 2 * (h * kv + kv) + (h * h + h) + (h * inner + inner) + (inner * h + h);
}

}  // namespace

ParameterCounts CountParameters(const v1::Model& model) {
  const bool gpt2 = model.architecture() == v1::GPT2;
  ParameterCounts counts;
  counts.embedding = model.vocab_size() * model.hidden_size();
  counts.position_embedding = gpt2 ? model.max_position_embeddings() * model.hidden_size() : 0;
  counts.block = gpt2 ? Gpt2Block(model) : LlamaBlock(model);
  counts.final_norm = (gpt2 ? 2 : 1) * model.hidden_size();
  counts.head = model.tie_word_embeddings() ? 0 : counts.embedding;
  return counts;
}

int64_t ParameterCount(const v1::Model& model) {
  const ParameterCounts counts = CountParameters(model);
  return counts.embedding + counts.position_embedding + model.num_hidden_layers() * counts.block + counts.final_norm +
         counts.head;
}

double FlopsPerToken(const v1::Model& model, int64_t seq_len) {
  const ParameterCounts counts = CountParameters(model);
  const double multiplied =
      double(model.num_hidden_layers()) * counts.block + counts.final_norm + counts.embedding;  // the head's
  const double attention_width = double(model.num_attention_heads()) * model.head_dim();
  double seen = 0;  // by all blocks
  for (int64_t block = 0; block < model.num_hidden_layers(); ++block) {
    const int64_t window = WindowOf(model, block);
    seen += double(window > 0 ? std::min(seq_len, window) : seq_len);
  }
  return 6 * multiplied + 12.0 * attention_width * seen;
}

int64_t WindowOf(const v1::Model& model, int64_t block) {
  return model.sliding_window_alternates() && block % 2 == 1 ? 0 : model.sliding_window();
}

bool MaterializesScores(const v1::Model& model) { return model.attn_pdrop() > 0 || model.attn_logit_softcapping() > 0; }

absl::Status CheckWindow(const v1::Model& model, int64_t seq_len, v1::DeviceKind kind) {
  const int64_t window = model.sliding_window();
  if (kind != v1::CUDA || window == 0 || window >= seq_len || MaterializesScores(model)) return absl::OkStatus();
  return FieldError("training.seq_len", absl::StrCat(seq_len),
                    absl::StrCat("is longer than the model's sliding window of ", window,
                                 " tokens, and attention with a window is not built for CUDA: use at most ", window));
}

absl::StatusOr<double> ModelFlopsUtilization(double flops_per_second, double peak_flops_per_second) {
  constexpr char kField[] = "device.peak_flops";
  if (peak_flops_per_second <= 0)
    return FieldError(kField, "",
                      "the device names no peak in this precision, so its MFU is not known; add it to the device's file");
  const double share = flops_per_second / peak_flops_per_second;
  if (share <= 1) return share;
  return FieldError(
      kField, absl::StrFormat("%.4g", peak_flops_per_second),
      absl::StrFormat("the model's step does %.4g FLOP/s on a device, more than this peak, so its MFU is not known: correct the "
                      "peak in the catalog or the device's file (`lego hardware`)",
                      flops_per_second),
      absl::StatusCode::kOutOfRange);
}

}  // namespace legoai::model

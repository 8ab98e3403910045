#include "core/recipe/recomputation.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/model/model_facts.h"
#include "core/recipe/keep_policy.h"

namespace legoai::parallel {
namespace {

// A product of a block's forward, or a part of its attention.
struct Product {
  std::string module, op;
  int64_t in = 0, out = 0;  // of a rank's weight; of attention 0
  double flops_per_token = 0;
};

class BlockProducts {
 public:
  BlockProducts(const v1::Model& model, int64_t seq_len, int64_t tp) : model_(model), seq_len_(seq_len), tp_(tp) {
    const int64_t h = model.hidden_size(), inner = model.intermediate_size(), q = Queries();
    const int64_t kv = model.num_key_value_heads() * model.head_dim();
    if (model.architecture() == v1::GPT2) {
      Column("attn.q_proj", h, h, /*bias=*/true);
      for (const char* name : {"attn.k_proj", "attn.v_proj"}) Column(name, h, kv, /*bias=*/true);
      Attention("attn");
      Row("attn.c_proj", h, h, /*bias=*/true);
      Column("mlp.c_fc", h, inner, /*bias=*/true);
      Row("mlp.c_proj", inner, h, /*bias=*/true);
      return;
    }
    Column("self_attn.q_proj", h, q, model.qkv_bias());
    Column("self_attn.k_proj", h, kv, model.qkv_bias());
    Column("self_attn.v_proj", h, kv, model.qkv_bias());
    Attention("self_attn");
    Row("self_attn.o_proj", q, h, /*bias=*/false);
    Column("mlp.gate_proj", h, inner, /*bias=*/false);
    Column("mlp.up_proj", h, inner, /*bias=*/false);
    Row("mlp.down_proj", inner, h, /*bias=*/false);
  }

  const std::vector<Product>& list() const { return list_; }

 private:
  int64_t Queries() const { return model_.num_attention_heads() * model_.head_dim(); }
  void Column(const char* module, int64_t in, int64_t out, bool bias) { Add(module, in, out, in, out / tp_, bias); }
  void Row(const char* module, int64_t in, int64_t out, bool bias) { Add(module, in, out, in / tp_, out, bias && tp_ == 1); }
  void Add(const char* module, int64_t in, int64_t out, int64_t local_in, int64_t local_out, bool bias) {
    list_.push_back({module, bias ? "aten::addmm" : "aten::mm", local_in, local_out,
                     2 * static_cast<double>(in) * static_cast<double>(out)});
  }
  // Scores and their product with the values, each a product of its own where scores are materialized, and then of all keys.
  void Attention(const char* module) {
    const bool apart = model::MaterializesScores(model_);
    const int64_t window = model_.sliding_window(), seen = window > 0 && !apart ? std::min(seq_len_, window) : seq_len_;
    const double half = 2 * static_cast<double>(Queries()) * static_cast<double>(seen);
    if (apart) {
      list_.insert(list_.end(), 2, {module, "aten::bmm", 0, 0, half});
    } else {
      list_.push_back({module, "lego::attention", 0, 0, 2 * half});
    }
  }

  const v1::Model& model_;
  const int64_t seq_len_, tp_;
  std::vector<Product> list_;
};

// As worker/parallel/kept_outputs.h does it: a product whose weight has the shape of a named one's is computed again, uncounted.
class Keeper {
 public:
  Keeper(const v1::ActivationCheckpoint& section, int64_t block, const std::vector<Product>& products)
      : rules_(KeepRulesOf(section, block)), counts_(rules_.size()) {
    for (const Product& product : products) {
      if (product.in > 0 && IsForcedAgain(section, product.module)) forced_.emplace_back(product.in, product.out);
    }
  }

  bool Keeps(const Product& product) {
    if (product.in > 0 && std::find(forced_.begin(), forced_.end(), std::pair(product.in, product.out)) != forced_.end())
      return false;
    bool keeps = false;
    for (size_t i = 0; i < rules_.size(); ++i) {
      const auto& names = rules_[i].operators;
      const bool named = std::find(names.begin(), names.end(), product.op) != names.end();
      if (named && rules_[i].Matches(product.module)) keeps = rules_[i].Keeps(++counts_[i]) || keeps;
    }
    return keeps;
  }

 private:
  const std::vector<KeepRule> rules_;
  std::vector<int64_t> counts_;  // by rule
  std::vector<std::pair<int64_t, int64_t>> forced_;
};

// `ends_in_norm`: the block's last product is needed for the gradient of a norm behind it.
double BlockFlops(const v1::ActivationCheckpoint& section, int64_t block, const std::vector<Product>& products,
                  bool ends_in_norm) {
  Keeper keeper(section, block, products);
  double flops = 0;
  for (const Product& product : products) {
    const bool last = &product == &products.back() && !ends_in_norm;
    if (!keeper.Keeps(product) && !last) flops += product.flops_per_token;
  }
  return flops;
}

}  // namespace

double RecomputedFlopsPerToken(const ResolvedRecipe& resolved) {
  const BlockProducts products(resolved.model(), resolved.seq_len(), resolved.mesh().tp);
  const bool ends_in_norm = resolved.model().architecture() == v1::GEMMA2;
  double flops = 0;
  for (int64_t chunk = 0; chunk < resolved.placement().chunks; ++chunk) {
    const auto [first, last] = resolved.LayersOf(chunk);
    for (int64_t block = first; block < last; ++block) {
      if (resolved.RecomputedBlocks(block, block + 1) == 0) continue;
      flops += BlockFlops(resolved.recipe().activation_checkpoint(), block, products.list(), ends_in_norm);
    }
  }
  return flops;
}

}  // namespace legoai::parallel

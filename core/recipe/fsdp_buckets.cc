#include "core/recipe/fsdp_buckets.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/recipe/chunks.h"
#include "core/recipe/keep_policy.h"
#include "proto/errors.h"

namespace legoai::parallel {
namespace {

constexpr char kEachLayer[] = "layers.*";

// "layers.0.mlp" holds "layers.0.mlp.up_proj".
bool Holds(const std::string& outer, const std::string& inner) {
  return inner == outer || absl::StartsWith(inner, absl::StrCat(outer, "."));
}

template <class Parts>
std::vector<FsdpBucket> Listed(const Parts& parts, int64_t layers) {
  std::vector<FsdpBucket> buckets;
  for (const v1::ModelPart& part : parts) {
    const FsdpBucket names(part.modules().begin(), part.modules().end());
    const bool each = std::any_of(names.begin(), names.end(),
                                  [](const std::string& name) { return absl::StartsWith(name, kEachLayer); });
    for (int64_t layer = 0; layer < (each ? layers : 1); ++layer) {
      FsdpBucket& bucket = buckets.emplace_back(names);
      for (std::string& name : bucket) {
        if (absl::StartsWith(name, kEachLayer)) name.replace(0, sizeof kEachLayer - 1, absl::StrCat("layers.", layer));
      }
    }
  }
  return buckets;
}

}  // namespace

bool PassesJoinCollectives(const v1::Recipe& recipe) {
  const v1::FsdpBucketing bucketing = recipe.compile().fsdp_bucketing();
  return recipe.compile().enable() && (bucketing == v1::BUCKET_NOTHING || bucketing == v1::BUCKET_BY_MODULES ||
                                       bucketing == v1::BUCKET_BY_PLAN);
}

absl::Status CheckBucketsArePlanned(const v1::Recipe& recipe) {
  if (recipe.compile().fsdp_bucketing() != v1::BUCKET_BY_PLAN) return absl::OkStatus();
  return FieldError("compile.fsdp_bucketing", "auto",
                    "is planned before it trains: `lego plan` does, and `lego simulate --out FILE` writes the recipe with its "
                    "compile.fsdp_buckets");
}

std::vector<FsdpBucket> FsdpBuckets(const v1::Recipe& recipe, int64_t layers) {
  if (recipe.compile().fsdp_bucketing() != v1::BUCKET_BY_MODULES) return {};
  return Listed(recipe.compile().fsdp_buckets(), layers);
}

std::vector<FsdpBucket> FsdpBackwardBuckets(const v1::Recipe& recipe, int64_t layers) {
  if (recipe.compile().fsdp_backward_buckets().empty()) return FsdpBuckets(recipe, layers);
  if (recipe.compile().fsdp_bucketing() != v1::BUCKET_BY_MODULES) return {};
  return Listed(recipe.compile().fsdp_backward_buckets(), layers);
}

int64_t BucketOf(const std::vector<FsdpBucket>& buckets, const std::string& parameter) {
  const std::string module = ModuleOfParameter(parameter);
  for (size_t i = 0; i < buckets.size(); ++i) {
    for (const std::string& name : buckets[i]) {
      if (Holds(name, module)) return static_cast<int64_t>(i);
    }
  }
  return -1;
}

std::string ModuleOfParameter(const std::string& parameter) {
  std::string name = parameter.substr(0, parameter.rfind('.'));
  for (const absl::string_view root : {"model.", "transformer."}) {
    if (absl::StartsWith(name, root)) name.erase(0, root.size());
  }
  static constexpr std::array<std::pair<absl::string_view, absl::string_view>, 5> kWhole = {
      {{"embed_tokens", "tok_embeddings"}, {"wte", "tok_embeddings"}, {"wpe", "tok_embeddings"}, {"ln_f", "norm"},
       {"lm_head", "output"}}};
  for (const auto& [theirs, ours] : kWhole) {
    if (name == theirs) return std::string(ours);
  }
  return absl::StartsWith(name, "h.") ? absl::StrCat("layers.", name.substr(2)) : name;
}

std::vector<std::string> BucketableModules(const v1::Model& model) {
  std::vector<std::string> names;
  for (const std::string& name : ModuleNames(model.num_hidden_layers())) {
    names.push_back(name);
    if (!absl::StartsWith(name, "layers.")) continue;
    for (const std::string& inner : ModulesOfBlock(model)) {
      if (!inner.empty()) names.push_back(absl::StrCat(name, ".", inner));
    }
  }
  return names;
}

}  // namespace legoai::parallel

#include "planner/last_choices.h"

namespace legoai::planner {
namespace {

bool IsOf16Bits(v1::DType dtype) { return dtype == v1::BFLOAT16 || dtype == v1::FLOAT16; }

// The most that was predicted is 2.6 %, of a billion parameters and microbatches of one sequence (docs/recipe.md).
constexpr LastChoice kMasters = {
    "masters beside parameters in 16 bits (optimizer.master_weights)", false, 0.05,
    [](const v1::Recipe& recipe) {
      const v1::Training& training = recipe.training();
      return IsOf16Bits(training.mixed_precision_param()) && !IsOf16Bits(training.dtype()) && !HasShards(recipe);
    },
    [](const OpenChoices&, v1::Recipe* recipe) {
      recipe->mutable_training()->set_dtype(recipe->training().mixed_precision_param());
      recipe->mutable_optimizer()->set_master_weights(true);
    }};

constexpr LastChoice kGraphMode = {
    "graph mode (compile.enable)", true, 1, [](const v1::Recipe& recipe) { return !recipe.compile().enable(); },
    [](const OpenChoices&, v1::Recipe* recipe) { recipe->mutable_compile()->set_enable(true); }};

constexpr LastChoice kAsyncTensorParallel = {
    "asynchronous tensor parallel (parallelism.enable_async_tensor_parallel)", false, 1,
    [](const v1::Recipe& recipe) {
      const v1::Parallelism& p = recipe.parallelism();
      return recipe.compile().enable() && p.tensor_parallel_degree() > 1 && !p.enable_async_tensor_parallel();
    },
    [](const OpenChoices&, v1::Recipe* recipe) { recipe->mutable_parallelism()->set_enable_async_tensor_parallel(true); }};

constexpr LastChoice kPlannedBuckets = {
    "planned buckets (compile.fsdp_bucketing)", false, 1,
    [](const v1::Recipe& recipe) {
      return recipe.compile().enable() && recipe.compile().fsdp_bucketing() == v1::BUCKET_BY_BLOCK && HasShards(recipe);
    },
    [](const OpenChoices& open, v1::Recipe* recipe) {
      recipe->mutable_compile()->set_fsdp_bucketing(v1::BUCKET_BY_PLAN);
      if (open.depth) recipe->mutable_parallelism()->set_fsdp_prefetch_depth(1);  // passes gather one bucket ahead
    }};

constexpr LastChoice kFusedOperators = {
    "fused operators (compile.fuse)", false, 1,
    [](const v1::Recipe& recipe) { return recipe.compile().enable() && !recipe.compile().fuse(); },
    [](const OpenChoices&, v1::Recipe* recipe) {
      recipe->mutable_compile()->set_fuse(true);
      recipe->mutable_compile()->set_fall_back_to_eager(true);  // where the host that trains has no compiler
    }};

}  // namespace

std::vector<const LastChoice*> LastChoices(const OpenChoices& open) {
  std::vector<const LastChoice*> choices;
  if (open.masters) choices.push_back(&kMasters);
  if (open.graph_mode) choices.push_back(&kGraphMode);
  if (open.async_tensor_parallel) choices.push_back(&kAsyncTensorParallel);
  if (open.tries_buckets) choices.push_back(&kPlannedBuckets);
  if (open.fuses) choices.push_back(&kFusedOperators);
  return choices;
}

bool HasShards(const v1::Recipe& recipe) {
  const v1::Parallelism& p = recipe.parallelism();
  return p.data_parallel_shard_degree() * p.context_parallel_degree() > 1;
}

}  // namespace legoai::planner

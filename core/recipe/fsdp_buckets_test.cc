#include "core/recipe/fsdp_buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/model/catalog.h"
#include "core/recipe/recipe.h"
#include "core/recipe/resolved_recipe.h"
#include "proto/errors.h"

namespace legoai::parallel {
namespace {

using ::testing::HasSubstr;

v1::Recipe Bucketed(const std::vector<std::vector<std::string>>& buckets) {
  v1::Recipe recipe = DefaultRecipe();
  recipe.mutable_compile()->set_enable(true);
  recipe.mutable_compile()->set_fsdp_bucketing(v1::BUCKET_BY_MODULES);
  for (const auto& bucket : buckets) {
    v1::ModelPart* const part = recipe.mutable_compile()->add_fsdp_buckets();
    for (const std::string& module : bucket) part->add_modules(module);
  }
  return recipe;
}

TEST(FsdpBuckets, EachLayerIsABucketOfItsOwn) {
  const auto buckets = FsdpBuckets(Bucketed({{"tok_embeddings", "norm"}, {"layers.*.mlp", "layers.*.self_attn"}}), 2);
  const std::vector<FsdpBucket> due = {
      {"tok_embeddings", "norm"}, {"layers.0.mlp", "layers.0.self_attn"}, {"layers.1.mlp", "layers.1.self_attn"}};
  EXPECT_EQ(buckets, due);
}

TEST(FsdpBuckets, HoldParametersOfBothFamilies) {
  const std::vector<FsdpBucket> buckets = {{"tok_embeddings", "output"}, {"layers.1"}, {"layers.11.mlp"}, {"norm"}};
  for (const auto& [parameter, bucket] : std::vector<std::pair<std::string, int64_t>>{
           {"model.embed_tokens.weight", 0}, {"transformer.wte.weight", 0}, {"transformer.wpe.weight", 0}, {"lm_head.weight", 0},
           {"model.layers.1.mlp.up_proj.weight", 1}, {"transformer.h.1.ln_1.bias", 1}, {"model.layers.11.mlp.up_proj.weight", 2},
           {"model.layers.11.self_attn.q_proj.weight", -1}, {"model.layers.10.input_layernorm.weight", -1},
           {"model.norm.weight", 3}, {"transformer.ln_f.bias", 3}}) {
    EXPECT_EQ(BucketOf(buckets, parameter), bucket) << parameter;
  }
}

v1::Recipe WithBackward(v1::Recipe recipe, const std::vector<std::vector<std::string>>& buckets) {
  for (const auto& bucket : buckets) {
    v1::ModelPart* const part = recipe.mutable_compile()->add_fsdp_backward_buckets();
    for (const std::string& module : bucket) part->add_modules(module);
  }
  return recipe;
}

TEST(FsdpBackwardBuckets, AreThoseOfTheForwardWhereNoneAreListed) {
  const v1::Recipe both = Bucketed({{"layers.*"}});
  EXPECT_EQ(FsdpBackwardBuckets(both, 2), FsdpBuckets(both, 2));
  const v1::Recipe apart = WithBackward(both, {{"norm", "output"}, {"layers.*.mlp"}});
  EXPECT_EQ(FsdpBuckets(apart, 2), (std::vector<FsdpBucket>{{"layers.0"}, {"layers.1"}}));
  EXPECT_EQ(FsdpBackwardBuckets(apart, 2), (std::vector<FsdpBucket>{{"norm", "output"}, {"layers.0.mlp"}, {"layers.1.mlp"}}));
  v1::Recipe by_block = apart;
  by_block.mutable_compile()->set_fsdp_bucketing(v1::BUCKET_BY_BLOCK);
  EXPECT_TRUE(FsdpBackwardBuckets(by_block, 2).empty());
}

v1::FieldViolation Refusal(const v1::Recipe& recipe) {
  const auto resolved = ResolvedRecipe::Create(recipe, model::ResolveModel("llama3-1b").value(), 8);
  EXPECT_FALSE(resolved.ok()) << recipe.DebugString();
  return GetFieldViolation(resolved.status()).value_or(v1::FieldViolation());
}

TEST(FsdpBuckets, ThatAreSoundAreLegal) {
  const v1::Model model = model::ResolveModel("llama3-1b").value();
  for (const v1::Recipe& recipe :
       {Bucketed({{"layers.*"}}), Bucketed({{"tok_embeddings", "layers.0.mlp"}, {"norm", "output"}})}) {
    EXPECT_TRUE(ResolvedRecipe::Create(recipe, model, 8).ok()) << ResolvedRecipe::Create(recipe, model, 8).status();
  }
}

TEST(FsdpBuckets, NameModulesOfTheModelOnce) {
  EXPECT_EQ(Refusal(Bucketed({{"layers.16"}})).field(), "compile.fsdp_buckets");
  EXPECT_THAT(Refusal(Bucketed({{"layers.3.mlp.up_porj"}})).remedy(), HasSubstr("the nearest is layers.3.mlp.up_proj"));
  EXPECT_THAT(Refusal(Bucketed({{"layers.*"}, {"layers.2.mlp"}})).remedy(), HasSubstr("shares parameters with layers.2"));
  EXPECT_THAT(Refusal(Bucketed({{"norm"}, {"norm"}})).remedy(), HasSubstr("listed twice"));
  EXPECT_EQ(Refusal(Bucketed({})).field(), "compile.fsdp_buckets");
}

// Each list by itself: a module is in a bucket of the forward and in one of the backward.
TEST(FsdpBackwardBuckets, NameModulesOfTheModelOnce) {
  const v1::Recipe forward = Bucketed({{"layers.*"}});
  const v1::Model model = model::ResolveModel("llama3-1b").value();
  const auto legal = ResolvedRecipe::Create(WithBackward(forward, {{"layers.3", "layers.4.mlp"}}), model, 8);
  EXPECT_TRUE(legal.ok()) << legal.status();
  for (const auto& [buckets, remedy] : std::vector<std::pair<std::vector<std::vector<std::string>>, std::string>>{
           {{{"layers.16"}}, "is no module of the model"},
           {{{"layers.*"}, {"layers.2.mlp"}}, "shares parameters with layers.2"},
           {{{"norm"}, {"norm"}}, "listed twice"},
           {{{}}, "without modules"}}) {
    const v1::FieldViolation fault = Refusal(WithBackward(forward, buckets));
    EXPECT_EQ(fault.field(), "compile.fsdp_backward_buckets");
    EXPECT_THAT(fault.remedy(), HasSubstr(remedy));
  }
  v1::Recipe planned = WithBackward(DefaultRecipe(), {{"norm"}});
  planned.mutable_compile()->set_enable(true);
  planned.mutable_compile()->set_fsdp_bucketing(v1::BUCKET_BY_PLAN);
  EXPECT_EQ(Refusal(planned).field(), "compile.fsdp_backward_buckets") << "a plan decides both";
}

TEST(FsdpBucketing, NeedsAProgramAndRefusesWhatItDoesNotGoWith) {
  v1::Recipe recipe = Bucketed({{"layers.*"}});
  recipe.mutable_compile()->set_enable(false);
  EXPECT_THAT(Refusal(recipe).remedy(), HasSubstr("compile.enable = true"));
  recipe = DefaultRecipe();
  recipe.mutable_compile()->set_fsdp_reorder(false);
  EXPECT_EQ(Refusal(recipe).field(), "compile.fsdp_reorder");
  using Set = void (v1::Parallelism::*)(int64_t);
  for (const auto& [set, value, field] : std::vector<std::tuple<Set, int64_t, std::string>>{
           {&v1::Parallelism::set_data_parallel_replicate_degree, 8, "data_parallel_replicate_degree"},
           {&v1::Parallelism::set_fsdp_reshard_after_forward_size, 2, "fsdp_reshard_after_forward_size"},
           {&v1::Parallelism::set_fsdp_prefetch_depth, 2, "fsdp_prefetch_depth"}}) {
    recipe = Bucketed({{"layers.*"}});
    (recipe.mutable_parallelism()->*set)(value);
    EXPECT_EQ(Refusal(recipe).field(), "parallelism." + field);
  }
}

TEST(FsdpBucketing, GoesWithReplicasOfShardsAndWithEveryZeroStage) {
  for (const int64_t stage : {1, 2, 3}) {
    for (const int64_t replicas : {1, 2}) {
      v1::Recipe recipe = Bucketed({{"layers.*"}});
      recipe.mutable_parallelism()->set_zero_stage(stage);
      recipe.mutable_parallelism()->set_data_parallel_replicate_degree(replicas);
      const auto resolved = ResolvedRecipe::Create(recipe, model::ResolveModel("llama3-1b").value(), 8);
      EXPECT_TRUE(resolved.ok()) << resolved.status();
    }
  }
}

TEST(FsdpBucketing, IsPlannedBeforeItTrains) {
  v1::Recipe recipe = DefaultRecipe();
  recipe.mutable_compile()->set_fsdp_bucketing(v1::BUCKET_BY_PLAN);
  EXPECT_THAT(Refusal(recipe).remedy(), HasSubstr("compile.enable = true"));
  recipe.mutable_compile()->set_enable(true);
  EXPECT_TRUE(ResolvedRecipe::Create(recipe, model::ResolveModel("llama3-1b").value(), 8).ok());
  const auto fault = GetFieldViolation(CheckBucketsArePlanned(recipe));
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->field(), "compile.fsdp_bucketing");
  EXPECT_EQ(fault->value(), "auto");
  EXPECT_THAT(fault->remedy(), HasSubstr("lego simulate --out"));
  EXPECT_TRUE(CheckBucketsArePlanned(Bucketed({{"layers.*"}})).ok());
}

}  // namespace
}  // namespace legoai::parallel

#include "server/cli/whatif/compare_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "core/recipe/recipe.h"
#include "proto/testing/assert_ok.h"

namespace legoai::cli {
namespace {

v1::Estimate Estimate(double seconds, int64_t gib, bool fits = true) {
  v1::Estimate estimate;
  estimate.set_model("llama3-8b");
  estimate.set_cluster("h100-sxm-80:8x1");
  estimate.set_step_time_seconds(seconds);
  estimate.set_fits(fits);
  estimate.mutable_breakdown()->set_compute_seconds(seconds);
  auto* stage = estimate.add_stages();
  stage->set_peak_allocated_bytes(gib << 30);
  stage->mutable_categories()->set_activation(gib << 30);
  stage->set_capacity_bytes(int64_t{80} << 30);
  return estimate;
}

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

Comparison Three() {
  Comparison comparison{"a.toml", "b.toml", Estimate(4, 40), Estimate(3, 60), {}};
  comparison.a.set_mfu(0.44);
  comparison.b.set_mfu(0.40);
  comparison.changes.push_back({{{"activation_checkpoint.mode", "full", "none"}}, Estimate(3.2, 58)});
  comparison.changes.push_back(
      {{{"parallelism.tensor_parallel_degree", "1", "2"}, {"parallelism.data_parallel_shard_degree", "8", "4"}},
       Estimate(4.4, 90, false)});
  comparison.changes.push_back({{{"training.steps", "10", "20"}}, Estimate(4, 40)});
  return comparison;
}

TEST(CompareTextTest, EachChangeStandsWithItsCostAndTheRestIsSaid) {
  const std::string text = ComparisonText(Three());
  EXPECT_TRUE(Has(text, "-1.000 s (-25.0 %)")) << text;  // B against A
  EXPECT_TRUE(Has(text, "-800 ms (-20.0 %)")) << text;   // the first change alone
  EXPECT_TRUE(Has(text, "+18.0 GiB (+45.0 %)")) << text;
  EXPECT_TRUE(Has(text, "+ parallelism.data_parallel_shard_degree")) << text;
  EXPECT_TRUE(Has(text, "+50.0 GiB (2.25 times)")) << text;
  EXPECT_TRUE(Has(text, "MFU")) << text;
  EXPECT_TRUE(Has(text, "-4.0 points")) << text;
  EXPECT_TRUE(Has(text, "does not fit")) << text;
  EXPECT_TRUE(Has(text, "without effect on time and memory: training.steps (10, 20)")) << text;
  EXPECT_TRUE(Has(text, "-1.000 s and +20.0 GiB against A. The rows add up to -400 ms and +68.0 GiB")) << text;
}

TEST(CompareTextTest, WhatFailedIsAReasonAndNoFigure) {
  Comparison comparison = Three();
  comparison.changes[0].estimate = absl::InvalidArgumentError("the mode is not supported");
  const std::string text = ComparisonText(comparison);
  EXPECT_TRUE(Has(text, "not simulated")) << text;
  EXPECT_TRUE(Has(text, "the mode is not supported")) << text;
  EXPECT_FALSE(Has(text, "add up to")) << text;
  const Tree tree = ComparisonTree(comparison);
  EXPECT_EQ(tree["changes"][0]["error"], "the mode is not supported");
  EXPECT_FALSE(tree["changes"][0].contains("step_time_seconds"));
}

TEST(CompareTextTest, EqualRecipesAreSaidToBe) {
  const std::string text = ComparisonText({"a.toml", "b.toml", Estimate(4, 40), Estimate(4, 40), {}});
  EXPECT_TRUE(Has(text, "the recipes are the same")) << text;
}

TEST(CompareTextTest, TheTreeHasTheChangesAgainstA) {
  const Tree tree = ComparisonTree(Three());
  EXPECT_DOUBLE_EQ(tree["a"]["step_time_seconds"].get<double>(), 4);
  const Tree& second = tree["changes"][1];
  EXPECT_EQ(second["keys"][1]["key"], "parallelism.data_parallel_shard_degree");
  EXPECT_EQ(second["keys"][1]["b"], "4");
  EXPECT_FALSE(second["fits"].get<bool>());
  EXPECT_NEAR(second["step_time_change_seconds"].get<double>(), 0.4, 1e-9);
  EXPECT_EQ(second["peak_memory_change_bytes"].get<int64_t>(), int64_t{50} << 30);
}

v1::Recipe Read(const std::string& toml) {
  auto recipe = parallel::ParseRecipe(toml);
  EXPECT_TRUE(recipe.ok()) << recipe.status();
  return recipe.ok() ? *recipe : v1::Recipe();
}

TEST(RecipeChangesTest, DefaultsAreNoDifferenceAndTextsAreThoseOfAFile) {
  const v1::Recipe a = Read("[parallelism]\ntensor_parallel_degree = 1\n[training]\nsteps = 5\n");
  const v1::Recipe b = Read("[training]\nsteps = 7\ndataset_path = \"x.txt\"\n[activation_checkpoint]\nmode = \"full\"\n");
  std::vector<std::string> seen;
  for (const KeyChange& change : ChangedKeys(a, b)) seen.push_back(change.key + ": " + change.a + " | " + change.b);
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen, (std::vector<std::string>{"activation_checkpoint.mode: none | full", "training.dataset_path: - | x.txt",
                                            "training.steps: 5 | 7"}));
  EXPECT_TRUE(ChangedKeys(a, a).empty());
}

// Taking over all keys that differ makes B of A, and of A's keys none is lost.
TEST(RecipeChangesTest, AllChangesTogetherAreTheOtherRecipe) {
  const v1::Recipe a = Read("[training]\nsteps = 5\ndataset_path = \"x.txt\"\n[optimizer]\nlr = 1e-3\n");
  const v1::Recipe b = Read("[training]\nlocal_batch_size = 2\n[parallelism]\ntensor_parallel_degree = 2\n");
  std::vector<std::string> keys;
  for (const KeyChange& change : ChangedKeys(a, b)) keys.push_back(change.key);
  const auto all = WithKeysOf(a, b, keys), none = WithKeysOf(a, b, {});
  ASSERT_TRUE(all.ok() && none.ok());
  EXPECT_TRUE(ChangedKeys(*all, b).empty());
  EXPECT_TRUE(ChangedKeys(*none, a).empty());
  ASSERT_OK_AND_ASSIGN(const auto unset, WithKeysOf(a, b, {"training.dataset_path"}));
  EXPECT_FALSE(unset.training().has_dataset_path());
  EXPECT_EQ(unset.training().steps(), 5);
}

// Against a search through every set of keys.
TEST(RecipeChangesTest, TheSmallestLegalSetWithEachKeyIsFound) {
  // Key 0 is free; 1 needs 2; 3 needs 1 and so 2.
  const auto legal = [](const std::vector<size_t>& set) {
    const std::set<size_t> has(set.begin(), set.end());
    return (!has.count(1) || has.count(2)) && (!has.count(3) || has.count(1));
  };
  const auto changes = SmallestLegalChanges(4, legal);
  EXPECT_EQ(changes, (std::vector<std::vector<size_t>>{{0}, {1, 2}, {2}, {1, 2, 3}}));
  for (size_t key = 0; key < 4; ++key) {
    size_t smallest = 5;
    for (unsigned bits = 1; bits < 16; ++bits) {
      std::vector<size_t> set;
      for (size_t i = 0; i < 4; ++i) {
        if (bits & (1u << i)) set.push_back(i);
      }
      if ((bits & (1u << key)) && legal(set)) smallest = std::min(smallest, set.size());
    }
    const bool found = std::any_of(changes.begin(), changes.end(), [&](const auto& set) {
      return set.size() == smallest && std::find(set.begin(), set.end(), key) != set.end();
    });
    EXPECT_TRUE(found) << key;
  }
  EXPECT_TRUE(SmallestLegalChanges(0, legal).empty());
}

TEST(RecipeChangesTest, WhereNoSmallSetIsLegalAllKeysAreOneChange) {
  const auto changes = SmallestLegalChanges(6, [](const auto& set) { return set.size() == 6; });
  EXPECT_EQ(changes, (std::vector<std::vector<size_t>>{{0, 1, 2, 3, 4, 5}}));
}

}  // namespace
}  // namespace legoai::cli

#include "server/cli/whatif/recipe_changes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "core/recipe/recipe.h"

namespace legoai::cli {
namespace {

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
  const auto unset = WithKeysOf(a, b, {"training.dataset_path"});
  ASSERT_TRUE(unset.ok());
  EXPECT_FALSE(unset->training().has_dataset_path());
  EXPECT_EQ(unset->training().steps(), 5);
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

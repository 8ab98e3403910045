// Two hundred recipes drawn at random: each is refused by name, or trains two steps with the losses of one process.
//   TEST_RANDOM_SEED=7 draws others; a test's name has its seed.
#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <set>
#include <string>

#include "core/recipe/recipe.h"
#include "core/recipe/resolved_recipe.h"
#include "proto/errors.h"
#include "tests/integration/random_cases.h"
#include "tests/integration/train_in_processes.h"

namespace legoai::integration {
namespace {

constexpr int64_t kRecipes = 200;

class RandomRecipe : public testing::TestWithParam<uint64_t> {};

TEST_P(RandomRecipe, IsRefusedByNameOrTrainsLikeOneProcess) {
  const Case drawn = DrawCase(GetParam());
  SCOPED_TRACE(testing::Message() << drawn.world_size << " ranks, " << drawn.model.ShortDebugString() << "\n"
                                  << drawn.recipe.DebugString());
  const auto resolved = parallel::ResolvedRecipe::Create(drawn.recipe, drawn.model, drawn.world_size);
  if (resolved.ok()) return ExpectLossesOfOneProcess(drawn);
  const auto violation = GetFieldViolation(resolved.status());
  ASSERT_TRUE(violation) << resolved.status();
  EXPECT_FALSE(violation->field().empty()) << resolved.status();
  EXPECT_FALSE(violation->remedy().empty()) << resolved.status();
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomRecipe, testing::Range(FirstSeed(), FirstSeed() + kRecipes),
                         [](const auto& info) { return std::to_string(info.param); });

// Techniques that a legal recipe uses, by what to call them.
std::map<std::string, bool> TechniquesOf(const Case& drawn, const parallel::ResolvedRecipe& resolved) {
  const mesh::Mesh& mesh = resolved.mesh();
  const auto rotation = drawn.recipe.parallelism().context_parallel_rotate_method();
  return {
      {"on several ranks", drawn.world_size > 1},
      {"in a V", resolved.placement().in_v && mesh.pp > 1},
      {"with whole parameters", resolved.parameters_stay_whole()},
      {"context parallel", mesh.cp > 1},
      {"in rings", mesh.cp > 1 && rotation != v1::ROTATE_BY_ALL_GATHER},
      {"with Muon on parts", drawn.recipe.optimizer().name() == "Muon" && mesh.tp * mesh.cp > 1},
      {"gathering inputs again", mesh.gathers_beside && mesh.tp > 1},
      {"with whole tokens", !parallel::SplitsTokens(drawn.recipe.parallelism()) && mesh.tp > 1},
      {"resharding over smaller groups", mesh.reshard > 1},
      {"held in bf16", drawn.recipe.training().dtype() == v1::BFLOAT16},
  };
}

// What is drawn is worth the time: much of it trains, on several ranks, and techniques meet.
TEST(RandomRecipes, AreLegalOftenEnough) {
  int64_t legal = 0;
  std::map<std::string, int64_t> recipes_with;
  std::set<v1::PipelineSchedule> schedules;
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + kRecipes; ++seed) {
    const Case drawn = DrawCase(seed);
    const auto resolved = parallel::ResolvedRecipe::Create(drawn.recipe, drawn.model, drawn.world_size);
    if (!resolved.ok()) continue;
    ++legal;
    for (const auto& [technique, used] : TechniquesOf(drawn, *resolved)) recipes_with[technique] += used;
    if (resolved->mesh().pp > 1) schedules.insert(drawn.recipe.parallelism().pipeline_parallel_schedule());
  }
  std::cout << "seeds from " << FirstSeed() << ": " << legal << " of " << kRecipes << " recipes are legal, with "
            << schedules.size() << " schedules\n";
  for (const auto& [technique, recipes] : recipes_with) {
    std::cout << "  " << recipes << " " << technique << "\n";
    EXPECT_GE(recipes, 3) << technique;
  }
  EXPECT_GE(legal, kRecipes / 4);
  EXPECT_GE(recipes_with["on several ranks"], legal / 2);
  EXPECT_GE(schedules.size(), 5u);
}

}  // namespace
}  // namespace legoai::integration

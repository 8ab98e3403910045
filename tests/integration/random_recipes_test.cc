// Two hundred recipes drawn at random: each is refused by name, or trains two steps with the losses of one process.
//   TEST_RANDOM_SEED=7 draws others; a test's name has its seed.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "core/recipe/resolved_recipe.h"
#include "proto/errors.h"
#include "tests/integration/random_cases.h"
#include "tests/integration/train_in_processes.h"

namespace legoai::integration {
namespace {

constexpr int64_t kRecipes = 200, kSteps = 2;

void ExpectLossesOfOneProcess(const Case& drawn) {
  const Training expected = Train(Reference(drawn), kSteps), actual = Train(drawn, kSteps);
  ASSERT_EQ(actual.losses.size(), size_t(kSteps));
  const bool bf16 = drawn.recipe.training().mixed_precision_param() == v1::BFLOAT16;
  const bool muon = drawn.recipe.optimizer().name() == "Muon";  // orthogonalizes in bf16
  const double of_loss = bf16 ? 2e-2 : muon ? 2e-3 : 1e-5, of_norm = bf16 ? 5e-2 : muon ? 2e-2 : 1e-4;
  for (int64_t step = 0; step < kSteps; ++step) {
    EXPECT_NEAR(actual.losses[step], expected.losses[step], of_loss * expected.losses[step]) << "step " << step;
    EXPECT_NEAR(actual.grad_norms[step], expected.grad_norms[step], of_norm * expected.grad_norms[step])
        << "step " << step;
  }
}

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

// What is drawn is worth the time: much of it trains, on several ranks, and techniques meet.
TEST(RandomRecipes, AreLegalOftenEnough) {
  int64_t legal = 0, on_several_ranks = 0, in_v = 0, whole_parameters = 0, context = 0, rings = 0, muon_in_parts = 0;
  int64_t again = 0, regrouped = 0;
  std::set<v1::PipelineSchedule> schedules;
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + kRecipes; ++seed) {
    const Case drawn = DrawCase(seed);
    const auto resolved = parallel::ResolvedRecipe::Create(drawn.recipe, drawn.model, drawn.world_size);
    if (!resolved.ok()) continue;
    ++legal;
    in_v += resolved->placement().in_v && resolved->mesh().pp > 1;
    whole_parameters += resolved->parameters_stay_whole();
    context += resolved->mesh().cp > 1;
    rings += resolved->mesh().cp > 1 &&
             drawn.recipe.parallelism().context_parallel_rotate_method() != v1::ROTATE_BY_ALL_GATHER;
    muon_in_parts += drawn.recipe.optimizer().name() == "Muon" && resolved->mesh().tp * resolved->mesh().cp > 1;
    again += resolved->mesh().gathers_beside && resolved->mesh().tp > 1;
    regrouped += resolved->mesh().reshard > 1;
    on_several_ranks += drawn.world_size > 1;
    if (drawn.recipe.parallelism().pipeline_parallel_degree() > 1)
      schedules.insert(drawn.recipe.parallelism().pipeline_parallel_schedule());
  }
  std::printf(
      "seeds from %lu: %ld of %ld recipes are legal, %ld on several ranks; %zu schedules, %ld in a V, %ld with whole parameters, "
      "%ld context parallel, %ld of them in rings, %ld with Muon on parts, %ld that gather inputs again, %ld that reshard over "
      "smaller groups\n",
      static_cast<unsigned long>(FirstSeed()), static_cast<long>(legal), static_cast<long>(kRecipes),
      static_cast<long>(on_several_ranks), schedules.size(), static_cast<long>(in_v), static_cast<long>(whole_parameters),
      static_cast<long>(context), static_cast<long>(rings), static_cast<long>(muon_in_parts), static_cast<long>(again),
      static_cast<long>(regrouped));
  EXPECT_GE(legal, kRecipes / 4);
  EXPECT_GE(on_several_ranks, legal / 2);
  EXPECT_GE(schedules.size(), 5u);
  for (const int64_t met : {in_v, whole_parameters, context, rings, muon_in_parts, again, regrouped}) EXPECT_GE(met, 3);
}

}  // namespace
}  // namespace legoai::integration

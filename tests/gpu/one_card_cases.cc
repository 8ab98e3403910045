#include "tests/gpu/one_card_cases.h"

#include <set>
#include <string>
#include <utility>

#include "core/model/model_facts.h"
#include "core/recipe/recipe.h"
#include "core/recipe/resolved_recipe.h"
#include "tests/integration/train_in_processes.h"

namespace legoai::gpu {
namespace {

using integration::Case;

// Without its layout; it accumulates if it did before.
Case OnOneRank(Case test_case) {
  const auto before =
      integration::Must(parallel::ResolvedRecipe::Create(test_case.recipe, test_case.model, test_case.world_size));
  const int64_t parts = before.accumulation() > 1 ? 2 : 1;
  auto* parallelism = test_case.recipe.mutable_parallelism();
  *parallelism = parallel::DefaultRecipe().parallelism();
  parallelism->set_data_parallel_shard_degree(1);
  auto* training = test_case.recipe.mutable_training();
  training->set_local_batch_size(training->global_batch_size() / parts);
  test_case.world_size = 1;
  return test_case;
}

}  // namespace

std::vector<Case> OneCardCases() {
  std::vector<Case> cases;
  std::set<std::pair<std::string, std::string>> seen;
  for (const Case& test_case : integration::ParityCases()) {
    Case alone = OnOneRank(test_case);
    const auto resolved = integration::Must(parallel::ResolvedRecipe::Create(alone.recipe, alone.model, 1));
    if (!model::CheckWindow(alone.model, resolved.seq_len(), v1::CUDA).ok()) continue;
    const bool is_new = seen.insert({alone.model.SerializeAsString(), alone.recipe.SerializeAsString()}).second;
    if (is_new) cases.push_back(std::move(alone));
  }
  return cases;
}

}  // namespace legoai::gpu

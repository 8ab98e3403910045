#include "core/recipe/resolved_recipe.h"

#include <google/protobuf/stubs/logging.h>

#include <utility>

#include "core/recipe/chunks.h"
#include "core/recipe/recipe.h"
#include "proto/errors.h"

namespace legoai::parallel {

absl::StatusOr<ResolvedRecipe> ResolvedRecipe::Create(v1::Recipe recipe, const v1::Model& model, int64_t world_size,
                                                      Violation* broken) {
  FillDefaults(&recipe);
  Layout layout;
  if (auto violation = FirstViolation(recipe, model, world_size, &layout)) {
    const absl::Status status = FieldError(violation->field, violation->value, violation->remedy);
    if (broken != nullptr) *broken = *std::move(violation);
    return status;
  }
  ResolvedRecipe resolved;
  recipe.mutable_parallelism()->set_data_parallel_shard_degree(layout.mesh.dp_shard);
  if (!recipe.parallelism().has_context_parallel_rotate_method())
    recipe.mutable_parallelism()->set_context_parallel_rotate_method(v1::ROTATE_BY_ALL_GATHER);
  recipe.mutable_training()->set_global_batch_size(layout.global_batch);
  resolved.recipe_ = std::move(recipe);
  resolved.model_ = model;
  resolved.mesh_ = layout.mesh;
  resolved.placement_ = PlacementOf(resolved.recipe_.parallelism(), model.num_hidden_layers());
  return resolved;
}

Schedule ResolvedRecipe::MakeSchedule() const {
  if (const auto listed = ListedSchedule(recipe_.parallelism())) return *listed;
  const v1::PipelineSchedule kind = recipe_.parallelism().pipeline_parallel_schedule();
  auto schedule = parallel::MakeSchedule(kind, mesh_.pp, placement_.chunks, microbatches());
  GOOGLE_CHECK(schedule.ok()) << schedule.status().ToString();  // the rules of legality.h let only these through
  return *std::move(schedule);
}

int64_t ResolvedRecipe::microbatch_size() const {
  return mesh_.pp > 1 ? recipe_.parallelism().pipeline_parallel_microbatch_size() : local_batch();
}

bool ResolvedRecipe::loss_parallel() const { return mesh_.tp > 1 && !recipe_.parallelism().disable_loss_parallel(); }

bool ResolvedRecipe::reshard_after_forward() const {
  const v1::ReshardPolicy policy = recipe_.parallelism().fsdp_reshard_after_forward();
  return !parameters_stay_whole() && (policy == v1::RESHARD_ALWAYS || (policy == v1::RESHARD_DEFAULT && mesh_.pp == 1));
}

int64_t ResolvedRecipe::RecomputedBlocks(int64_t first, int64_t last) const {
  return parallel::RecomputedBlocks(recipe_.activation_checkpoint(), first, last);
}

std::pair<int64_t, int64_t> ResolvedRecipe::LayersOf(int64_t chunk) const {
  return LayersOfChunk(recipe_.parallelism(), model_.num_hidden_layers(), chunk);
}

}  // namespace legoai::parallel

// A recipe that was completed and found legal for a model and a number of ranks: defaults filled in, degrees and batches derived,
// the mesh laid out. Created once, where a recipe enters; code that holds one need not check it again.
//
// A value; const access is thread-safe.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "core/mesh/mesh.h"
#include "core/recipe/legality.h"
#include "core/schedule/schedule.h"
#include "proto/legoai/v1/model.pb.h"
#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::parallel {

class ResolvedRecipe {
 public:
  // Unset keys count as their defaults. Errors: FieldError of the first rule of legality.h that the recipe breaks; `broken`, if
  // not null, is set to the rule.
  static absl::StatusOr<ResolvedRecipe> Create(v1::Recipe recipe, const v1::Model& model, int64_t world_size,
                                               Violation* broken = nullptr);

  // With its defaults, and with -1 replaced by the derived value: what really runs, for records.
  const v1::Recipe& recipe() const { return recipe_; }
  const v1::Model& model() const { return model_; }
  const mesh::Mesh& mesh() const { return mesh_; }

  int64_t global_batch() const { return recipe_.training().global_batch_size(); }  // sequences per optimizer step
  int64_t local_batch() const { return recipe_.training().local_batch_size(); }    // of one data-parallel rank at a time
  int64_t seq_len() const { return recipe_.training().seq_len(); }
  int64_t tokens_per_step() const { return global_batch() * seq_len(); }
  // Sequences of one forward pass: local_batch without a pipeline.
  int64_t microbatch_size() const;
  // Local batches of a data-parallel rank per optimizer step.
  int64_t accumulation() const { return global_batch() / (mesh_.dp() * local_batch()); }
  // Forward passes of a data-parallel rank per optimizer step.
  int64_t microbatches() const { return global_batch() / (mesh_.dp() * microbatch_size()); }

  bool shards_parameters() const { return mesh_.Size(mesh::Dim::kDpShardCp) > 1; }
  bool loss_parallel() const;  // the loss is computed on shards of the vocabulary
  // Parameters are freed between forward and backward. Policy "default": without a pipeline. Matters where they are sharded.
  bool reshard_after_forward() const;
  // Whole parameters persist between steps, beside the shards of the master weights: ZeRO-1 and 2.
  bool parameters_stay_whole() const { return shards_parameters() && recipe_.parallelism().zero_stage() < 3; }
  // Gradients are reduced after each microbatch and only their shards are kept. Otherwise whole gradients are accumulated and
  // reduced once per step: without sharding, with a pipeline (which would wait for the reduction), and under ZeRO-1.
  bool reduce_each_microbatch() const {
    return shards_parameters() && mesh_.pp == 1 && recipe_.parallelism().zero_stage() > 1;
  }
  // Of the pipeline's chunks (core/schedule/schedule.h); one chunk on one rank without a pipeline.
  const Placement& placement() const { return placement_; }
  // The schedule of a step, built on each call.
  Schedule MakeSchedule() const;
  int64_t RecomputedBlocks(int64_t first, int64_t last) const;  // how many of the blocks [first, last) are recomputed in backward
  // The blocks [first, last) of a chunk.
  std::pair<int64_t, int64_t> LayersOf(int64_t chunk) const;

 private:
  ResolvedRecipe() = default;
  v1::Recipe recipe_;
  v1::Model model_;
  mesh::Mesh mesh_;
  Placement placement_;
};

}  // namespace legoai::parallel

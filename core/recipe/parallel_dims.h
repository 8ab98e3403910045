// The one validated object with all degrees of a job: whoever holds a ParallelDims need not check a recipe again.
//
// Ranks lie in a mesh, outermost to innermost pp, dp_replicate, dp_shard, tp:
//   rank = ((pp * replicate_degree + replicate) * shard_degree + shard) * tp_degree + tp,
// so that tensor parallel, which talks most, stays among neighbours. Torch-free. Thread-safety: const access is safe.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/recipe/legality.h"
#include "core/trace/trace.h"
#include "proto/legoai/v1/model.pb.h"
#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::parallel {

// Where a rank stands in the mesh.
struct Coordinates {
  int64_t pp = 0, replicate = 0, shard = 0, tp = 0;
  bool operator==(const Coordinates&) const = default;
};

class ParallelDims {
 public:
  // Errors: FieldError of the first rule of legality.h that the recipe breaks. Unset keys count as their defaults.
  static absl::StatusOr<ParallelDims> Create(const v1::Recipe& recipe, const v1::Model& model, int64_t world_size);

  int64_t world_size() const { return layout_.world_size; }
  int64_t replicate() const { return layout_.replicate; }
  int64_t shard() const { return layout_.shard; }
  int64_t tp() const { return layout_.tp; }
  int64_t pp() const { return layout_.pp; }
  int64_t dp() const { return layout_.dp(); }  // data-parallel ranks: replicate x shard

  int64_t global_batch() const { return layout_.global_batch; }        // sequences per optimizer step
  int64_t local_batch() const { return layout_.local_batch; }          // of one data-parallel rank at a time
  int64_t microbatch_size() const { return layout_.microbatch_size; }  // of one forward pass; local_batch without pp
  int64_t seq_len() const { return layout_.seq_len; }
  // Local batches of a data-parallel rank per optimizer step.
  int64_t accumulation() const { return global_batch() / (dp() * local_batch()); }
  // Forward passes of a data-parallel rank per optimizer step.
  int64_t microbatches() const { return global_batch() / (dp() * microbatch_size()); }

  bool loss_parallel() const { return loss_parallel_; }  // the loss is computed on vocabulary shards
  // Parameters are freed between forward and backward. Policy "default": without pp (decisions 12). Matters where shard() > 1.
  bool reshard_after_forward() const { return reshard_after_forward_; }

  Coordinates CoordinatesOf(int64_t rank) const;
  int64_t RankOf(const Coordinates& at) const;
  // 0 to dp() - 1: which part of the global batch a rank works on.
  int64_t DataParallelRank(int64_t rank) const;
  // The groups that `rank` belongs to, always all, of one rank too, in the order "world", "pp", "dp_replicate", "dp_shard", "tp",
  // "dp" (dp_replicate x dp_shard). Ranks ascend in each.
  std::vector<graph::Group> Groups(int64_t rank) const;
  // The blocks [first, last) of the pipeline stage that `rank` runs.
  std::pair<int64_t, int64_t> LayersOf(int64_t rank) const;

  // `recipe` with its defaults and with -1 replaced by what was derived: what really runs, for records.
  v1::Recipe Resolve(v1::Recipe recipe) const;

 private:
  ParallelDims() = default;
  Layout layout_;
  bool loss_parallel_ = false;
  bool reshard_after_forward_ = true;
  int64_t num_layers_ = 0;
};

// The blocks [first, last) of a stage. Counts differ by one at most; the first stages get one more, as the last one has the head.
std::pair<int64_t, int64_t> StageLayers(int64_t num_layers, int64_t stages, int64_t stage);

}  // namespace legoai::parallel

// Which part of a named global tensor this rank holds, and over which groups it is replicated. One per parameter: initialization,
// clipping, gradient reduction, checkpoints and parity tests read only this.
//
// Tensor parallelism cuts first (any dimension), FSDP then cuts dimension 0 of what is left into equal pieces of
// ceil(rows / degree) rows; the last ranks may hold fewer rows, or none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/mesh/mesh.h"

namespace legoai::parallel {

struct ShardSpec {
  std::string name;  // full name in the model: "model.layers.0.mlp.up_proj.weight"
  std::vector<int64_t> global_shape;
  std::vector<int64_t> offsets, sizes;  // this rank's hyper-rectangle; a size of 0 means it holds nothing
  std::vector<mesh::Dim> sharded_over;  // the dimensions that shard this tensor: its squared norm is summed over them
  // Dimensions over which each rank computes only a part of the gradient, to be summed before data-parallel reduction (kTp for
  // norms under sequence parallelism).
  std::vector<mesh::Dim> gradient_partial_over;
  // This many neighbouring kTp ranks hold the same part, each with a partial gradient: when there are fewer key-value heads than
  // ranks. The first of them counts.
  int64_t copies_over_tp = 1;
  // The first and the last pipeline rank both hold it, each with a partial gradient, to be summed after data-parallel reduction:
  // a tied embedding. The first of them counts.
  bool on_both_ends = false;

  int64_t Elements() const;  // of this rank's part
  int64_t GlobalElements() const;
  bool IsShardedOver(mesh::Dim dim) const;
};

// The whole tensor on one rank.
ShardSpec Unsharded(std::string name, std::vector<int64_t> global_shape);

// Cuts `spec` along `dim` into `degree` parts and keeps part `index`: ceil(size / degree) each, the last ones smaller or empty.
// With degree 1 nothing changes.
void Cut(ShardSpec* spec, int64_t dim, int64_t degree, int64_t index, mesh::Dim over);

}  // namespace legoai::parallel

// Orthogonalization of sharded matrices. Not thread-safe: runs operators on the current comm::Runtime.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "worker/model/module.h"

namespace legoai::train {

// matrix [rows, columns] of any floating type -> bf16 [rows, columns], approximately U V^T of its singular value decomposition U
// S V^T: `iterations` Newton-Schulz iterations with the quintic polynomial of Jordan et al. 2024, in bf16, as in
// torch.optim.Muon.
at::Tensor NewtonSchulz(const at::Tensor& matrix, int64_t iterations);

// One sharding of a matrix: equal pieces over the ranks of a group, the last ones smaller or empty.
struct MatrixCut {
  int64_t group = 0;
  int64_t dim = 0;     // of the matrix
  int64_t size = 0;    // of this dimension before the cut
  int64_t copies = 1;  // this many neighbouring ranks hold the same piece
  bool operator==(const MatrixCut&) const = default;
};

// Of the parameter's master, in the order of cutting.
std::vector<MatrixCut> CutsOf(const model::Parameter& parameter);

// The best number of such matrices to orthogonalize together: the number of ranks that share one.
int64_t MatricesAtOnce(const std::vector<MatrixCut>& cuts);

// `parts`: this rank's parts, bf16 and possibly empty, of matrices of one shape, sharded alike. Returns this rank's parts of the
// orthogonalized matrices, bf16, in the same order. Each matrix is orthogonalized once in each group of ranks that shares it: one
// all-to-all gives every rank of the group a different whole matrix, another returns the parts (Ahn et al. 2025, for FSDP). Ranks
// with copies of a part get bitwise equal results.
std::vector<at::Tensor> Orthogonalize(std::vector<at::Tensor> parts, std::span<const MatrixCut> cuts, int64_t iterations);

}  // namespace legoai::train

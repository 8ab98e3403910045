// Orthogonalization of matrices that ranks hold in parts. Not thread-safe: runs operators on the current comm::Runtime.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "worker/model/module.h"

namespace legoai::train {

// matrix [rows, columns] of any floating type -> bf16 [rows, columns], nearly U V^T of its singular value decomposition U S V^T:
// `iterations` of Newton and Schulz with the quintic polynomial of Jordan et al. 2024, in bf16, as torch.optim.Muon.
at::Tensor NewtonSchulz(const at::Tensor& matrix, int64_t iterations);

// One cut of a matrix: in equal pieces over the ranks of a group, the last ones smaller or empty.
struct MatrixCut {
  int64_t group = 0;
  int64_t dim = 0;     // of the matrix, that is cut
  int64_t size = 0;    // of this dimension before the cut
  int64_t copies = 1;  // so many neighbouring ranks hold the same piece
  bool operator==(const MatrixCut&) const = default;
};

// Of the parameter's master, in the order of cutting.
std::vector<MatrixCut> CutsOf(const model::Parameter& parameter);

// How many matrices cut like this are orthogonalized together at best: as many as ranks have a part of one.
int64_t MatricesAtOnce(const std::vector<MatrixCut>& cuts);

// `parts`: of matrices of one shape, cut alike, this rank's, bf16; empty ones, too. Gives this rank's parts of the orthogonalized
// matrices, bf16, in the same order. Each matrix is orthogonalized once in each group of ranks that hold its parts: an
// all-to-all gives every rank of the group another whole matrix, and one more gives the parts back (Ahn et al. 2025, for FSDP).
// Ranks with copies of a part hold whole results of the same bits.
std::vector<at::Tensor> Orthogonalize(std::vector<at::Tensor> parts, std::span<const MatrixCut> cuts, int64_t iterations);

}  // namespace legoai::train

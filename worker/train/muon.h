// Muon (Jordan et al. 2024): momentum of hidden matrices, orthogonalized by Newton-Schulz iterations; AdamW for all other
// parameters. Each matrix is updated as by torch.optim.Muon of PyTorch 2.11 in every layout: a sharded matrix is assembled on one
// rank, orthogonalized there, and its shards are returned (orthogonalize.h).
//
// The rate of a matrix of [rows, columns] is muon_lr times sqrt(max(1, rows / columns)) or 0.2 sqrt(max(rows, columns)) (Liu et
// al. 2025), so that its updates have the magnitude of AdamW's; it follows the schedule of lr. Not thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <set>
#include <span>
#include <vector>

#include "worker/train/optimizer.h"
#include "worker/train/orthogonalize.h"

namespace legoai::train {

class Muon final : public Optimizer {
 public:
  // See MakeOptimizer().
  Muon(std::vector<model::Parameter*> parameters, const std::set<const model::Parameter*>& hidden,
       const v1::OptimizerSection& section);

 private:
  struct Matrix {
    HeldTensor master, momentum_buffer;
  };
  // Matrices of one shape, sharded alike.
  struct Kind {
    std::vector<MatrixCut> cuts;
    double rate_factor = 1;  // by which the learning rate is multiplied
    std::vector<Matrix> matrices;
  };

  void UpdateParameters(const UpdateFacts& facts) override;
  at::Tensor MomentumOf(const Matrix& matrix, const UpdateFacts& facts) const;
  void UpdateTogether(const Kind& kind, std::span<const Matrix> matrices, const at::Tensor& rate, const at::Tensor& kept,
                      const UpdateFacts& facts) const;

  std::vector<Kind> kinds_;
  FusedGroup others_;
};

}  // namespace legoai::train

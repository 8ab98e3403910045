// Muon (Jordan et al. 2024): momentum of hidden matrices, orthogonalized by Newton-Schulz iterations; AdamW for all other
// parameters. As torch.optim.Muon of PyTorch 2.11 for each matrix, whatever the layout: a matrix that ranks hold in parts is put
// together, orthogonalized on one of them, and its parts go back (orthogonalize.h).
//
// The rate of a matrix of [rows, columns] is muon_lr times sqrt(max(1, rows / columns)) or 0.2 sqrt(max(rows, columns)) (Liu et
// al. 2025), so that its updates have the size of AdamW's; it follows the schedule of lr. Not thread-safe.
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
  // Of one shape and cut alike.
  struct Kind {
    std::vector<MatrixCut> cuts;
    double rate_factor = 1;  // by which the learning rate is multiplied
    std::vector<Matrix> matrices;
  };

  void UpdateParameters(const at::Tensor& learning_rate, const Rounding& rounding) override;
  at::Tensor MomentumOf(const Matrix& matrix, const Rounding& rounding) const;
  void UpdateTogether(const Kind& kind, std::span<const Matrix> matrices, const at::Tensor& rate, const at::Tensor& kept,
                      const Rounding& rounding) const;

  std::vector<Kind> kinds_;
  FusedGroup others_;
};

}  // namespace legoai::train

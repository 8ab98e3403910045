// The parts of the grid, one function for each kind of operator. Internal to operator_grid.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "simulator/measure/grid_point.h"
#include "simulator/measure/operator_grid.h"

namespace legoai::sim {

// A transformer's sizes, as a rank of `tp` has them.
struct RankShapes {
  std::string model;
  int64_t tp = 1;
  int64_t hidden = 0, inner = 0, heads = 0, kv_heads = 0, head_dim = 0, vocab = 0;
  bool bias = false;  // GPT-2: addmm, LayerNorm
};

// GPT-2 (small and XL), Llama 3.2 1B, Llama 3 8B and 70B, each with tp of 1 to 8 that divides its key heads; quick: one that is
// tiny.
std::vector<RankShapes> RanksOfModels(GridSize size);

void AddMatmuls(GridSize size, std::vector<GridPoint>* points);
void AddAttention(GridSize size, std::vector<GridPoint>* points);
void AddElementwise(GridSize size, std::vector<GridPoint>* points);
void AddReductions(GridSize size, std::vector<GridPoint>* points);  // norms, softmax and cross entropy among them
void AddCopies(GridSize size, std::vector<GridPoint>* points);      // the gradient of embeddings among them
void AddOptimizer(GridSize size, std::vector<GridPoint>* points);

// Makers of arguments.
inline GridArgument Tensor(v1::DType dtype, std::vector<int64_t> sizes, Fill fill = Fill::kNormal) {
  return TensorSpec{.dtype = dtype, .sizes = std::move(sizes), .fill = fill};
}
inline GridArgument Strided(v1::DType dtype, std::vector<int64_t> sizes, std::vector<int64_t> strides) {
  return TensorSpec{.dtype = dtype, .sizes = std::move(sizes), .strides = std::move(strides)};
}
inline GridArgument Ids(std::vector<int64_t> sizes, int64_t below) {
  return TensorSpec{.dtype = v1::INT64, .sizes = std::move(sizes), .fill = Fill::kIds, .below = below};
}
inline GridArgument None() { return graph::Constant(std::monostate()); }
inline GridArgument Flag(bool value) { return graph::Constant(value); }
inline GridArgument Whole(int64_t value) { return graph::Constant(value); }
inline GridArgument Real(double value) { return graph::Constant(value); }
inline GridArgument Text(std::string value) { return graph::Constant(std::move(value)); }
inline GridArgument Wholes(std::vector<int64_t> values) { return graph::Constant(std::move(values)); }

}  // namespace legoai::sim

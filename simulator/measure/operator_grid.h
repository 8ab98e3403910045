// The calls that a device is calibrated with: the operators of the trainer's steps, over the shapes that Llama 3 and GPT-2 have
// on a rank of 1 to 8 tensor-parallel ones, and others around them (squares, tall and flat products, sizes from a thousand
// elements to hundreds of millions).
//
// Torch-free. Pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/trace/trace.h"
#include "proto/legoai/v1/dtype.pb.h"

namespace legoai::sim {

// One operator call that is measured on a device: its arguments as data, so that a grid of them can be listed, ordered, counted
// on the fake device and carried out on a real one.
//
// Torch-free plain values.
enum class Fill : uint8_t {
  kNormal,    // what a product of random numbers needs to draw as much power as one of trained weights
  kPositive,  // small: second moments, probabilities
  kZero,
  kIds,  // whole numbers below `below`
};

struct TensorSpec {
  v1::DType dtype = v1::FLOAT32;
  std::vector<int64_t> sizes = {};
  std::vector<int64_t> strides = {};  // of elements that lie densely; empty: contiguous
  Fill fill = Fill::kNormal;
  int64_t below = 0;
};
struct TensorList {
  TensorSpec each = {};
  int64_t count = 0;
  bool same = false;  // one tensor, `count` times
};
// The same tensor as an argument of the call before, or one of its results.
struct BeforeArgument {
  int index = 0;
};
struct BeforeResult {
  int index = 0;
};
using GridArgument = std::variant<graph::Constant, TensorSpec, TensorList, BeforeArgument, BeforeResult>;

// Arguments that are not given have the schema's defaults.
struct OperatorCall {
  std::string name = {}, overload = {};  // "aten::add", "Tensor"
  std::vector<GridArgument> arguments = {};
};

struct GridPoint {
  OperatorCall call = {};
  std::optional<OperatorCall> before = {};  // carried out once, without being measured: a backward needs what its forward saved
  v1::DType dtype = v1::FLOAT32;
  std::map<std::string, int64_t> shape = {};
  std::string use = {};
  int tier = 1;  // 1: what most steps are made of; 3: what few are
};

// "aten::mm bfloat16 k=4096 m=8192 n=1024": the same for the same call.
std::string PointName(const GridPoint& point);

enum class GridSize : uint8_t {
  kFull,   // for a GPU: most points take less than 30 ms there
  kQuick,  // for trying the path, on a CPU too: each point milliseconds on one core
};

// Each call once, in the order in which to measure them: by tier, and within one so that any first part of it has all operators
// and types in equal shares, each from its smallest to its largest shapes.
std::vector<GridPoint> OperatorGrid(GridSize size);

// Puts `points` in that order; of equal names the first is kept. For points of any origin.
std::vector<GridPoint> InMeasuringOrder(std::vector<GridPoint> points);

// The parts of the grid, one function for each kind of operator. Internal to operator_grid.cc.

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

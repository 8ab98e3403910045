// The operator calls that a device is calibrated with: the operators of the trainer's steps, with the shapes of Llama 3 and GPT-2
// on 1 to 8 tensor-parallel ranks, and shapes around them (square, tall and flat products, sizes from a thousand elements to
// hundreds of millions).
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

// One operator call to measure on a device, with its arguments as data, so that a grid can be listed, ordered, counted on the
// fake device and run on a real one.
//
// Torch-free plain values.
enum class Fill : uint8_t {
  kNormal,    // so that a product draws as much power as with trained weights
  kPositive,  // small: second moments, probabilities
  kZero,
  kIds,  // integers below `below`
};

struct TensorSpec {
  v1::DType dtype = v1::FLOAT32;
  std::vector<int64_t> sizes = {};
  std::vector<int64_t> strides = {};  // of a dense layout; empty: contiguous
  Fill fill = Fill::kNormal;
  int64_t below = 0;
};
struct TensorList {
  TensorSpec each = {};
  int64_t count = 0;
  bool same = false;  // one tensor, `count` times
};
// An argument or result of the preceding call `before`.
struct BeforeArgument {
  int index = 0;
};
struct BeforeResult {
  int index = 0;
};
using GridArgument = std::variant<graph::Constant, TensorSpec, TensorList, BeforeArgument, BeforeResult>;

// Omitted arguments have the schema's defaults.
struct OperatorCall {
  std::string name = {}, overload = {};  // "aten::add", "Tensor"
  std::vector<GridArgument> arguments = {};
};

struct GridPoint {
  OperatorCall call = {};
  std::optional<OperatorCall> before = {};  // run once, unmeasured: a backward needs what its forward saved
  v1::DType dtype = v1::FLOAT32;
  std::map<std::string, int64_t> shape = {};
  std::string use = {};
  int tier = 1;  // 1: in most steps; 3: in few
};

// "aten::mm bfloat16 k=4096 m=8192 n=1024": the same for the same call.
std::string PointName(const GridPoint& point);

enum class GridSize : uint8_t {
  kFull,   // for a GPU: most points take less than 30 ms there
  kQuick,  // to test the code path, also on a CPU: milliseconds per point on one core
};

// Each call once, in measuring order: by tier, and within a tier so that any prefix has all operators and types in equal shares,
// each from its smallest to its largest shapes.
std::vector<GridPoint> OperatorGrid(GridSize size);

// Sorts any `points` into that order; of equal names the first is kept.
std::vector<GridPoint> InMeasuringOrder(std::vector<GridPoint> points);

// The parts of the grid, one function per kind of operator. Internal to operator_grid.cc.

// A transformer's sizes on one of `tp` ranks.
struct RankShapes {
  std::string model;
  int64_t tp = 1;
  int64_t hidden = 0, inner = 0, heads = 0, kv_heads = 0, head_dim = 0, vocab = 0;
  bool bias = false;  // GPT-2: addmm, LayerNorm
};

// GPT-2 (small and XL), Llama 3.2 1B, Llama 3 8B and 70B, each with every tp of 1 to 8 that divides its key heads; quick: a tiny
// one.
std::vector<RankShapes> RanksOfModels(GridSize size);

void AddMatmuls(GridSize size, std::vector<GridPoint>* points);
void AddAttention(GridSize size, std::vector<GridPoint>* points);
void AddElementwise(GridSize size, std::vector<GridPoint>* points);
void AddReductions(GridSize size, std::vector<GridPoint>* points);  // norms, softmax and cross entropy among them
void AddCopies(GridSize size, std::vector<GridPoint>* points);      // the gradient of embeddings among them
void AddOptimizer(GridSize size, std::vector<GridPoint>* points);

// Argument constructors.
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

// One operator call that is measured on a device: its arguments as data, so that a grid of them can be listed, ordered, counted
// on the fake device and carried out on a real one.
//
// Torch-free plain values.
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

}  // namespace legoai::sim

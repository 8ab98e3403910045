// The calls that a device is calibrated with: the operators of the trainer's steps, over the shapes that Llama 3 and GPT-2 have
// on a rank of 1 to 8 tensor-parallel ones, and others around them (squares, tall and flat products, sizes from a thousand
// elements to hundreds of millions).
//
// Torch-free. Pure functions.
#pragma once

#include <vector>

#include "simulator/measure/grid_point.h"

namespace legoai::sim {

enum class GridSize : uint8_t {
  kFull,   // for a GPU: most points take less than 30 ms there
  kQuick,  // for trying the path, on a CPU too: each point milliseconds on one core
};

// Each call once, in the order in which to measure them: by tier, and within one so that any first part of it has all operators
// and types in equal shares, each from its smallest to its largest shapes.
std::vector<GridPoint> OperatorGrid(GridSize size);

// Puts `points` in that order; of equal names the first is kept. For points of any origin.
std::vector<GridPoint> InMeasuringOrder(std::vector<GridPoint> points);

}  // namespace legoai::sim

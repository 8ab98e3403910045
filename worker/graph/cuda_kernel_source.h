// The CUDA of a fused kernel (core/trace/fused_kernel.h): one function, or two that differ in how they read and write.
//
//   struct Tensors { void* at[N]; };   // the first elements of inputs, written tensors and results, in that order
//   extern "C" __global__ void lego_fused(const Tensors tensors);
//
// Where a statement sums over rows a warp or a block has a row: threads add up their own elements, and warps and blocks add in a
// fixed order, so that no value depends on the size of the grid. What an earlier pass over the row computed stays in registers,
// or in shared memory where it is read rolled. All else goes element by element over a grid of any size.
//
// `lego_fused_wide` reads and writes up to 16 bytes at once. It is there where the shapes allow that; whether the addresses do is
// known at the launch. Division and square root are exact to half a unit in the last place and the elementary functions are
// CUDA's own, as in ATen's kernels.
//
// The text includes no header, so NVRTC needs none, and is the same for equal kernels. Needs no CUDA. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/trace/fused_kernel.h"

namespace legoai::graph {

struct CudaFunction {
  std::string name;
  int threads = 0;  // of a block
  int64_t blocks = 0;
  std::vector<int> alignment;  // bytes by which each tensor's first element must be aligned
};

struct CudaSource {
  std::string text;
  std::vector<CudaFunction> functions;  // the fastest first; the last takes any addresses
};

// Errors: Unimplemented naming a statement that has no source, or a row that is too long for what shared memory must hold of it.
absl::StatusOr<CudaSource> CudaSourceOf(const FusedKernel& kernel);

}  // namespace legoai::graph

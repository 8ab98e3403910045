// The CUDA of a fused kernel without a GPU: compiled by the machine's C++ compiler, with a few lines that stand for what CUDA has
// built in, and run block by block. The threads of a block take turns between barriers, in ascending or descending order, so a
// value that is read before the barrier that it waits for is not the same in both.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/trace/fused_kernel.h"
#include "worker/graph/cuda_kernel_source.h"

namespace legoai::graph::testing_cuda {

// Runs a function of the source. `tensors`: the first elements of inputs, written tensors and results. Ends the process where
// threads of a warp or block do not meet at a barrier. Errors: those of LoadKernel.
absl::Status RunEmulated(const CudaSource& source, const CudaFunction& function, const std::vector<void*>& tensors,
                         bool descending);

// Inputs of a kernel and what it is to write, with memory around that nobody may touch: the same numbers for the same seed.
class KernelTensors {
 public:
  KernelTensors(const FusedKernel& kernel, unsigned seed);
  const std::vector<void*>& pointers() const { return pointers_; }
  // The largest difference from others of the same kernel, of what is written, in parts of what the tensor may differ by: a
  // float32 by 2e-5 of the largest number of all, a bfloat16 by two of its units beside that. Infinite where memory around
  // tensors, or an input, was changed.
  double DistanceFrom(const KernelTensors& others) const;
  bool operator==(const KernelTensors& others) const;

 private:
  struct Memory {
    v1::DType dtype = v1::FLOAT32;
    bool is_input = false;
    size_t first = 0, elements = 0;   // where the tensor lies in `bytes`, and how far it goes
    std::vector<unsigned char> bytes;  // with room to align
    std::vector<double> Values() const;
  };
  void Add(const FusedTensor& tensor, const std::vector<int64_t>& sizes, bool is_input, void* random);
  std::vector<Memory> memories_;
  std::vector<void*> pointers_;
};

}  // namespace legoai::graph::testing_cuda

// What must hold of the CUDA of a fused kernel.
#pragma once

#include <string>

namespace legoai::graph::testing_cuda {

// Fails the test where a function of the kernel, emulated, gives something else than the kernel's C++ on the same numbers, or not
// the same bits in whatever order threads take turns, or where NVRTC (LEGOAI_NVRTC) does not compile it for an H100.
void CheckCudaKernel(const std::string& text, unsigned seed);

}  // namespace legoai::graph::testing_cuda

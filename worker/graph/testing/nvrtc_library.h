// The NVRTC that tools/nvrtc.lock pins, for tests that compile CUDA without a GPU.
#pragma once

#include "absl/status/status.h"

namespace legoai::graph::testing_cuda {

// Names it in LEGOAI_NVRTC. Errors: FailedPrecondition where tools/fetch_deps has not brought it.
absl::Status UseFetchedNvrtc();

}  // namespace legoai::graph::testing_cuda

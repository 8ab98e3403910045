// Ranks tell each other which GPU they have before NCCL connects them: it refuses two ranks on one GPU ("Duplicate GPU
// detected"), or hangs, and names them by numbers of its own.
#pragma once

#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "absl/status/status.h"

namespace legoai::comm {

struct RankGpu {
  std::string id;    // of the GPU, the same in every process that has it: its UUID
  std::string name;  // for people: "GPU 0, NVIDIA H100 80GB HBM3"
};

// Puts this rank's GPU into the store, and waits for those of `ranks` (in the world, `rank` among them). FailedPrecondition: two
// ranks have one GPU, both are named. DeadlineExceeded or Unavailable: a rank did not come in the store's time.
absl::Status CheckOneGpuEach(c10d::Store& store, const std::vector<int64_t>& ranks, int64_t rank, const RankGpu& own);

}  // namespace legoai::comm

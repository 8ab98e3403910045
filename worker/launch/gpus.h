// GPUs of this host for ranks: the host resources of ranks that compute on them, and exclusive claims.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/launch/prepare_training.h"

namespace legoai::launch {

// Makes the `nproc` ranks of `request` compute on these GPUs, by UUID: rank r on the r-th; there must be enough. The host
// launches their work from several threads, which must not wait for each other, and draws the initial weights: no rank is pinned
// to a core, and each gets `cores` >= 1 threads.
void ComputeOnGpus(std::vector<std::string> gpus, int64_t cores, TrainRequest* request);

// An exclusive claim of this process and its children on GPUs, until this object is destroyed or the process ends in any way.
// Respected by LegoAI's programs of all users of the host (within one network namespace: containers that share a GPU do not see
// each other's claims), not by other programs.
class GpuClaim {
 public:
  // Claims all or none of the UUIDs. Errors: FieldError of "gpu", FailedPrecondition naming the process that has it.
  static absl::StatusOr<GpuClaim> Take(const std::vector<std::string>& gpus);
  GpuClaim(GpuClaim&& other) noexcept : sockets_(std::move(other.sockets_)) { other.sockets_.clear(); }
  GpuClaim& operator=(GpuClaim&&) = delete;
  ~GpuClaim();

 private:
  GpuClaim() = default;
  std::vector<int> sockets_;  // one per GPU
};

}  // namespace legoai::launch

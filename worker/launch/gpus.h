// GPUs of this host for ranks: how the host serves ranks that compute on them, and who has them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/launch/prepare_training.h"

namespace legoai::launch {

// The ranks of `request` (nproc says how many) compute on these GPUs, by UUID: rank r on the r-th, of which there are at least as
// many. The host launches their work from several threads, which must not wait for each other, and draws the initial weights: no
// rank is pinned to a core, and each has `cores` of them, at least one.
void ComputeOnGpus(std::vector<std::string> gpus, int64_t cores, TrainRequest* request);

// GPUs that this process and those it starts have for themselves, until this ends or the process does, however that ends. Heeded
// by LegoAI's own programs of every user of the host (of one network namespace: containers that share a GPU do not see each
// other's), not by others.
class GpuClaim {
 public:
  // All or none of the UUIDs. Errors: FieldError of "gpu", FailedPrecondition: another process has it, which is named.
  static absl::StatusOr<GpuClaim> Take(const std::vector<std::string>& gpus);
  GpuClaim(GpuClaim&& other) noexcept : sockets_(std::move(other.sockets_)) { other.sockets_.clear(); }
  GpuClaim& operator=(GpuClaim&&) = delete;
  ~GpuClaim();

 private:
  GpuClaim() = default;
  std::vector<int> sockets_;  // one for each GPU
};

}  // namespace legoai::launch

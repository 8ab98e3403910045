// A buffer on the GPU of each rank of a group that all of its ranks have mapped: PyTorch's symmetric memory (cuMem allocations,
// whose handles ranks of one host hand each other through sockets).
//
// What it holds is outside the caching allocator. A peer that has ended leaves its buffer mapped here. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "absl/status/statusor.h"

namespace legoai::comm {

class SymmetricBuffer {
 public:
  // All ranks of a group of at least two call it at once, each with its GPU selected, and as often in their lives as each other.
  // `store`: of this group and call alone. `fault`: why this rank cannot take part; empty where it can. The buffers are zeros
  // before any rank returns. Errors: FailedPrecondition, the same on all ranks, with the reason why a group has none: ranks on
  // several hosts, GPUs that do not reach each other's memory, memory that is not there; those of the store.
  static absl::StatusOr<std::unique_ptr<SymmetricBuffer>> Connect(const c10::intrusive_ptr<c10d::Store>& store, int64_t rank,
                                                                  int64_t size, int64_t bytes, const std::string& fault);
  // Waits for the GPU.
  ~SymmetricBuffer();
  SymmetricBuffer(const SymmetricBuffer&) = delete;
  SymmetricBuffer& operator=(const SymmetricBuffer&) = delete;

  // That of a rank, for this rank's GPU.
  char* Of(int64_t rank) const { return static_cast<char*>(places_[rank]); }

 private:
  struct Memory;
  SymmetricBuffer();
  std::string Allocate(int64_t bytes);
  std::string Map(const c10::intrusive_ptr<c10d::Store>& store, int64_t rank, int64_t size);

  std::unique_ptr<Memory> memory_;
  std::vector<void*> places_;
};

}  // namespace legoai::comm

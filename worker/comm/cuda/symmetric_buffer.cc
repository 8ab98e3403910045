#include "worker/comm/cuda/symmetric_buffer.h"

#include <cuda_runtime.h>

#include <atomic>
#include <exception>
#include <filesystem>
#include <fstream>
#include <optional>
#include <torch/csrc/distributed/c10d/symm_mem/SymmetricMemory.hpp>

#include "proto/status.h"
#include "worker/comm/cuda/device.h"
#include "worker/comm/rendezvous.h"

namespace legoai::comm {
namespace {

namespace symmetric = c10d::symmetric_memory;

// What the ranks of a group say to each other.
class Meeting {
 public:
  Meeting(c10d::Store& store, int64_t rank, int64_t size) : store_(store), rank_(rank), size_(size) {}

  // What each says under `what`, by rank.
  absl::StatusOr<std::vector<std::string>> Exchange(const std::string& what, const std::string& own) {
    std::vector<std::string> all;
    try {
      const std::string text = "=" + own;  // never empty
      store_.set(Key(what, rank_), std::vector<uint8_t>(text.begin(), text.end()));
      for (int64_t rank = 0; rank < size_; ++rank) {
        const std::vector<uint8_t> bytes = store_.get(Key(what, rank));
        all.emplace_back(bytes.begin() + (bytes.empty() ? 0 : 1), bytes.end());
      }
    } catch (const std::exception& e) {
      return ToStatus("symmetric memory: exchanging " + what, e);
    }
    return all;
  }
  // The first rank's fault, on all ranks.
  absl::Status Agree(const std::string& what, const std::string& fault) {
    ASSIGN_OR_RETURN(const auto faults, Exchange(what, fault));
    for (const std::string& one : faults) {
      if (!one.empty()) return absl::FailedPreconditionError(one);
    }
    return absl::OkStatus();
  }

 private:
  static std::string Key(const std::string& what, int64_t rank) { return what + "/" + std::to_string(rank); }
  c10d::Store& store_;
  const int64_t rank_, size_;
};

// Equal where processes are on one host and see the same sockets and processes.
std::string HostOfProcess() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code error;
  for (const char* space : {"/proc/self/ns/mnt", "/proc/self/ns/pid"}) {
    boot += " " + std::filesystem::read_symlink(space, error).string();
  }
  return boot;
}

// Why this rank's GPU cannot work in the others' memory; empty where it can.
std::string FaultOf(const std::vector<std::string>& hosts, const std::vector<std::string>& gpus, int64_t rank,
                    const std::string& own) {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return own + " cannot be asked";
  for (size_t peer = 0; peer < gpus.size(); ++peer) {
    if (hosts[peer] != hosts[rank]) return "ranks are on several hosts, or in several containers";
    const int other = DeviceOfUuid(gpus[peer].c_str());
    if (other < 0) return gpus[peer] + " is not among the GPUs that the process of " + own + " sees";
    int reaches = other == device;
    if (!reaches && cudaDeviceCanAccessPeer(&reaches, device, other) != cudaSuccess) reaches = 0;
    if (!reaches) return own + " does not reach the memory of " + gpus[peer];
  }
  return "";
}

// Without PyTorch's stack.
std::string TextOf(const char* what, const std::exception& error) { return std::string(ToStatus(what, error).message()); }

}  // namespace

struct SymmetricBuffer::Memory {
  c10::intrusive_ptr<symmetric::SymmetricMemoryAllocator> allocator;
  void* own = nullptr;
  c10::intrusive_ptr<symmetric::SymmetricMemory> mapped;

  ~Memory() {
    // What a device that failed holds goes with the process: to unmap it would throw.
    if (cudaDeviceSynchronize() != cudaSuccess) {
      (void)mapped.release();
      return;
    }
    mapped.reset();
    if (own != nullptr) allocator->free(own);
  }
};

SymmetricBuffer::SymmetricBuffer() : memory_(std::make_unique<Memory>()) {}
SymmetricBuffer::~SymmetricBuffer() = default;

absl::StatusOr<std::unique_ptr<SymmetricBuffer>> SymmetricBuffer::Connect(const c10::intrusive_ptr<c10d::Store>& store,
                                                                          int64_t rank, int64_t size, int64_t bytes,
                                                                          const std::string& fault) {
  ASSIGN_OR_RETURN(const auto gpu, OwnGpu());
  Meeting meeting(*store, rank, size);
  ASSIGN_OR_RETURN(const auto hosts, meeting.Exchange("hosts", HostOfProcess()));
  ASSIGN_OR_RETURN(const auto gpus, meeting.Exchange("gpus", gpu.id));
  std::unique_ptr<SymmetricBuffer> buffer(new SymmetricBuffer());
  std::string why = fault.empty() ? FaultOf(hosts, gpus, rank, gpu.name) : fault;
  if (why.empty()) why = buffer->Allocate(bytes);
  // Who went on alone would wait in vain for the others' handles.
  RETURN_IF_ERROR(meeting.Agree("allocations", why));
  RETURN_IF_ERROR(meeting.Agree("mappings", buffer->Map(store, rank, size)));
  return buffer;
}

std::string SymmetricBuffer::Allocate(int64_t bytes) {
  try {
    if (!symmetric::has_allocator(c10::DeviceType::CUDA)) return "PyTorch has no symmetric memory for CUDA here";
    int device = 0;
    const absl::Status asked = Check(cudaGetDevice(&device), "asking for this rank's GPU");
    if (!asked.ok()) return std::string(asked.message());
    memory_->allocator = symmetric::get_allocator(c10::DeviceType::CUDA);
    memory_->own = memory_->allocator->alloc(static_cast<size_t>(bytes), device, std::nullopt);
    absl::Status zeros = Check(cudaMemset(memory_->own, 0, static_cast<size_t>(bytes)), "filling symmetric memory");
    if (zeros.ok()) zeros = Check(cudaDeviceSynchronize(), "filling symmetric memory");
    return std::string(zeros.message());
  } catch (const std::exception& e) {
    return TextOf("allocating symmetric memory", e);
  }
}

std::string SymmetricBuffer::Map(const c10::intrusive_ptr<c10d::Store>& store, int64_t rank, int64_t size) {
  static std::atomic<int> groups{0};
  try {
    const std::string name = "legoai/" + std::to_string(groups++);  // PyTorch's map of the process takes each name once
    symmetric::set_group_info(name, static_cast<int>(rank), static_cast<int>(size), store);
    memory_->mapped = memory_->allocator->rendezvous(memory_->own, name);
    if (!memory_->mapped) return "PyTorch does not know its symmetric memory";
    places_ = memory_->mapped->get_buffer_ptrs();
    return static_cast<int64_t>(places_.size()) == size ? "" : "PyTorch mapped the memory of too few ranks";
  } catch (const std::exception& e) {
    return TextOf("mapping symmetric memory", e);
  }
}

}  // namespace legoai::comm

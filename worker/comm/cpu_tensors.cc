#include "worker/comm/cpu_tensors.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace legoai::comm {
namespace {

std::atomic<int64_t> live{0}, peak{0};

// A block's size stands in front of it, at the distance that keeps torch's alignment.
constexpr size_t kHeaderBytes = 64;

void Add(int64_t bytes) {
  const int64_t now = live.fetch_add(bytes) + bytes;
  int64_t seen = peak.load();
  while (now > seen && !peak.compare_exchange_weak(seen, now)) {
  }
}

void Free(void* data) {
  if (data == nullptr) return;
  char* const block = static_cast<char*>(data) - kHeaderBytes;
  int64_t bytes;
  std::memcpy(&bytes, block, sizeof(bytes));
  live -= bytes;
  c10::free_cpu(block);
}

class CountingAllocator : public c10::Allocator {
 public:
  // Data and context are one pointer: raw_allocate asks for that.
  c10::DataPtr allocate(size_t size) override {
    if (size == 0) return {nullptr, nullptr, &Free, c10::Device(c10::DeviceType::CPU)};
    char* const block = static_cast<char*>(c10::alloc_cpu(size + kHeaderBytes));
    const int64_t bytes = static_cast<int64_t>(size);
    std::memcpy(block, &bytes, sizeof(bytes));
    Add(bytes);
    return {block + kHeaderBytes, block + kHeaderBytes, &Free, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};

}  // namespace

void UseKnownCpuKernels() { setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16", 0); }

bool OneDnnComputesBfloat16() {
  static const auto supported =
      c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_is_mkldnn_bf16_supported", "").typed<bool()>();
  return supported.call();
}

bool CpuKernelsAreKnownForBfloat16() { return !OneDnnComputesBfloat16() || __builtin_cpu_supports("avx512bf16") != 0; }

void InstallCpuMemoryCounter() {
  static auto* const allocator = new CountingAllocator;
  c10::SetCPUAllocator(allocator, /*priority=*/100);
}

int64_t CpuLiveBytes() { return live; }
int64_t CpuPeakBytes() { return peak; }
void ResetCpuPeakBytes() { peak = live.load(); }

}  // namespace legoai::comm

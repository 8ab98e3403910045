#include "worker/comm/cpu_tensors.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <unordered_map>

namespace legoai::comm {
namespace {

std::atomic<int64_t> live{0}, peak{0}, kept{0};

// Stands in front of a block, at the distance that keeps torch's alignment.
struct Header {
  int64_t bytes = 0;
  Header* next = nullptr;  // of those that are kept
};
constexpr size_t kHeaderBytes = 64;
static_assert(sizeof(Header) <= kHeaderBytes);

// Of one size.
struct Blocks {
  Header* first = nullptr;
  int64_t count = 0;
};

thread_local int64_t t_kept = 0;    // bytes
thread_local int64_t t_reuses = 0;  // CpuBlockReuse that live

// A thread's free blocks, by size.
class KeptBlocks {
 public:
  ~KeptBlocks() { GiveBack(t_kept); }

  void Keep(Header* block) {
    Blocks& blocks = by_bytes_[block->bytes];
    block->next = blocks.first;
    blocks.first = block;
    ++blocks.count;
    t_kept += block->bytes;
    kept += block->bytes;
  }
  // Null: there is none.
  Header* Take(int64_t bytes) {
    const auto found = by_bytes_.find(bytes);
    return found == by_bytes_.end() || found->second.first == nullptr ? nullptr : Pop(bytes, &found->second);
  }
  // At least so many bytes, or all: of the sizes that most is kept of first.
  void GiveBack(int64_t bytes) {
    while (bytes > 0) {
      const auto most = std::max_element(by_bytes_.begin(), by_bytes_.end(), [](const auto& a, const auto& b) {
        return a.first * a.second.count < b.first * b.second.count;
      });
      if (most == by_bytes_.end() || most->second.count == 0) return;
      c10::free_cpu(Pop(most->first, &most->second));
      bytes -= most->first;
    }
  }

 private:
  Header* Pop(int64_t bytes, Blocks* blocks) {
    Header* const block = blocks->first;
    blocks->first = block->next;
    --blocks->count;
    t_kept -= bytes;
    kept -= bytes;
    return block;
  }
  std::unordered_map<int64_t, Blocks> by_bytes_;
};

thread_local KeptBlocks t_blocks;

void Add(int64_t bytes) {
  const int64_t now = live.fetch_add(bytes) + bytes;
  int64_t seen = peak.load();
  while (now > seen && !peak.compare_exchange_weak(seen, now)) {
  }
}

Header* NewBlock(int64_t bytes) {
  if (t_reuses > 0) {
    if (Header* const block = t_blocks.Take(bytes)) return block;
  }
  if (t_kept > 0) t_blocks.GiveBack(live + kept + bytes - peak);
  auto* const block = static_cast<Header*>(c10::alloc_cpu(bytes + kHeaderBytes));
  block->bytes = bytes;
  return block;
}

void Free(void* data) {
  if (data == nullptr) return;
  auto* const block = reinterpret_cast<Header*>(static_cast<char*>(data) - kHeaderBytes);
  live -= block->bytes;
  if (t_reuses > 0) {
    t_blocks.Keep(block);
  } else {
    c10::free_cpu(block);
  }
}

class CountingAllocator : public c10::Allocator {
 public:
  // Data and context are one pointer: raw_allocate asks for that.
  c10::DataPtr allocate(size_t size) override {
    if (size == 0) return {nullptr, nullptr, &Free, c10::Device(c10::DeviceType::CPU)};
    char* const data = reinterpret_cast<char*>(NewBlock(static_cast<int64_t>(size))) + kHeaderBytes;
    Add(static_cast<int64_t>(size));
    return {data, data, &Free, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};

}  // namespace

void UseKnownCpuKernels() { setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16", 0); }

void KeepFreedMemory() {
  constexpr int kLargestThreshold = 32 << 20, kKept = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kLargestThreshold);
  mallopt(M_TRIM_THRESHOLD, kKept);
}

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

CpuBlockReuse::CpuBlockReuse() { ++t_reuses; }
CpuBlockReuse::~CpuBlockReuse() { --t_reuses; }
int64_t CpuKeptBytes() { return kept; }

}  // namespace legoai::comm

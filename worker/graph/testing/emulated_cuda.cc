#include "worker/graph/testing/emulated_cuda.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/status.h"
#include "worker/graph/kernel_cache.h"

namespace legoai::graph::testing_cuda {
namespace {

constexpr char kBuiltIn[] = R"(#pragma GCC optimize("O1")
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>
#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(threads)
struct EmulatedIndex { unsigned x; };
static EmulatedIndex threadIdx, blockIdx, gridDim;
struct EmulatedThread { ucontext_t context; bool is_done; long barriers; };
static EmulatedThread* emulated_threads;
static ucontext_t emulated_scheduler;
static float emulated_exchange[1024];
static inline void EmulatedBarrier() {
  EmulatedThread& thread = emulated_threads[threadIdx.x];
  ++thread.barriers;
  swapcontext(&thread.context, &emulated_scheduler);
}
static inline void __syncthreads() { EmulatedBarrier(); }
static inline void __syncwarp() { EmulatedBarrier(); }
static inline float __shfl_xor_sync(unsigned, float x, int by) {
  emulated_exchange[threadIdx.x] = x;
  EmulatedBarrier();
  const float other = emulated_exchange[threadIdx.x ^ by];
  EmulatedBarrier();
  return other;
}
static inline unsigned __float_as_uint(float x) { unsigned bits; std::memcpy(&bits, &x, 4); return bits; }
static inline float __uint_as_float(unsigned bits) { float x; std::memcpy(&x, &bits, 4); return x; }
)";

// `threads` below zero: in descending order.
constexpr char kRun[] = R"(
static Tensors emulated_tensors;
static void EmulatedEntry() {
  EMULATED_FUNCTION(emulated_tensors);
  emulated_threads[threadIdx.x].is_done = true;
}
extern "C" void lego_kernel(void* const* tensors, long blocks, long threads) {
  constexpr size_t kStack = 32768;
  const bool descending = threads < 0;
  const int count = (int)(descending ? -threads : threads);
  for (size_t i = 0; i < sizeof(emulated_tensors.at) / sizeof(void*); ++i) emulated_tensors.at[i] = tensors[i];
  emulated_threads = (EmulatedThread*)std::calloc(count, sizeof(EmulatedThread));
  char* const stacks = (char*)std::malloc(kStack * count);
  gridDim.x = blocks;
  for (long block = 0; block < blocks; ++block) {
    blockIdx.x = block;
    for (int i = 0; i < count; ++i) {
      EmulatedThread& thread = emulated_threads[i];
      thread.is_done = false, thread.barriers = 0;
      getcontext(&thread.context);
      thread.context.uc_stack.ss_sp = stacks + kStack * i;
      thread.context.uc_stack.ss_size = kStack;
      thread.context.uc_link = &emulated_scheduler;
      makecontext(&thread.context, EmulatedEntry, 0);
    }
    for (int left = count; left > 0;) {
      for (int k = 0; k < count; ++k) {
        const int i = descending ? count - 1 - k : k;
        if (emulated_threads[i].is_done) continue;
        threadIdx.x = i;
        swapcontext(&emulated_scheduler, &emulated_threads[i].context);
        left -= emulated_threads[i].is_done;
      }
    }
    for (int i = 0; i < count; ++i) {
      const long here = emulated_threads[i].barriers, first = emulated_threads[0].barriers;
      const bool is_warps = here == emulated_threads[i - i % 32].barriers;
      if (is_warps && (here == first || here == 0)) continue;  // a warp may have no row
      std::fprintf(stderr, "block %ld: thread %d meets %ld barriers, thread 0 %ld\n", block, i, here, first);
      std::abort();
    }
  }
  std::free(stacks);
  std::free(emulated_threads);
}
)";

constexpr size_t kRoom = 64;          // elements before and behind a tensor
constexpr size_t kAlignment = 64;     // bytes
constexpr unsigned char kUntouched = 0x3d;  // a number in both types

float FromBfloat16(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

}  // namespace

absl::Status RunEmulated(const CudaSource& source, const CudaFunction& function, const std::vector<void*>& tensors,
                         bool descending) {
  const std::string text = absl::StrCat(kBuiltIn, source.text, "#define EMULATED_FUNCTION ", function.name, kRun);
  KernelCounts counts;
  std::vector<std::string> notes;
  ASSIGN_OR_RETURN(const KernelFunction run, LoadKernel(text, &counts, &notes));
  run(tensors.data(), function.blocks, descending ? -function.threads : function.threads);
  return absl::OkStatus();
}

KernelTensors::KernelTensors(const FusedKernel& kernel, unsigned seed) {
  std::mt19937 random(seed);
  memories_.reserve(kernel.inputs.size() + kernel.written.size() + kernel.results.size());
  for (const FusedTensor& input : kernel.inputs) Add(input, kernel.sizes, true, &random);
  for (const FusedOutput& output : kernel.written) Add(output.tensor, kernel.sizes, false, &random);
  for (const FusedOutput& output : kernel.results) Add(output.tensor, kernel.sizes, false, &random);
}

void KernelTensors::Add(const FusedTensor& tensor, const std::vector<int64_t>& sizes, bool is_input, void* random) {
  Memory& memory = memories_.emplace_back();
  memory.dtype = tensor.dtype, memory.is_input = is_input;
  memory.elements = 1;
  for (size_t d = 0; d < sizes.size(); ++d) memory.elements += (sizes[d] - 1) * tensor.strides[d];
  const size_t element = ElementBytes(tensor.dtype);
  memory.bytes.assign((memory.elements + 2 * kRoom) * element + kAlignment, kUntouched);
  const size_t over = (reinterpret_cast<uintptr_t>(memory.bytes.data()) + kRoom * element) % kAlignment;
  memory.first = kRoom * element + (kAlignment - over) % kAlignment;
  unsigned char* const first = memory.bytes.data() + memory.first;
  pointers_.push_back(first);
  if (!is_input) return;
  std::uniform_real_distribution<float> uniform(-2, 2);
  for (size_t i = 0; i < memory.elements; ++i) {
    const float x = uniform(*static_cast<std::mt19937*>(random));
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    bits &= 0xffff0000u;  // the same numbers in both types
    const uint16_t half = static_cast<uint16_t>(bits >> 16);
    if (tensor.dtype == v1::BFLOAT16) std::memcpy(first + i * element, &half, element);
    if (tensor.dtype == v1::FLOAT32) std::memcpy(first + i * element, &bits, element);
  }
}

std::vector<double> KernelTensors::Memory::Values() const {
  std::vector<double> values(elements);
  for (size_t i = 0; i < elements; ++i) {
    if (dtype == v1::BFLOAT16) {
      uint16_t half;
      std::memcpy(&half, bytes.data() + first + i * 2, 2);
      values[i] = FromBfloat16(half);
    } else {
      float x;
      std::memcpy(&x, bytes.data() + first + i * 4, 4);
      values[i] = x;
    }
  }
  return values;
}

double KernelTensors::DistanceFrom(const KernelTensors& others) const {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  double largest = 1, distance = 0;
  for (const Memory& memory : others.memories_) {
    for (const double x : memory.Values()) largest = std::max(largest, std::abs(x));
  }
  for (size_t m = 0; m < memories_.size(); ++m) {
    const Memory &mine = memories_[m], &theirs = others.memories_[m];
    const size_t bytes = mine.elements * ElementBytes(mine.dtype), behind = mine.first + bytes;
    for (size_t i = 0; i < mine.bytes.size(); ++i) {
      const bool is_inside = i >= mine.first && i < behind;
      if (!is_inside && mine.bytes[i] != kUntouched) return kInfinite;
    }
    if (mine.is_input && std::memcmp(mine.bytes.data() + mine.first, theirs.bytes.data() + theirs.first, bytes) != 0)
      return kInfinite;
    const std::vector<double> a = mine.Values(), b = theirs.Values();
    for (size_t i = 0; i < a.size(); ++i) {
      const double unit = mine.dtype == v1::BFLOAT16 ? 2 * std::abs(b[i]) / 128 : 0;
      if (!(std::abs(a[i] - b[i]) <= kInfinite) || !std::isfinite(b[i])) return kInfinite;
      distance = std::max(distance, std::abs(a[i] - b[i]) / (2e-5 * largest + unit));
    }
  }
  return distance;
}

bool KernelTensors::operator==(const KernelTensors& others) const {
  for (size_t m = 0; m < memories_.size(); ++m) {
    const Memory &mine = memories_[m], &theirs = others.memories_[m];
    const size_t bytes = mine.elements * ElementBytes(mine.dtype);
    if (std::memcmp(mine.bytes.data() + mine.first, theirs.bytes.data() + theirs.first, bytes) != 0) return false;
  }
  return true;
}

}  // namespace legoai::graph::testing_cuda

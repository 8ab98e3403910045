// The device's caching allocator beside the memory simulator: the same allocations and frees in both.
#include <ATen/ATen.h>

#include <map>
#include <vector>

#include "core/trace/testing/trace_builder.h"
#include "simulator/memory/memory_simulator.h"
#include "tests/gpu/gpu_test.h"
#include "worker/comm/ops.h"

namespace legoai::gpu {
namespace {

constexpr int64_t kMiB = 1 << 20;

// A storage of so many bytes, born here, or freed: by its number.
struct Event {
  int64_t number;
  int64_t bytes;  // 0: freed
};

class SmokeAllocator : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (plugin_ == nullptr) return;
    at::zeros({1}, at::kCUDA);
    Synchronize();
  }
  static at::Tensor Make(int64_t bytes) { return at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(at::kCUDA)); }

  static sim::MemoryProfile Simulate(const std::vector<Event>& events) {
    graph::TraceBuilder builder;
    std::map<int64_t, uint32_t> storages;
    for (const Event& event : events) {
      if (event.bytes == 0) {
        builder.Free(storages.at(event.number));
        continue;
      }
      const auto tensor = builder.New(v1::UINT8, {event.bytes});
      storages[event.number] = builder.StorageOf(tensor);
      builder.Op("aten::empty.memory_format", {}, {tensor});
    }
    auto profile = sim::SimulateMemory(builder.trace(), {});
    EXPECT_TRUE(profile.ok()) << profile.status();
    return profile.ok() ? *profile : sim::MemoryProfile();
  }
};

// Up to a MiB blocks are cut to the rounded size exactly.
TEST_F(SmokeAllocator, LiveAndPeakBytesAreTheMemorySimulators) {
  const std::vector<Event> events = {{0, 1},    {1, 511},      {2, 512}, {3, 513},    {4, 4097}, {5, kMiB}, {3, 0}, {5, 0},
                                     {6, 1000}, {7, kMiB - 1}, {0, 0},   {8, 123457}, {7, 0},    {9, 7},    {8, 0}};
  const DeviceBytes before = BytesNow();
  ResetPeak();
  std::map<int64_t, at::Tensor> tensors;
  std::vector<Event> so_far;
  for (const Event& event : events) {
    so_far.push_back(event);
    event.bytes == 0 ? tensors[event.number].reset() : void(tensors[event.number] = Make(event.bytes));
    const DeviceBytes now = BytesNow();
    const sim::MemoryProfile profile = Simulate(so_far);
    EXPECT_EQ(now.requested - before.requested, profile.live_bytes.back()) << "after " << so_far.size() << " events";
    EXPECT_EQ(now.requested_peak - before.requested, profile.peak_requested_bytes) << "after " << so_far.size() << " events";
    EXPECT_EQ(plugin_->peak_allocated_bytes(0), now.requested_peak);
    int64_t rounded = 0;
    for (const auto& [_, tensor] : tensors) rounded += tensor.defined() ? (int64_t(tensor.nbytes()) + 511) / 512 * 512 : 0;
    EXPECT_EQ(now.allocated - before.allocated, rounded) << "after " << so_far.size() << " events";
  }
  const DeviceBytes end = BytesNow();
  tensors.clear();
  EXPECT_EQ(BytesNow().requested, before.requested);
  EXPECT_GT(end.requested_peak, end.requested);
}

// The simulator's other number: every storage rounded, at its own peak.
TEST_F(SmokeAllocator, ThePeakOfRoundedBytesIsTheMemorySimulators) {
  const std::vector<Event> events = {{0, 1}, {1, 1}, {2, 1}, {3, 100000}, {3, 0}, {4, 513}};
  const DeviceBytes before = BytesNow();
  std::map<int64_t, at::Tensor> tensors;
  int64_t peak = 0;
  for (const Event& event : events) {
    event.bytes == 0 ? tensors[event.number].reset() : void(tensors[event.number] = Make(event.bytes));
    peak = std::max(peak, BytesNow().allocated - before.allocated);
  }
  EXPECT_EQ(peak, Simulate(events).peak_allocated_bytes);
}

// Of larger blocks a rest of up to a MiB stays with the block (PyTorch 2.11, CUDACachingAllocator: kSmallSize): allocated bytes
// are the rounded ones and at most that more, requested bytes what was asked for.
TEST_F(SmokeAllocator, LargeBlocksKeepAtMostAMebibyte) {
  for (const int64_t bytes : {kMiB + 1, 3 * kMiB + 5, 10 * kMiB, 11 * kMiB + 511, 50 * kMiB + 1, 300 * kMiB + 12345}) {
    const DeviceBytes before = BytesNow();
    const at::Tensor tensor = Make(bytes);
    const DeviceBytes now = BytesNow();
    const int64_t rounded = (bytes + 511) / 512 * 512, allocated = now.allocated - before.allocated;
    EXPECT_EQ(now.requested - before.requested, bytes);
    EXPECT_GE(allocated, rounded);
    EXPECT_LE(allocated, rounded + kMiB) << "for " << bytes << " bytes";
  }
}

// What FSDP does with its values: lego::resize_storage_.
TEST_F(SmokeAllocator, AResizedStorageTakesAndGivesBackItsBytes) {
  auto runtime = RuntimeOfOne(*plugin_);
  comm::RuntimeScope scope(runtime.get());
  const at::Tensor tensor = Make(70000);
  const at::Tensor view = tensor.narrow(0, 10, 5);
  const DeviceBytes with = BytesNow();
  comm::ResizeStorage(tensor, 0);
  EXPECT_EQ(with.requested - BytesNow().requested, 70000);
  EXPECT_EQ(with.allocated - BytesNow().allocated, 70144);
  comm::ResizeStorage(tensor, 70000);
  EXPECT_EQ(BytesNow().requested, with.requested);
  view.fill_(7);
  EXPECT_EQ(tensor.narrow(0, 10, 5).sum().item<int64_t>(), 35) << "a view sees the new memory";
}

}  // namespace
}  // namespace legoai::gpu

// The plugin loads, or says why not, and then its streams and events, with work that takes long enough for a missing order to
// show.
#include <ATen/ATen.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <thread>
#include <vector>

#include "core/trace/testing/trace_builder.h"
#include "proto/errors.h"
#include "simulator/memory/memory_simulator.h"
#include "tests/gpu/gpu_test.h"
#include "worker/comm/ops.h"

namespace legoai::gpu {
namespace {

using namespace comm;  // NOLINT: streams by their names

TEST(SmokePlugin, LoadsOrSaysWhatIsMissing) {
  const auto plugin = comm::LoadCudaPlugin(kPlugin);
  if (plugin.ok()) {
    EXPECT_GE((*plugin)->devices, 1);
    std::printf("%d GPUs\n", (*plugin)->devices);
    return;
  }
  EXPECT_EQ(plugin.status().code(), absl::StatusCode::kFailedPrecondition);
  const auto fault = GetFieldViolation(plugin.status());
  ASSERT_TRUE(fault.has_value()) << plugin.status();
  EXPECT_EQ(fault->field(), "device");
  EXPECT_NE(fault->remedy().find("use a machine with a GPU, or device cpu"), std::string::npos) << plugin.status();
}

class SmokePluginTest : public GpuTest {};

TEST_F(SmokePluginTest, ADeviceThatIsNotThereIsRefused) {
  EXPECT_FALSE(plugin_->select_device(plugin_->devices).ok());
  EXPECT_TRUE(plugin_->select_device(0).ok());
  EXPECT_EQ(at::ones({2}, at::kCUDA).sum().item<float>(), 2);
}

constexpr int64_t kElements = int64_t{64} << 20;  // 256 MB of fp32: a fill takes about 0.1 ms at 3 TB/s
constexpr int kFills = 20, kRounds = 30;

class SmokeStreams : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (plugin_ == nullptr) return;
    streams_ = plugin_->make_streams();
    from_ = at::zeros({kElements}, at::kCUDA);
    to_ = at::zeros({kElements}, at::kCUDA);
    Synchronize();
  }
  // The last of many fills leaves `value`.
  void Fill(int64_t stream, double value) {
    ASSERT_TRUE(streams_
                    ->Post(stream,
                           [&] {
                             for (int i = 1; i <= kFills; ++i) from_.fill_(i == kFills ? value : -i);
                             return absl::OkStatus();
                           })
                    .ok());
  }
  void Copy(int64_t stream) {
    ASSERT_TRUE(streams_
                    ->Post(stream,
                           [&] {
                             to_.copy_(from_);
                             return absl::OkStatus();
                           })
                    .ok());
  }
  void Order(int64_t first, int64_t then, int64_t event) {
    ASSERT_TRUE(streams_->Record(first, event).ok());
    ASSERT_TRUE(streams_->Wait(then, event).ok());
  }
  int64_t Wrong(double value) { return (to_ != value).sum().item<int64_t>(); }

  std::unique_ptr<Streams> streams_;
  at::Tensor from_, to_;
};

// Two side streams and three events, used again in every round.
TEST_F(SmokeStreams, AWaitMakesOneStreamsWorkFollowAnothers) {
  for (int round = 1; round <= kRounds; ++round) {
    Fill(kAllGather, round);
    Order(kAllGather, kReduceScatter, 1);
    Copy(kReduceScatter);
    Order(kReduceScatter, kAllGather, 2);  // the next fill must not reach this copy
    Order(kReduceScatter, kCompute, 3);
    ASSERT_EQ(Wrong(round), 0) << "elements in round " << round;
  }
}

// How often the same goes wrong without the wait: that the test above can fail. Told, not asserted: a GPU may run them in order.
TEST_F(SmokeStreams, WithoutAWaitCopiesComeEarly) {
  int early = 0;
  for (int round = 1; round <= kRounds; ++round) {
    Fill(kAllGather, 1000 + round);
    Copy(kReduceScatter);
    ASSERT_TRUE(streams_->Drain().ok());
    early += Wrong(1000 + round) != 0;
  }
  std::printf("without a wait %d of %d copies came before the last fill\n", early, kRounds);
}

TEST_F(SmokeStreams, SideStreamsFollowTheComputeStreamAndLeadIt) {
  for (int round = 1; round <= kRounds; ++round) {
    for (int i = 1; i <= kFills; ++i) from_.fill_(i == kFills ? round : -i);
    Order(kCompute, kReplicate, 4);
    Copy(kReplicate);
    Order(kReplicate, kCompute, 5);
    ASSERT_EQ(Wrong(round), 0) << "elements in round " << round;
    from_.fill_(0);
  }
}

TEST_F(SmokeStreams, AnEventThatWasNeverRecordedIsDone) {
  EXPECT_TRUE(streams_->Wait(kAllGather, 77).ok());
  EXPECT_TRUE(streams_->Drain().ok());
}

TEST_F(SmokeStreams, AMarkIsPassedWhenTheWorkBeforeItIsDone) {
  std::unique_ptr<StreamMark> mark;
  ASSERT_TRUE(streams_
                  ->Post(kAllGather,
                         [&] {
                           for (int i = 0; i < 20 * kFills; ++i) from_.fill_(i);
                           mark = streams_->Mark(kAllGather);
                           return absl::OkStatus();
                         })
                  .ok());
  ASSERT_NE(mark, nullptr);
  EXPECT_FALSE(mark->Passed()) << "400 fills of 256 MB take longer than this question";
  ASSERT_TRUE(streams_->Drain().ok());
  EXPECT_TRUE(mark->Passed());
}

TEST_F(SmokeStreams, DrainWaitsForEveryStream) {
  std::vector<std::unique_ptr<StreamMark>> marks;
  for (int64_t stream = 1; stream < kStreamCount; ++stream) {
    ASSERT_TRUE(streams_
                    ->Post(stream,
                           [&] {
                             for (int i = 0; i < kFills; ++i) from_.fill_(i);
                             marks.push_back(streams_->Mark(stream));
                             return absl::OkStatus();
                           })
                    .ok());
  }
  ASSERT_TRUE(streams_->Drain().ok());
  for (auto& mark : marks) EXPECT_TRUE(mark->Passed());
}

// As when a peer is lost: the wait ends although the stream's work does not yet. Few long operators, since a thread that enqueues
// more than about a thousand waits itself: a product of 8192 takes 1.1 TFLOP, so 60 of them a second at 67 TFLOP/s.
TEST_F(SmokeStreams, DrainEndsWhenHealthDoes) {
  const at::Tensor square = from_.view({8192, 8192});
  at::Tensor product = to_.view({8192, 8192});
  int asked = 0;
  streams_->SetHealth([&] { return ++asked < 2 ? absl::OkStatus() : absl::UnavailableError("a peer is lost"); });
  std::unique_ptr<StreamMark> mark;
  ASSERT_TRUE(streams_
                  ->Post(kAllGather,
                         [&] {
                           for (int i = 0; i < 60; ++i) at::mm_out(product, square, square);
                           mark = streams_->Mark(kAllGather);
                           return absl::OkStatus();
                         })
                  .ok());
  EXPECT_EQ(streams_->Drain().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(asked, 2);
  EXPECT_FALSE(mark->Passed());
  streams_->SetHealth([] { return absl::OkStatus(); });
  EXPECT_TRUE(streams_->Drain().ok());
  EXPECT_TRUE(mark->Passed());
}

// Memory that a side stream uses is not given to others before the compute stream has waited for it.
TEST_F(SmokeStreams, TheRuntimeHoldsWhatASideStreamUses) {
  auto runtime = RuntimeOfOne(*plugin_);
  RuntimeScope scope(runtime.get());
  const int64_t group = runtime->GroupId(mesh::Dim::kDpShard), fork = runtime->NewEvent(), done = runtime->NewEvent();
  for (int round = 1; round <= kRounds; ++round) {
    at::Tensor in = at::full({kElements / 16}, double(round), at::kCUDA), out = at::empty_like(in);
    RecordEvent(kCompute, fork);
    WaitEvent(kAllGather, fork);
    {
      StreamScope stream(kAllGather);
      AllGatherInto(out, in, group);
    }
    RecordEvent(kAllGather, done);
    in.reset();
    const at::Tensor other = at::full({kElements / 16}, -1.0, at::kCUDA);  // would get in's memory
    WaitEvent(kCompute, done);
    ASSERT_EQ((out != round).sum().item<int64_t>(), 0) << "round " << round;
  }
}

// The device's caching allocator beside the memory simulator: the same allocations and frees in both.

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

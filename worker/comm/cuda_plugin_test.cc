// With a GPU: NCCL in a world of one, streams and events. Without: the refusal, in words.
#include "worker/comm/cuda_plugin.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "proto/errors.h"
#include "worker/comm/ops.h"
#include "worker/comm/step_timeline.h"

namespace legoai::comm {
namespace {

constexpr char kPlugin[] = "worker/comm/cuda/liblegoai_cuda.so";

void CollectivesOfOne(const CudaPlugin& plugin) {
  ASSERT_TRUE(plugin.select_device(0).ok());
  auto factory = plugin.make_nccl_factory({});
  ASSERT_TRUE(factory.ok()) << factory.status();
  auto nccl = (*factory)({mesh::Dim::kDpShard, {0, 1, 1}}, 0, 0);
  ASSERT_TRUE(nccl.ok()) << nccl.status();
  auto in = at::full({1 << 16}, 3.0, at::kCUDA), out = at::empty({1 << 16}, at::kCUDA);
  EXPECT_TRUE((*nccl)->AllGather(out.data_ptr(), in.data_ptr(), in.nbytes()).ok());
  EXPECT_TRUE((*nccl)->AllReduce(out.data_ptr(), out.numel(), at::kFloat, ReduceOp::kSum).ok());
  EXPECT_EQ(out.sum().item<float>(), 3.0f * (1 << 16));
  EXPECT_GE(plugin.peak_allocated_bytes(0), int64_t(2 * in.nbytes()));
}

// A mark is passed when the stream's work is done, whoever asks.
void MarksArePassed(const CudaPlugin& plugin) {
  auto streams = plugin.make_streams();
  std::unique_ptr<StreamMark> mark;
  at::Tensor filled;
  const auto fill = [&] {
    filled = at::full({1 << 20}, 3.0, at::kCUDA);
    mark = streams->Mark(kAllGather);
    return absl::OkStatus();
  };
  ASSERT_TRUE(streams->Post(kAllGather, fill).ok());
  ASSERT_NE(mark, nullptr);
  ASSERT_TRUE(streams->Drain().ok());
  EXPECT_TRUE(mark->Passed());
  bool passed = false;
  std::thread([&] { passed = mark->Passed(); }).join();
  EXPECT_TRUE(passed);
  streams.reset();
  EXPECT_TRUE(mark->Passed());
}

// A timer tells the device's time: of a large product more than of a small one, and not the host's, which only enqueues.
void TimersTellTheDevicesTime(const CudaPlugin& plugin) {
  const auto timer = plugin.make_timer();
  EXPECT_EQ(timer->Stop().status().code(), absl::StatusCode::kFailedPrecondition);
  const auto seconds_of = [&](int64_t size) {
    const at::Tensor x = at::full({size, size}, 1.0, at::kCUDA);
    at::mm(x, x);
    EXPECT_TRUE(timer->Start().ok());
    for (int i = 0; i < 20; ++i) at::mm(x, x);
    const auto seconds = timer->Stop();
    EXPECT_TRUE(seconds.ok()) << seconds.status();
    return seconds.value_or(0);
  };
  const double small = seconds_of(1024), large = seconds_of(4096);
  EXPECT_GT(small, 0);
  EXPECT_GT(large, 10 * small) << "64 times the work";
  EXPECT_LT(large, 10.0);
  const auto facts = plugin.describe(0);
  for (const char* name : {"card", "cuda", "cudnn", "cublas", "nccl"}) EXPECT_NE(facts.count(name), 0u) << name;
}

// A phase lasts as long as the device works for it, though the host only enqueues.
void TimelinesTellTheDevicesTime(const CudaPlugin& plugin) {
  StepTimeline timeline(plugin.make_clock());
  const auto length_of = [&](int64_t size) {
    const at::Tensor x = at::full({size, size}, 1.0, at::kCUDA);
    at::mm(x, x);
    timeline.Begin();
    {
      const auto phase = TimelineScope::Phase(graph::Phase::kForward);
      for (int i = 0; i < 20; ++i) at::mm(x, x);
    }
    const auto times = timeline.End();
    EXPECT_TRUE(times.ok()) << times.status();
    if (!times.ok()) return int64_t{0};
    EXPECT_LE(times->phases.at(0).span.end_ns, times->length_ns);
    return times->phases.at(0).span.length_ns();
  };
  const int64_t small = length_of(1024), large = length_of(4096);
  EXPECT_GT(small, 0);
  EXPECT_GT(large, 10 * small) << "64 times the work";
}

TEST(CudaPlugin, AMissingLibraryIsNamedWithItsRemedy) {
  const absl::Status missing = LoadCudaPlugin("no/such/library.so").status();
  if (missing.ok()) GTEST_SKIP() << "another test of this program has loaded the plugin, which stays";
  EXPECT_EQ(missing.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(missing.message().find("no/such/library.so"), std::string::npos) << missing;
  EXPECT_NE(missing.message().find("`tools/fetch_deps gpu`"), std::string::npos) << missing;
  EXPECT_NE(missing.message().find("build //worker/comm/cuda:liblegoai_cuda.so"), std::string::npos) << missing;
}

// A plugin that the dynamic linker refuses, in a build tree and installed beside the programs.
TEST(CudaPlugin, TheRemedyFitsWhereThePluginLies) {
  const std::string installed = ::testing::TempDir() + "/package/bin", built = ::testing::TempDir() + "/worker/comm/cuda";
  const auto refusal = [](const std::string& folder) {
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/liblegoai_cuda.so") << "no library";
    return std::string(LoadCudaPlugin(folder + "/liblegoai_cuda.so").status().message());
  };
  const std::string package = refusal(installed), tree = refusal(built);
  if (package.empty()) GTEST_SKIP() << "another test of this program has loaded the plugin, which stays";
  EXPECT_NE(package.find("`pip install torch==2."), std::string::npos) << package;
  EXPECT_EQ(package.find("tools/"), std::string::npos) << package;
  EXPECT_NE(tree.find("`tools/fetch_deps gpu`"), std::string::npos) << tree;
  EXPECT_EQ(tree.find("pip"), std::string::npos) << tree;
}

TEST(CudaPlugin, WorksOnAGpuOrSaysWhyNot) {
  auto plugin = LoadCudaPlugin(kPlugin);
  if (plugin.ok()) {
    CollectivesOfOne(**plugin);
    MarksArePassed(**plugin);
    TimersTellTheDevicesTime(**plugin);
    TimelinesTellTheDevicesTime(**plugin);
    return;
  }
  EXPECT_EQ(plugin.status().code(), absl::StatusCode::kFailedPrecondition);
  const auto fault = GetFieldViolation(plugin.status());
  ASSERT_TRUE(fault.has_value()) << plugin.status();
  EXPECT_EQ(fault->field(), "device");
  EXPECT_EQ(fault->value(), "cuda");
  EXPECT_NE(fault->remedy().find("use a machine with a GPU, or device cpu"), std::string::npos) << plugin.status();
}

}  // namespace
}  // namespace legoai::comm

// With a GPU: NCCL in a world of one, streams and events. Without: the refusal, in words.
#include "worker/comm/cuda_plugin.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "worker/comm/ops.h"

namespace legoai::comm {
namespace {

constexpr char kPlugin[] = "worker/comm/cuda/liblegoai_cuda.so";

void CollectivesOfOne(const CudaPlugin& plugin) {
  ASSERT_TRUE(plugin.select_device(0).ok());
  auto factory = plugin.make_nccl_factory({});
  ASSERT_TRUE(factory.ok()) << factory.status();
  auto nccl = (*factory)({"dp_shard", {0}}, 0, 0);
  ASSERT_TRUE(nccl.ok()) << nccl.status();
  auto in = at::full({1 << 16}, 3.0, at::kCUDA), out = at::empty({1 << 16}, at::kCUDA);
  EXPECT_TRUE((*nccl)->AllGather(out.data_ptr(), in.data_ptr(), in.nbytes()).ok());
  EXPECT_TRUE((*nccl)->AllReduce(out.data_ptr(), out.numel(), at::kFloat, ReduceOp::kSum).ok());
  EXPECT_EQ(out.sum().item<float>(), 3.0f * (1 << 16));
  EXPECT_GE(plugin.peak_allocated_bytes(0), int64_t(2 * in.nbytes()));
}

TEST(CudaPlugin, WorksOnAGpuOrSaysWhyNot) {
  auto plugin = LoadCudaPlugin(kPlugin);
  if (plugin.ok()) {
    CollectivesOfOne(**plugin);
    return;
  }
  EXPECT_EQ(plugin.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(plugin.status().message().find("cuda"), absl::string_view::npos) << plugin.status();
  EXPECT_NE(plugin.status().message().find("train on device cpu"), absl::string_view::npos) << plugin.status();
}

}  // namespace
}  // namespace legoai::comm

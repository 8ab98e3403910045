// The plugin loads, or says why not; and the other tests here then stand for what they say.
#include <ATen/ATen.h>
#include <c10/core/Device.h>

#include <cstdio>
#include <cstdlib>

#include "proto/errors.h"
#include "tests/gpu/gpu_test.h"

namespace legoai::gpu {
namespace {

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

}  // namespace
}  // namespace legoai::gpu

#include "worker/train/machine_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>

#include "worker/comm/cuda_plugin.h"

namespace legoai::train {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr int64_t kBytes = (int64_t{9} << 20) + 4097;  // no whole number of pieces

std::string Folder(const std::string& name) {
  const fs::path folder = fs::path(::testing::TempDir()) / name;
  fs::create_directories(folder);
  return folder.string();
}

TEST(DiskCheckTest, WritesReadsAndLeavesNothing) {
  const std::string folder = Folder("disk");
  const v1::CheckResult result = CheckDisk(folder, ".check-a", kBytes);
  EXPECT_EQ(result.kind(), v1::DISK_CHECK);
  EXPECT_TRUE(result.passed()) << result.text();
  EXPECT_GT(result.write_bytes_per_second(), 0);
  EXPECT_GT(result.read_bytes_per_second(), 0);
  EXPECT_GT(result.free_bytes(), 0);
  EXPECT_GT(result.seconds(), 0);
  EXPECT_TRUE(fs::is_empty(folder));
}

TEST(DiskCheckTest, SaysWhatIsWrong) {
  const v1::CheckResult missing = CheckDisk("/no/such/folder", ".check-a", kBytes);
  EXPECT_FALSE(missing.passed());
  EXPECT_THAT(missing.text(), HasSubstr("/no/such/folder/.check-a"));
  EXPECT_FALSE(missing.has_read_bytes_per_second());

  const std::string folder = Folder("limited");
  signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small = {1 << 20, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const v1::CheckResult limited = CheckDisk(folder, ".check-a", kBytes);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_FALSE(limited.passed());
  EXPECT_THAT(limited.text(), HasSubstr("limited/.check-a"));
  EXPECT_TRUE(fs::is_empty(folder)) << "what there was of it is gone";
}

v1::CheckTask DeviceTask(const std::string& device, const std::string& gpu = "") {
  v1::CheckTask task;
  task.set_kind(v1::DEVICE_CHECK);
  task.set_device(device);
  task.set_gpu(gpu);
  task.set_threads(1);
  return task;
}

TEST(DeviceCheckTest, AProcessorThatComputes) {
  const v1::CheckResult result = CheckDevice(DeviceTask("cpu"));
  EXPECT_EQ(result.kind(), v1::DEVICE_CHECK);
  EXPECT_TRUE(result.passed()) << result.text();
  EXPECT_GT(result.flops_per_second(), 0);
  EXPECT_GT(result.to_device_bytes_per_second(), 0);
  EXPECT_GT(result.from_device_bytes_per_second(), 0);
}

// A plugin with GPUs GPU-x and GPU-y that are not there.
TEST(DeviceCheckTest, AGpuThatIsNotThereOrTakesNoMemory) {
  ASSERT_EQ(comm::LoadCudaPlugin("worker/train/libfake_cuda_plugin.so").status(), absl::OkStatus());
  const v1::CheckResult unknown = CheckDevice(DeviceTask("cuda", "GPU-z"));
  EXPECT_FALSE(unknown.passed());
  EXPECT_THAT(unknown.text(), HasSubstr("gpu = GPU-z"));
  const v1::CheckResult dead = CheckDevice(DeviceTask("cuda", "GPU-x"));
  EXPECT_FALSE(dead.passed());
  EXPECT_FALSE(dead.text().empty());
  EXPECT_FALSE(dead.has_flops_per_second());
  EXPECT_FALSE(CheckDevice(DeviceTask("tpu")).passed());
}

}  // namespace
}  // namespace legoai::train

#include "core/hardware/nvml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/hardware/testing/fake_gpus.h"
#include "proto/errors.h"
#include "proto/testing/assert_ok.h"

namespace legoai::sim {
namespace {

using ::testing::ElementsAre;
using testing::FakeGpus;
using testing::FakeH100;
using testing::FakeH200;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> Uuids(const absl::StatusOr<NvmlReport>& report) {
  EXPECT_TRUE(report.ok()) << report.status();
  std::vector<std::string> uuids;
  if (!report.ok()) return uuids;
  for (const Gpu& gpu : report->gpus) uuids.push_back(gpu.uuid);
  return uuids;
}

// All that a machine without GPUs can be told by: the field, and what else to do.
void ExpectNoGpu(const absl::Status& status, const std::string& why,
                 absl::StatusCode code = absl::StatusCode::kFailedPrecondition) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(status.message(), HasSubstr(why));
  const auto fault = GetFieldViolation(status);
  ASSERT_TRUE(fault) << status;
  EXPECT_EQ(fault->field(), "device");
  EXPECT_EQ(fault->value(), "cuda");
  EXPECT_THAT(fault->remedy(), HasSubstr("use a machine with a GPU, or device cpu"));
}

TEST(NvmlTest, TellsAllOfACard) {
  const FakeGpus fake({FakeH100("GPU-a"), FakeH200("GPU-b")});
  ASSERT_OK_AND_ASSIGN(const auto report, ReadNvml());
  EXPECT_EQ(report.driver_version, "580.65.06");
  ASSERT_EQ(report.gpus.size(), 2u);
  const Gpu& gpu = report.gpus[0];
  EXPECT_EQ(gpu.index, 0);
  EXPECT_EQ(gpu.uuid, "GPU-a");
  EXPECT_EQ(gpu.name, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(gpu.memory_bytes, int64_t{85520809984} - 577765376) << "without what the driver keeps";
  EXPECT_EQ(gpu.power_limit_watts, 700);
  EXPECT_EQ(gpu.max_sm_clock_mhz, 1980);
  EXPECT_EQ(gpu.max_memory_clock_mhz, 2619);
  EXPECT_EQ(gpu.sm_clock_mhz, 345);
  EXPECT_EQ(report.gpus[1].index, 1);
  EXPECT_EQ(report.gpus[1].name, "NVIDIA H200");
  EXPECT_EQ(GpusText(report.gpus), "NVIDIA H100 80GB HBM3 and NVIDIA H200");
}

TEST(NvmlTest, WhatACardDoesNotTellIsNothing) {
  const FakeGpus fake({"name=Old,uuid=GPU-a,memory=16,reserved=4,error=nvmlDeviceGetMemoryInfo_v2:3"});
  ASSERT_OK_AND_ASSIGN(const auto report, ReadNvml());
  EXPECT_EQ(report.gpus[0].memory_bytes, 16) << "all of it, where the driver does not say what it keeps";
  EXPECT_EQ(report.gpus[0].power_limit_watts, 0);
  EXPECT_EQ(report.gpus[0].sm_clock_mhz, 0);
}

TEST(NvmlTest, ReadsTheLoadOfTheCardsThatAreMeant) {
  const FakeGpus fake({FakeH100("GPU-a"), FakeH100("GPU-b") + ",used=1073741824,utilization=97,temperature=61,draw=512250",
                       FakeH100("GPU-c") + ",error=nvmlDeviceGetHandleByIndex_v2:15"});
  ASSERT_OK_AND_ASSIGN(const auto reader, GpuLoadReader::Open({1, 0, 2}));
  for (int again = 0; again < 2; ++again) {
    const std::vector<GpuLoad> loads = reader.Read();
    ASSERT_EQ(loads.size(), 2u) << "one fails";
    EXPECT_EQ(loads[0].index, 1);
    EXPECT_DOUBLE_EQ(loads[0].utilization.value(), 0.97);
    EXPECT_EQ(loads[0].memory_bytes, int64_t{1} << 30);
    EXPECT_EQ(loads[0].temperature_celsius, 61);
    EXPECT_DOUBLE_EQ(loads[0].power_watts.value(), 512.25);
    EXPECT_EQ(loads[1].index, 0);
    EXPECT_EQ(loads[1].memory_bytes, 0);
    EXPECT_FALSE(loads[1].utilization || loads[1].temperature_celsius || loads[1].power_watts) << "it does not tell";
  }
  setenv("LEGOAI_NVML", "/no/such/library.so", 1);
  ExpectNoGpu(GpuLoadReader::Open({0}).status(), "/no/such/library.so");
}

TEST(NvmlTest, NoLibraryNoDriverNoCard) {
  const FakeGpus fake({});
  ExpectNoGpu(ReadNvml().status(), "the driver shows none");
  setenv("LEGOAI_FAKE_NVML", "error=nvmlInit_v2:9", 1);
  ExpectNoGpu(ReadNvml().status(), "nvmlInit_v2 says: error 9 of the fake");
  setenv("LEGOAI_NVML", "/no/such/library.so", 1);
  ExpectNoGpu(ReadNvml().status(), "/no/such/library.so");
}

// Not taken for a machine that has none.
TEST(NvmlTest, CardsThatFailAreNamed) {
  const auto unavailable = absl::StatusCode::kUnavailable;
  const FakeGpus fake({FakeH100("GPU-a"), FakeH100("GPU-b") + ",error=nvmlDeviceGetHandleByIndex_v2:15"});
  ExpectNoGpu(ReadNvml().status(), "nvmlDeviceGetHandleByIndex_v2 says: error 15", unavailable);
  setenv("LEGOAI_FAKE_NVML", (FakeH100("GPU-a") + ";" + FakeH100("GPU-b") + ",error=nvmlDeviceGetUUID:15").c_str(), 1);
  ExpectNoGpu(ReadNvml().status(), "nvmlDeviceGetUUID says: error 15", unavailable);
  EXPECT_THAT(ReadNvml().status().message(), HasSubstr("GPU 1"));
  setenv("LEGOAI_FAKE_NVML", "error=nvmlInit_v2:18", 1);
  ExpectNoGpu(ReadNvml().status(), "error 18", unavailable);
}

TEST(NvmlTest, CardsOfOthersAreNotSeen) {
  const FakeGpus fake({FakeH100("GPU-a"), FakeH100("GPU-b") + ",error=nvmlDeviceGetHandleByIndex_v2:4", FakeH100("GPU-c")});
  EXPECT_THAT(Uuids(ReadNvml()), ElementsAre("GPU-a", "GPU-c"));
  EXPECT_EQ(ReadNvml()->gpus[1].index, 2);
  setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  EXPECT_THAT(Uuids(ReadNvml()), ElementsAre("GPU-c")) << "CUDA counts those that it may use";
}

TEST(NvmlTest, OnlyVisibleOnesInTheirOrder) {
  const FakeGpus fake({FakeH100("GPU-a1"), FakeH100("GPU-a2"), FakeH100("GPU-b")});
  EXPECT_THAT(Uuids(ReadNvml()), ElementsAre("GPU-a1", "GPU-a2", "GPU-b"));
  setenv("CUDA_VISIBLE_DEVICES", "2,0", 1);
  EXPECT_THAT(Uuids(ReadNvml()), ElementsAre("GPU-b", "GPU-a1"));
  EXPECT_EQ(ReadNvml()->gpus[0].index, 2) << "NVML's, not the place in the list";
  setenv("CUDA_VISIBLE_DEVICES", "GPU-b,GPU-a2", 1);
  EXPECT_THAT(Uuids(ReadNvml()), ElementsAre("GPU-b", "GPU-a2"));
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  ExpectNoGpu(ReadNvml().status(), "CUDA_VISIBLE_DEVICES = \"\" leaves none of 3 NVIDIA H100 80GB HBM3");
}

// Which of two different cards is number 0 only CUDA knows, unless it is told to count as NVML does.
TEST(NvmlTest, IndicesAmongDifferentCardsNeedAnOrder) {
  const FakeGpus fake({FakeH100("GPU-a"), FakeH200("GPU-b")});
  setenv("CUDA_VISIBLE_DEVICES", "0", 1);
  const auto fault = GetFieldViolation(ReadNvml().status());
  ASSERT_TRUE(fault) << ReadNvml().status();
  EXPECT_EQ(fault->field(), "CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(fault->value(), "0");
  EXPECT_THAT(fault->remedy(), HasSubstr("CUDA_DEVICE_ORDER=PCI_BUS_ID"));
  setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST", 1);
  EXPECT_EQ(ReadNvml().status().code(), absl::StatusCode::kInvalidArgument);
  setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
  EXPECT_THAT(Uuids(ReadNvml()), ElementsAre("GPU-a"));
  unsetenv("CUDA_DEVICE_ORDER");
  setenv("CUDA_VISIBLE_DEVICES", "GPU-b", 1);
  EXPECT_THAT(Uuids(ReadNvml()), ElementsAre("GPU-b"));
}

// Each as torch.cuda's _parse_visible_devices and _transform_uuid_to_ordinals read it.
TEST(VisibleDevicesTest, AsCudaReadsThem) {
  const std::vector<std::string> uuids = {"GPU-aa1", "GPU-ab2", "GPU-b"};
  const auto positions = [&](const std::string& value) { return ReadVisibleDevices(value, uuids).positions; };
  EXPECT_THAT(positions("0,2"), ElementsAre(0, 2));
  EXPECT_THAT(positions(" 1 , 0"), ElementsAre(1, 0));
  EXPECT_THAT(positions("1gpu2,2ampere"), ElementsAre(1, 2));
  EXPECT_THAT(positions("0,3,1"), ElementsAre(0)) << "no such card: the list ends";
  EXPECT_THAT(positions("0,-1,1"), ElementsAre(0));
  EXPECT_THAT(positions("0,,1"), ElementsAre(0));
  EXPECT_THAT(positions("99999999999999999999"), IsEmpty());
  EXPECT_THAT(positions("-1"), IsEmpty());
  EXPECT_THAT(positions(""), IsEmpty());
  EXPECT_THAT(positions("none"), IsEmpty());
  EXPECT_THAT(positions("1,0,1"), IsEmpty()) << "twice: none";
  EXPECT_THAT(positions("GPU-ab,GPU-aa1"), ElementsAre(1, 0));
  EXPECT_THAT(positions("GPU-b,GPU-a,GPU-aa"), ElementsAre(2)) << "of GPU-a there are two";
  EXPECT_THAT(positions("GPU-b,GPU-c,GPU-aa"), ElementsAre(2));
  EXPECT_THAT(positions("GPU-b,GPU-aa,GPU-aa1"), IsEmpty());
  EXPECT_THAT(positions("GPU-b,1"), ElementsAre(2)) << "the first says what all are";
  EXPECT_THAT(positions("1,GPU-b"), ElementsAre(1));
  EXPECT_THAT(positions("MIG-GPU-b/1/0"), IsEmpty());
  EXPECT_TRUE(ReadVisibleDevices("1", uuids).by_index);
  EXPECT_FALSE(ReadVisibleDevices("GPU-b", uuids).by_index);
}

}  // namespace
}  // namespace legoai::sim

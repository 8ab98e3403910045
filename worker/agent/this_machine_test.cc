#include "worker/agent/this_machine.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>

#include "absl/time/clock.h"
#include "core/hardware/catalog.h"
#include "core/hardware/host.h"
#include "core/hardware/testing/fake_gpus.h"
#include "core/process/host_resources.h"
#include "proto/errors.h"

namespace legoai::agent {
namespace {

using sim::testing::FakeGpus;
using sim::testing::FakeH100;
using sim::testing::FakeH200;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

MachineOptions With(const std::string& device, std::optional<int64_t> slots = std::nullopt, const std::string& file = "") {
  return {.name = "tester", .pool = "default", .slots = slots, .device = device, .device_file = file};
}

// The field that is refused, " = ", its value and what to do.
std::string Refusal(const MachineOptions& options) {
  const auto worker = ThisMachine(options);
  if (worker.ok()) return "accepted";
  EXPECT_TRUE(GetFieldViolation(worker.status())) << worker.status();
  return std::string(worker.status().message());
}

std::string DeviceFile(const std::string& name, const v1::Device& device) {
  const std::string path = ::testing::TempDir() + "/" + name;
  std::ofstream(path) << device.DebugString();
  return path;
}

class ThisMachineTest : public ::testing::Test {
 protected:
  // Not what this machine was measured to be.
  void SetUp() override { setenv("LEGOAI_HOST_DEVICE", DeviceFile("measured.txtpb", *sim::FindDevice("cpu")).c_str(), 1); }
};

TEST_F(ThisMachineTest, AutoTakesGpusWhereThereAreAny) {
  const FakeGpus fake({FakeH100("GPU-a"), FakeH100("GPU-b")});
  const auto machine = ThisMachine(With("auto"));
  ASSERT_TRUE(machine.ok()) << machine.status();
  const v1::Worker& worker = machine->worker;
  EXPECT_EQ(worker.slots(), 2);
  EXPECT_EQ(worker.device().type(), "h100-sxm-80");
  EXPECT_EQ(worker.device().memory_bytes(), int64_t{85520809984} - 577765376) << "what these have";
  v1::Device rest = worker.device();
  rest.set_memory_bytes(sim::FindDevice("h100-sxm-80")->memory_bytes());
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(rest, *sim::FindDevice("h100-sxm-80")));
  ASSERT_EQ(worker.slot_devices_size(), 2);
  EXPECT_EQ(worker.slot_devices(1).index(), 1);
  EXPECT_EQ(worker.slot_devices(1).uuid(), "GPU-b");
  EXPECT_EQ(worker.slot_devices(1).name(), "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(worker.slot_devices(1).memory_bytes(), int64_t{85520809984} - 577765376);
  EXPECT_EQ(machine->device_reason, "GPUs by --device=auto: 2 NVIDIA H100 80GB HBM3, driver 580.65.06");
}

TEST_F(ThisMachineTest, AutoTakesProcessorsWhereThereIsNone) {
  const FakeGpus none({});
  const auto machine = ThisMachine(With("auto"));
  ASSERT_TRUE(machine.ok()) << machine.status();
  EXPECT_EQ(machine->worker.slots(), sim::HostPhysicalCores());
  EXPECT_EQ(machine->worker.device().kind(), v1::CPU);
  EXPECT_THAT(machine->worker.slot_devices(), IsEmpty());
  EXPECT_THAT(machine->device_reason, HasSubstr("processors by --device=auto: "));
  EXPECT_THAT(machine->device_reason, HasSubstr("the driver shows none"));
  EXPECT_THAT(Refusal(With("cuda")), HasSubstr("device = cuda: no GPU can be used here (the driver shows none)"));
}

// A driver that does not answer is to be mended, and no reason to train on processors under this worker's name.
TEST_F(ThisMachineTest, GpusThatFailAreNotPassedOver) {
  const FakeGpus fake({FakeH100("GPU-a") + ",error=nvmlDeviceGetHandleByIndex_v2:15"});
  for (const char* device : {"auto", "cuda"}) {
    EXPECT_EQ(ThisMachine(With(device)).status().code(), absl::StatusCode::kUnavailable) << device;
    EXPECT_THAT(Refusal(With(device)), HasSubstr("error 15")) << device;
  }
  EXPECT_TRUE(ThisMachine(With("cpu")).ok());
}

TEST_F(ThisMachineTest, SlotsAreNoMoreThanGpus) {
  const FakeGpus fake({FakeH100("GPU-a"), FakeH100("GPU-b")});
  const auto one = ThisMachine(With("cuda", 1));
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->worker.slots(), 1);
  ASSERT_EQ(one->worker.slot_devices_size(), 1);
  EXPECT_EQ(one->worker.slot_devices(0).uuid(), "GPU-a");
  EXPECT_THAT(Refusal(With("cuda", 3)), HasSubstr("--slots = 3: is more than the GPUs that can be used here, 2"));
  const auto processors = ThisMachine(With("cpu", 3));
  ASSERT_TRUE(processors.ok()) << processors.status();
  EXPECT_EQ(processors->worker.slots(), 3);
  EXPECT_EQ(processors->worker.device().kind(), v1::CPU);
  EXPECT_THAT(processors->worker.slot_devices(), IsEmpty());
}

TEST_F(ThisMachineTest, DifferentCardsAreRefusedWithTheRemedy) {
  const FakeGpus fake({FakeH100("GPU-a"), FakeH200("GPU-b")});
  EXPECT_THAT(Refusal(With("auto")), HasSubstr("CUDA_VISIBLE_DEVICES: leaves GPUs of different kinds: NVIDIA H100 80GB HBM3 and "
                                               "NVIDIA H200"));
  setenv("CUDA_VISIBLE_DEVICES", "GPU-b", 1);
  const auto machine = ThisMachine(With("auto"));
  ASSERT_TRUE(machine.ok()) << machine.status();
  EXPECT_EQ(machine->worker.device().type(), "h200");
  EXPECT_EQ(machine->worker.slot_devices(0).index(), 1);
  setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  EXPECT_THAT(Refusal(With("auto")), HasSubstr("CUDA_DEVICE_ORDER=PCI_BUS_ID")) << "no fall back to processors";
}

TEST_F(ThisMachineTest, AnUnknownCardIsDescribedByAFile) {
  const FakeGpus fake({"name=NVIDIA Q9,uuid=GPU-a,memory=1000000000000"});
  EXPECT_THAT(Refusal(With("auto")), HasSubstr("NVIDIA Q9"));
  EXPECT_THAT(Refusal(With("auto")), HasSubstr("--device_file"));
  v1::Device q9 = *sim::FindDevice("b200");
  q9.set_type("q9");
  const std::string file = DeviceFile("q9.txtpb", q9);
  for (const char* device : {"auto", "cuda"}) {
    const auto machine = ThisMachine(With(device, std::nullopt, file));
    ASSERT_TRUE(machine.ok()) << machine.status();
    EXPECT_EQ(machine->worker.device().type(), "q9");
    EXPECT_EQ(machine->worker.device().memory_bytes(), 1'000'000'000'000);
  }
  EXPECT_THAT(Refusal(With("cpu", std::nullopt, file)), HasSubstr("--device_file"));
}

TEST_F(ThisMachineTest, AFileOfAProcessorIsTakenWhereThereAreGpusToo) {
  const FakeGpus fake({FakeH100("GPU-a")});
  const std::string file = DeviceFile("cpu.txtpb", *sim::FindDevice("cpu"));
  EXPECT_EQ(ThisMachine(With("auto", std::nullopt, file))->worker.device().kind(), v1::CPU);
  EXPECT_THAT(Refusal(With("cuda", std::nullopt, file)), HasSubstr("--device_file"));
  const FakeGpus none({});
  v1::Device gpu = *sim::FindDevice("h200");
  EXPECT_THAT(Refusal(With("auto", std::nullopt, DeviceFile("gpu.txtpb", gpu))), HasSubstr("the driver shows none"))
      << "which is not here";
}

using sim::testing::FakeGpus;
using sim::testing::FakeH100;

v1::WorkerUse Await(const UseWatch& watch, const std::function<bool(const v1::WorkerUse&)>& condition) {
  const absl::Time end = absl::Now() + absl::Minutes(2);
  while (absl::Now() < end) {
    const auto use = watch.Latest();
    if (use && condition(*use)) return *use;
    absl::SleepFor(absl::Milliseconds(5));
  }
  ADD_FAILURE() << "waited in vain";
  return {};
}

TEST(UseWatch, TellsOfProcessorsAndMemory) {
  const int64_t began = absl::ToUnixMicros(absl::Now());
  const UseWatch watch({}, absl::Milliseconds(50));
  const v1::WorkerUse use = Await(watch, [](const v1::WorkerUse& at) { return at.has_processor_share(); });
  EXPECT_GE(use.processor_share(), 0);
  EXPECT_LE(use.processor_share(), 1);
  EXPECT_GT(use.memory_bytes(), 0);
  EXPECT_LE(use.memory_bytes(), launch::HostMemoryBytes());
  EXPECT_GE(use.time_us(), began);
  EXPECT_EQ(use.gpus_size(), 0);
  Await(watch, [&](const v1::WorkerUse& at) { return at.time_us() > use.time_us(); });
}

TEST(UseWatch, EndsAtOnceHoweverSeldomItLooks) {
  const UseWatch watch({}, absl::Hours(10));
  EXPECT_FALSE(Await(watch, [](const v1::WorkerUse&) { return true; }).has_processor_share()) << "there was no look before";
}

TEST(UseWatch, TellsOfTheSlotsCards) {
  const FakeGpus fake({FakeH100("GPU-a"), FakeH100("GPU-b") + ",used=4096,utilization=50,temperature=40,draw=100500"});
  const UseWatch watch({1}, absl::Milliseconds(20));
  const v1::WorkerUse use = Await(watch, [](const v1::WorkerUse&) { return true; });
  ASSERT_EQ(use.gpus_size(), 1);
  EXPECT_EQ(use.gpus(0).index(), 1);
  EXPECT_EQ(use.gpus(0).memory_bytes(), 4096);
  EXPECT_DOUBLE_EQ(use.gpus(0).utilization(), 0.5);
  EXPECT_DOUBLE_EQ(use.gpus(0).temperature_celsius(), 40);
  EXPECT_DOUBLE_EQ(use.gpus(0).power_watts(), 100.5);
}

}  // namespace
}  // namespace legoai::agent

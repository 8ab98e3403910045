// Which GPU a rank opens, on a plugin of two fake ones.
#include "worker/train/machine.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "proto/errors.h"
#include "worker/comm/cuda_plugin.h"

namespace legoai::train {
namespace {

using ::testing::HasSubstr;

class MachineTest : public ::testing::Test {
 protected:
  // The first plugin that a process loads stays.
  static void SetUpTestSuite() {
    ASSERT_EQ(comm::LoadCudaPlugin("worker/train/libfake_cuda_plugin.so").status(), absl::OkStatus());
  }
  static v1::Start Start(int64_t rank, const std::string& gpu) {
    v1::Start start;
    start.set_device("cuda");
    start.set_rank(rank);
    start.set_local_rank(rank);
    start.set_gpu(gpu);
    return start;
  }
};

TEST_F(MachineTest, OpensTheGpuThatItIsGiven) {
  for (const int64_t rank : {0, 1, 5}) {
    const auto machine = Machine::Open(Start(rank, "GPU-y")).value();
    EXPECT_EQ(machine->device(), c10::Device(c10::kCUDA, 1)) << "of rank " << rank;
    EXPECT_EQ(machine->PeakMemoryBytes(), 1) << "it is the one that is selected";
  }
  EXPECT_EQ((*Machine::Open(Start(1, "GPU-x")))->device(), c10::Device(c10::kCUDA, 0));
}

TEST_F(MachineTest, WithoutOneItsRankSaysWhich) {
  EXPECT_EQ((*Machine::Open(Start(1, "")))->device(), c10::Device(c10::kCUDA, 1));
  const auto fault = GetFieldViolation(Machine::Open(Start(2, "")).status());
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->field(), "device");
  EXPECT_THAT(fault->remedy(), HasSubstr("rank 2 needs a GPU of its own, and this host has 2"));
}

TEST_F(MachineTest, AGpuThatCudaDoesNotShowIsRefusedByName) {
  const absl::Status status = Machine::Open(Start(0, "GPU-z")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  const auto fault = GetFieldViolation(status);
  ASSERT_TRUE(fault) << status;
  EXPECT_EQ(fault->field(), "gpu");
  EXPECT_EQ(fault->value(), "GPU-z");
  EXPECT_THAT(fault->remedy(), HasSubstr("rank 0 is none of the 2 GPUs that CUDA shows"));
}

// Initial weights are drawn by the host.
TEST_F(MachineTest, TheHostComputesOnTheRanksThreads) {
  for (const auto& [threads, expected] : {std::pair<int64_t, int>{3, 3}, {0, 1}, {2, 2}}) {
    v1::Start start = Start(0, "GPU-x");
    start.set_threads(threads);
    ASSERT_TRUE(Machine::Open(start).ok());
    EXPECT_EQ(at::get_num_threads(), expected);
  }
}

TEST_F(MachineTest, OnACpuNoGpuIsAskedFor) {
  v1::Start start = Start(0, "GPU-z");
  start.set_device("cpu");
  EXPECT_EQ((*Machine::Open(start))->device(), c10::Device(c10::kCPU));
}

}  // namespace
}  // namespace legoai::train

#include "worker/launch/gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/errors.h"

namespace legoai::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class GpuClaimTest : public ::testing::Test {
 protected:
  void SetUp() override { setenv("LEGOAI_GPU_CLAIMS", absl::StrCat(absl::GetCurrentTimeNanos()).c_str(), 1); }
  void TearDown() override { unsetenv("LEGOAI_GPU_CLAIMS"); }
  static bool IsFree(const std::string& gpu) { return GpuClaim::Take({gpu}).ok(); }
};

TEST_F(GpuClaimTest, AGpuIsOnesUntilItsClaimEnds) {
  auto first = GpuClaim::Take({"GPU-a", "GPU-b"});
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status second = GpuClaim::Take({"GPU-c", "GPU-b"}).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
  const auto fault = GetFieldViolation(second);
  ASSERT_TRUE(fault) << second;
  EXPECT_EQ(fault->field(), "gpu");
  EXPECT_EQ(fault->value(), "GPU-b");
  EXPECT_THAT(fault->remedy(), HasSubstr(absl::StrCat("is taken by process ", getpid(), " (gpus_test)")));
  EXPECT_THAT(fault->remedy(), HasSubstr("CUDA_VISIBLE_DEVICES"));
  EXPECT_TRUE(IsFree("GPU-c")) << "of what was asked for together nothing is kept";
  {
    const GpuClaim moved = *std::move(first);
    EXPECT_FALSE(IsFree("GPU-a"));
  }
  EXPECT_TRUE(IsFree("GPU-a"));
  EXPECT_TRUE(IsFree("GPU-b"));
}

TEST_F(GpuClaimTest, ItEndsWithItsProcessHoweverThatEnds) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto claim = GpuClaim::Take({"GPU-a"});
    [[maybe_unused]] const ssize_t told = write(ready[1], claim.ok() ? "y" : "n", 1);
    while (true) pause();
  }
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
  EXPECT_THAT(std::string(GpuClaim::Take({"GPU-a"}).status().message()), HasSubstr(absl::StrCat("process ", child)));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(IsFree("GPU-a"));
  close(ready[0]);
  close(ready[1]);
}

TEST_F(GpuClaimTest, NoGpusAreEverybodys) {
  const auto one = GpuClaim::Take({}), other = GpuClaim::Take({});
  EXPECT_TRUE(one.ok() && other.ok());
}

TEST(ComputeOnGpus, RanksAreNotPinnedAndDrawOnAllTheirCores) {
  TrainRequest request;
  request.nproc = 2;
  ComputeOnGpus({"GPU-d", "GPU-b", "GPU-c"}, 6, &request);
  EXPECT_EQ(request.device, "cuda");
  EXPECT_THAT(request.gpus, ElementsAre("GPU-d", "GPU-b"));
  EXPECT_FALSE(request.pin);
  EXPECT_EQ(request.threads, 6);
  ComputeOnGpus({"GPU-a", "GPU-b"}, 0, &request);
  EXPECT_EQ(request.threads, 1) << "more ranks than cores";
}

}  // namespace
}  // namespace legoai::launch

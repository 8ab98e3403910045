#include "worker/agent/epoch_directory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "proto/errors.h"

namespace legoai::agent {
namespace {

namespace fs = std::filesystem;

v1::LeaseId Lease(const std::string& job, int64_t epoch) {
  v1::LeaseId lease;
  lease.set_job(job);
  lease.set_epoch(epoch);
  return lease;
}

class EpochDirectoryTest : public ::testing::Test {
 protected:
  EpochDirectoryTest() : runs_(::testing::TempDir() + "/epoch_directory_test") { fs::remove_all(runs_); }
  const std::string runs_;
};

TEST_F(EpochDirectoryTest, EveryEpochHasItsOwnAndTokensAreShared) {
  const std::string job = "projects/default/jobs/01JD";
  const std::string first = *EpochDirectory(runs_, Lease(job, 1)), second = *EpochDirectory(runs_, Lease(job, 2));
  EXPECT_EQ(first, runs_ + "/01JD/epoch-1");
  ASSERT_EQ(MakeEpochDirectory(first), absl::OkStatus());
  ASSERT_EQ(MakeEpochDirectory(second), absl::OkStatus());
  ASSERT_EQ(MakeEpochDirectory(second), absl::OkStatus()) << "again";
  std::ofstream(first + "/tokens/file") << "ids";
  EXPECT_TRUE(fs::exists(second + "/tokens/file"));
  for (int64_t epoch = 3; epoch < 300; ++epoch) {  // agents that share the folder
    const std::string both = *EpochDirectory(runs_, Lease(job, epoch));
    absl::Status other;
    std::thread beside([&] { other = MakeEpochDirectory(both); });
    const absl::Status own = MakeEpochDirectory(both);
    beside.join();
    ASSERT_EQ(own, absl::OkStatus());
    ASSERT_EQ(other, absl::OkStatus());
  }
  std::ofstream(runs_ + "/file") << "in the way";
  EXPECT_EQ(GetFieldViolation(MakeEpochDirectory(runs_ + "/file/epoch-1"))->field(), "--runs");
}

TEST_F(EpochDirectoryTest, NamesThatLeadElsewhereAreRefused) {
  for (const char* job : {"", "..", "projects/default/jobs/", "projects/default/jobs/..", "a b", "a\nb", "x/."}) {
    const auto violation = GetFieldViolation(EpochDirectory(runs_, Lease(job, 1)).status());
    ASSERT_TRUE(violation) << job;
    EXPECT_EQ(violation->field(), "lease.job");
  }
  EXPECT_EQ(GetFieldViolation(EpochDirectory(runs_, Lease("a", 0)).status())->field(), "lease.epoch");
}

TEST_F(EpochDirectoryTest, OnlyCheckpointsOfEarlierEpochsGo) {
  const auto exists = [&](const std::string& path) { return fs::exists(runs_ + "/" + path); };
  for (const char* path : {"j/epoch-1/checkpoints/step-4", "j/epoch-2/checkpoints/step-8", "j/epoch-2/hf",
                           "j/epoch-10/checkpoints/step-9", "j/epoch-11/checkpoints/step-9", "j/epoch-01/checkpoints/step-1",
                           "j/mine/checkpoints/step-1", "other/epoch-1/checkpoints/step-1"}) {
    fs::create_directories(runs_ + "/" + path);
  }
  ASSERT_EQ(RemoveEarlierCheckpoints(runs_, v1::Recipe(), Lease("projects/p/jobs/j", 10)), absl::OkStatus());
  EXPECT_FALSE(exists("j/epoch-1/checkpoints"));
  EXPECT_FALSE(exists("j/epoch-2/checkpoints"));
  EXPECT_TRUE(exists("j/epoch-2/hf"));
  EXPECT_TRUE(exists("j/epoch-10/checkpoints/step-9"));
  EXPECT_TRUE(exists("j/epoch-11/checkpoints/step-9"));
  EXPECT_TRUE(exists("j/epoch-01/checkpoints/step-1"));
  EXPECT_TRUE(exists("j/mine/checkpoints/step-1"));
  EXPECT_TRUE(exists("other/epoch-1/checkpoints/step-1"));
}

}  // namespace
}  // namespace legoai::agent

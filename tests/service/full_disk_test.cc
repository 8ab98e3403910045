// Full disks under the service: first the one with the store, then the one with the runs. What cannot be written is said, what
// was acknowledged and committed stays, and with room again everything goes on.
#include <gmock/gmock.h>
#include <sys/mount.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "core/checkpoint/testing/small_file_system.h"
#include "tests/service/service_processes.h"
#include "tests/service/service_test_fixture.h"

namespace legoai::service {
namespace {

namespace fs = std::filesystem;
using cli::testing::Result;
using cli::testing::WaitUntil;
using ::testing::HasSubstr;

constexpr int64_t kSteps = 600, kInterval = 40;

class FullDiskTest : public ServiceTest {
 protected:
  void PrepareFolder() override {
    for (const char* folder : {"data", "runs"}) {
      fs::create_directories(Path(folder));
      const absl::Status status = checkpoint::MountSmallFileSystem(Path(folder), 32 << 20);
      ASSERT_TRUE(status.ok()) << status;
      mounted_.push_back(Path(folder));
    }
  }
  void TearDown() override {
    for (pid_t& agent : agents_) Kill(&agent);
    KillServer();
    for (const std::string& path : mounted_) EXPECT_EQ(umount2(path.c_str(), MNT_DETACH), 0) << path;
    ServiceTest::TearDown();
  }
  // Until not a byte more of a new file fits.
  void Fill(const std::string& folder) const {
    std::ofstream file(Path(folder + "/filler"), std::ios::binary);
    for (const std::string block(4096, 'x'); file.write(block.data(), block.size()) && file.flush();) {
    }
  }
  void MakeRoom(const std::string& folder) const { fs::remove(Path(folder + "/filler")); }

  v1::JobSpec Spec(const std::string& pool) {
    auto spec = TinyJob(folder_, 2, kSteps, kInterval);
    EXPECT_TRUE(spec.ok()) << spec.status();
    spec->mutable_recipe()->mutable_comm()->set_trace_buf_size(10);
    spec->mutable_resources()->set_pool(pool);
    return *std::move(spec);
  }

  std::vector<std::string> mounted_;
};

TEST_F(FullDiskTest, WhatCannotBeWrittenIsSaidAndNothingIsLost) {
  StartAgent("a", 2);
  const std::string first = Submit(Spec("default"));
  AwaitCommit(first, kInterval);
  Fill("data");
  std::vector<std::string> accepted;  // while the store's files have room in themselves
  grpc::Status refused;
  WaitUntil("a submission that is refused", [&] {
    v1::CreateJobRequest request;
    request.set_parent("projects/default");
    *request.mutable_spec() = Spec("nobody");
    v1::Job job;
    refused = Ask(*stub_, &v1::ControlPlane::Stub::CreateJob, request, &job);
    if (refused.ok()) accepted.push_back(job.name());
    return !refused.ok();
  });
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("the disk is full"));
  EXPECT_EQ(Get(first).name(), first) << "the server answers";
  MakeRoom("data");
  AwaitSuccess(first);
  const auto losses = Losses(first);
  EXPECT_EQ(losses.size(), kSteps) << "what agents had to say was kept until there was room";
  for (const std::string& job : accepted) EXPECT_EQ(Get(job).state(), v1::SUBMITTED) << job;

  const std::string second = Submit(Spec("default"));
  AwaitCommit(second, kInterval);
  Fill("runs");
  const v1::Job waits = Await(second, "a save that waits", [](const v1::Job& now) { return !now.progress().waits().empty(); });
  EXPECT_EQ(waits.state(), v1::RUNNING);
  EXPECT_THAT(waits.progress().waits(), HasSubstr(" is full: "));
  EXPECT_THAT(waits.progress().waits(), HasSubstr(" that a checkpoint takes"));
  const Result shown = Run({"get", second, "--server", address()});
  EXPECT_THAT(shown.out, HasSubstr(" that a checkpoint takes"));
  EXPECT_GE(waits.committed_step(), kInterval);
  ExpectCheckpointsAsListed(second);
  MakeRoom("runs");
  const v1::Job done = AwaitSuccess(second);
  EXPECT_EQ(done.progress().waits(), "");
  EXPECT_EQ(Attempts(second).size(), 1) << "the trainers kept their state";
  ExpectUndisturbed(second, losses, 0);
  for (const std::string& job : {first, second}) ExpectSoundHistory(job);
}

TEST_F(FullDiskTest, AJobThatWaitsForRoomCanBeCancelled) {
  StartAgent("a", 2);
  const std::string job = Submit(Spec("default"));
  AwaitCommit(job, kInterval);
  Fill("runs");
  Await(job, "a save that waits", [](const v1::Job& now) { return !now.progress().waits().empty(); });
  ASSERT_EQ(Run({"cancel", job, "--server", address()}).code, 0);
  WaitUntil("the end", [&] { return Get(job).has_end_time_us(); });
  EXPECT_EQ(Get(job).state(), v1::CANCELLED);
  EXPECT_EQ(Get(job).progress().waits(), "");
}

}  // namespace
}  // namespace legoai::service

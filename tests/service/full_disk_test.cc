// Full disks under the service: first the one with the store, then the one with the runs. What cannot be written is said, what
// was acknowledged and committed stays, and with room again everything goes on.
#include <gmock/gmock.h>
#include <sys/mount.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "tests/service/service_processes.h"
#include "tests/service/service_test_fixture.h"
#include "worker/checkpoint/small_file_system.h"

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
  Await(second, "the end of the job", [](const v1::Job& now) { return now.has_end_time_us(); });
  const v1::Job failed = Get(second);
  EXPECT_EQ(failed.state(), v1::FAILED);
  EXPECT_THAT(failed.reason(), HasSubstr("free some space"));
  EXPECT_GE(failed.committed_step(), kInterval);
  ExpectCheckpointsAsListed(second);
  for (const auto& entry : fs::recursive_directory_iterator(Path("runs")))
    EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
  MakeRoom("runs");
  const Result retried = Run({"retry", second, "-o", "json", "--server", address()});
  ASSERT_EQ(retried.code, 0) << retried.err;
  const std::string third = cli::testing::Json::parse(retried.out)["name"];
  AwaitSuccess(third);
  ExpectUndisturbed(third, losses, 0);
  for (const std::string& job : {first, third}) ExpectSoundHistory(job);
}

}  // namespace
}  // namespace legoai::service

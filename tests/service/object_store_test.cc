// A job over two workers whose disks are not shared, since its checkpoints are in an S3 store (versitygw): it trains what one
// worker would, and goes on from the store whatever is lost.
#include <signal.h>

#include <filesystem>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/checkpoint/directory.h"
#include "core/objectstore/testing/versitygw.h"
#include "tests/service/service_processes.h"
#include "tests/service/service_test_fixture.h"

namespace legoai::service {
namespace {

using cli::testing::WaitUntil;

constexpr int64_t kSteps = 120, kInterval = 20;
constexpr char kUrl[] = "s3://bucket/jobs";

class ObjectStoreServiceTest : public ServiceTest {
 protected:
  // Before server and agents, which get their environment from this process.
  void PrepareFolder() override {
    auto started = objectstore::Versitygw::Start(folder_.string());
    ASSERT_TRUE(started.ok()) << started.status();
    gateway_ = *std::move(started);
  }

  // It is one of the processes whose end is waited for.
  void TearDown() override {
    for (pid_t& agent : agents_) Kill(&agent);
    gateway_.reset();
    ServiceTest::TearDown();
  }

  // One worker of a gang, which sees a disk of its own at the path of the others' runs.
  void StartApart(const std::string& name) {
    const std::string disk = Path("disk-of-" + name);
    std::filesystem::create_directories(disk);
    std::filesystem::create_directories(Path("runs"));
    std::string command = "mount --bind '" + disk + "' '" + Path("runs") + "' && exec";
    for (const std::string& word : AgentCommand(address(), name, 1, Path("runs"))) command += " '" + word + "'";
    command += " --gang_folder_wait=2s --gang_ports=" + std::to_string(FreePort());
    agents_.push_back(StartProgram({"/usr/bin/unshare", "--mount", "--map-root-user", "/bin/sh", "-c", command}));
    WaitUntil("agent " + name, [&] {
      for (const v1::Worker& worker : Workers())
        if (worker.name() == "workers/" + name && worker.connected()) return true;
      return false;
    });
  }

  v1::JobSpec Spec(const std::string& folder) {
    auto spec = TinyJob(folder_, 2, kSteps, kInterval);
    EXPECT_TRUE(spec.ok()) << spec.status();
    spec->mutable_resources()->set_min_slots(2);
    spec->mutable_recipe()->mutable_checkpoint()->set_folder(folder);
    spec->mutable_recipe()->mutable_checkpoint()->set_keep_latest_k(2);
    spec->mutable_policy()->set_max_restarts(100);
    return *std::move(spec);
  }

  std::unique_ptr<objectstore::Versitygw> gateway_;
};

TEST_F(ObjectStoreServiceTest, AGangWithoutASharedFolderTrainsAndGoesOn) {
  pid_t alone = StartAgent("alone", 2);
  const std::string whole = Submit(Spec(""));
  AwaitSuccess(whole);
  const auto losses = Losses(whole);
  ASSERT_EQ(losses.size(), kSteps);
  Kill(&alone);
  WaitUntil("the end of the worker that was alone", [this] { return !Workers()[0].connected(); });

  StartApart("a");
  StartApart("b");
  const std::string job = Submit(Spec(kUrl));
  AwaitCommit(job, 3 * kInterval);
  Signal(Trainer(1), SIGKILL);
  AwaitSuccess(job);
  const auto attempts = Attempts(job);
  ASSERT_EQ(attempts.size(), 2);
  EXPECT_EQ(attempts[1].placements_size(), 2);
  EXPECT_GE(attempts[1].resume_step(), 3 * kInterval);
  ExpectUndisturbed(job, losses, 0);
  ExpectCheckpointsAsListed(job);

  // Of the second attempt alone, two of them; those of the first went when it had as many.
  const std::string root = absl::StrCat(kUrl, "/", job.substr(job.rfind('/') + 1));
  for (const v1::Checkpoint& checkpoint : Checkpoints(job)) EXPECT_EQ(checkpoint.directory(), root + "/epoch-2");
  EXPECT_EQ(checkpoint::ListCheckpoints(root + "/epoch-2").value(), (std::vector<int64_t>{kSteps - kInterval, kSteps}));
  EXPECT_TRUE(checkpoint::ListCheckpoints(root + "/epoch-1")->empty());
}

TEST_F(ObjectStoreServiceTest, AJobThatMayNotUseTheStoreSaysSo) {
  objectstore::UseKeys(objectstore::kTestAccess, "another");
  StartAgent("a", 2);
  const std::string job = Submit(Spec(kUrl));
  const v1::Job failed = Await(job, "its end", [](const v1::Job& now) { return now.state() == v1::FAILED; });
  EXPECT_TRUE(absl::StrContains(failed.outcome().error().message(), "SignatureDoesNotMatch")) << failed.DebugString();
  EXPECT_FALSE(absl::StrContains(failed.DebugString(), objectstore::kTestSecret));
  EXPECT_EQ(Attempts(job).size(), 1) << "trying again would not help";
}

}  // namespace
}  // namespace legoai::service

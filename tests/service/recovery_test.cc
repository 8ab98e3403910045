// Whatever is killed or stopped, the job goes on from its last committed checkpoint and ends as if nothing had been.
#include <signal.h>

#include "tests/service/service_test_fixture.h"
#include "worker/checkpoint/directory.h"

namespace legoai::service {
namespace {

using cli::testing::WaitUntil;

constexpr int64_t kSteps = 300, kInterval = 20;

class RecoveryTest : public ServiceTest {
 protected:
  // The losses of the same job without trouble: every test's folder has the same text, model and seed.
  const std::map<int64_t, double>& Undisturbed() {
    static const auto* const losses = new std::map<int64_t, double>(TrainUndisturbed());
    return *losses;
  }

  // Of every directory that is listed, what is listed is what is there.
  void ExpectCheckpointsAsListed(const std::string& job) {
    std::map<std::string, std::vector<int64_t>> listed;
    for (const v1::Checkpoint& checkpoint : Checkpoints(job)) listed[checkpoint.directory()].push_back(checkpoint.step());
    ASSERT_FALSE(listed.empty());
    for (const auto& [directory, steps] : listed) {
      const auto there = checkpoint::ListCheckpoints(directory);
      ASSERT_TRUE(there.ok()) << there.status();
      EXPECT_EQ(*there, steps) << directory;
    }
  }

 private:
  std::map<int64_t, double> TrainUndisturbed() {
    const std::string job = Submit(2, kSteps, kInterval);
    AwaitSuccess(job);
    EXPECT_EQ(Attempts(job).size(), 1);
    const auto losses = Losses(job);
    EXPECT_EQ(losses.size(), kSteps);
    EXPECT_EQ(Checkpoints(job).size(), 10) << "of fifteen, checkpoint.keep_latest_k";
    ExpectCheckpointsAsListed(job);
    return losses;
  }
};

TEST_F(RecoveryTest, AServerThatIsKilledLosesNothingAndTrainersGoOn) {
  StartAgent("a", 2);
  const auto& undisturbed = Undisturbed();
  const std::string job = Submit(2, kSteps, kInterval);
  AwaitCommit(job, kInterval);
  const pid_t trainer = Trainer(1);
  ASSERT_NE(trainer, 0);
  KillServer();
  // Until they wait for the next commit.
  usleep(300000);
  EXPECT_EQ(Trainer(1), trainer);
  StartServer();
  AwaitSuccess(job);
  EXPECT_EQ(Attempts(job).size(), 1);
  ExpectUndisturbed(job, undisturbed, 0);
  ExpectCheckpointsAsListed(job);
}

TEST_F(RecoveryTest, ATrainerThatIsKilledIsStartedAgain) {
  StartAgent("a", 2);
  const auto& undisturbed = Undisturbed();
  const std::string job = Submit(2, kSteps, kInterval);
  AwaitCommit(job, kInterval);
  Signal(Trainer(1), SIGKILL);
  AwaitSuccess(job);
  const auto attempts = Attempts(job);
  ASSERT_EQ(attempts.size(), 2);
  EXPECT_EQ(attempts[0].state(), "failed");
  EXPECT_NE(attempts[0].error().message().find("rank 1"), std::string::npos) << attempts[0].error().message();
  EXPECT_GE(attempts[1].resume_step(), kInterval);
  ExpectUndisturbed(job, undisturbed, 0);
  ExpectCheckpointsAsListed(job);
}

TEST_F(RecoveryTest, AnAgentThatIsKilledGoesOnWhenItIsBack) {
  pid_t agent = StartAgent("a", 2);
  const auto& undisturbed = Undisturbed();
  const std::string job = Submit(2, kSteps, kInterval);
  AwaitCommit(job, kInterval);
  Kill(&agent);
  agents_.clear();
  WaitUntil("the end of its trainers", [this] { return Trainer(0) == 0 && Trainer(1) == 0; });
  StartAgent("a", 2);
  AwaitSuccess(job);
  ASSERT_EQ(Attempts(job).size(), 2);
  EXPECT_EQ(Attempts(job)[0].state(), "lost");
  ExpectUndisturbed(job, undisturbed, 0);
  ExpectCheckpointsAsListed(job);
}

TEST_F(RecoveryTest, AStoppedAgentIsReplacedByAnotherAndFencedOff) {
  const pid_t stopped = StartAgent("a", 2);
  const auto& undisturbed = Undisturbed();
  const std::string job = Submit(2, kSteps, kInterval);
  AwaitCommit(job, kInterval);
  Signal(stopped, SIGSTOP);
  StartAgent("b", 2);
  AwaitSuccess(job);
  const auto attempts = Attempts(job);
  ASSERT_EQ(attempts.size(), 2);
  EXPECT_EQ(attempts[1].placements(0).worker(), "workers/b");
  Signal(stopped, SIGCONT);
  WaitUntil("the end of the trainers that were fenced off", [this] { return Trainer(0) == 0 && Trainer(1) == 0; });
  // Nothing of the old epoch was committed after the new one began.
  const int64_t resumed = attempts[1].resume_step();
  for (const v1::Checkpoint& checkpoint : Checkpoints(job)) {
    if (checkpoint.step() > resumed) EXPECT_EQ(checkpoint.epoch(), 2) << checkpoint.step();
  }
  ExpectUndisturbed(job, undisturbed, 0);
  ExpectCheckpointsAsListed(job);
}

TEST_F(RecoveryTest, AStoppedAgentThatGoesOnEndsItsTrainersAndGetsTheJobAgain) {
  const pid_t agent = StartAgent("a", 2);
  const auto& undisturbed = Undisturbed();
  const std::string job = Submit(2, kSteps, kInterval);
  AwaitCommit(job, kInterval);
  Signal(agent, SIGSTOP);
  Await(job, "the end of its lease", [](const v1::Job& now) { return now.state() == v1::RESTARTING; });
  Signal(agent, SIGCONT);
  AwaitSuccess(job);
  EXPECT_EQ(Attempts(job).size(), 2);
  ExpectUndisturbed(job, undisturbed, 0);
  ExpectCheckpointsAsListed(job);
}

TEST_F(RecoveryTest, FewerSlotsAfterTheRestartArePlannedAnewAndNoSampleIsLostOrSeenTwice) {
  pid_t large = StartAgent("a", 2);
  const auto& undisturbed = Undisturbed();
  const std::string job = Submit(2, kSteps, kInterval);
  AwaitCommit(job, kInterval);
  Kill(&large);
  agents_.clear();
  StartAgent("b", 1);
  AwaitSuccess(job);
  const auto attempts = Attempts(job);
  ASSERT_EQ(attempts.size(), 2);
  EXPECT_EQ(attempts[0].world_size(), 2);
  EXPECT_EQ(attempts[1].world_size(), 1);
  // The same samples in the same steps, summed in another order.
  ExpectUndisturbed(job, undisturbed, 1e-3);
  ExpectCheckpointsAsListed(job);
}

}  // namespace
}  // namespace legoai::service

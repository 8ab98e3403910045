// Whatever is killed or stopped, the job goes on from its last committed checkpoint and ends as if nothing had been.
#include <signal.h>

#include <filesystem>
#include <utility>

#include "core/checkpoint/chunks.h"
#include "core/checkpoint/directory.h"
#include "core/checkpoint/files.h"
#include "core/checkpoint/manifest.h"
#include "core/process/run_directory.h"
#include "core/recipe/resolved_recipe.h"
#include "tests/service/service_processes.h"
#include "tests/service/service_test_fixture.h"

namespace legoai::service {
namespace {

using cli::testing::WaitUntil;

constexpr int64_t kSteps = 600, kInterval = 40, kGlobalBatch = 4;

class RecoveryTest : public ServiceTest {
 protected:
  // A restart is not a beginning: from the last commit before it, which is one at least.
  void ExpectWentOn(const std::string& job) {
    const auto attempts = Attempts(job);
    ASSERT_EQ(attempts.size(), 2);
    EXPECT_EQ(attempts[0].resume_step(), 0);
    EXPECT_GE(attempts[1].resume_step(), kInterval);
    ExpectSoundHistory(job);
  }

  static void FlipBit(const std::string& path) {
    auto contents = checkpoint::ReadFile(path);
    ASSERT_TRUE(contents.ok()) << contents.status();
    ASSERT_FALSE(contents->empty()) << path;  // a replica of a rank before it writes nothing
    (*contents)[contents->size() / 2] ^= 1;
    ASSERT_TRUE(checkpoint::WriteFile(path, *contents).ok());
  }

  // Also what was measured up to there: what an agent has not sent dies with it, and a commit overtakes it.
  void AwaitCommitAndMetrics(const std::string& job, int64_t step) {
    AwaitCommit(job, step);
    WaitUntil("the metrics", [&] { return static_cast<int64_t>(Losses(job).size()) >= step; });
  }

  // The losses of the same job without trouble: every test's folder has the same text, model and seed.
  const std::map<int64_t, double>& Undisturbed() {
    static const auto* const losses = new std::map<int64_t, double>(TrainUndisturbed());
    return *losses;
  }

  // The first attempt's checkpoints, up to the one that the second went on from, were written by two ranks that share the
  // samples, and the others by one; all say that after N steps N global batches have been seen.
  void ExpectSavedByTwoThenByOne(const std::string& job, int64_t resumed) {
    int64_t saved = 0;
    for (const v1::Checkpoint& checkpoint : Checkpoints(job)) {
      SCOPED_TRACE(checkpoint.name());
      EXPECT_EQ(checkpoint.step(), saved += kInterval);
      const bool first = checkpoint.step() <= resumed;
      EXPECT_EQ(checkpoint.epoch(), first ? 1 : 2);
      const auto reader = checkpoint::CheckpointReader::Open(checkpoint.directory(), checkpoint.step(), "");
      ASSERT_TRUE(reader.ok()) << reader.status();
      const v1::Training& training = reader->manifest().recipe().training();
      const auto layout =
          parallel::ResolvedRecipe::Create(reader->manifest().recipe(), reader->manifest().model(), first ? 2 : 1);
      ASSERT_TRUE(layout.ok()) << layout.status();
      EXPECT_EQ(layout->mesh().dp(), first ? 2 : 1);
      EXPECT_EQ(reader->manifest().next_sample(), checkpoint.step() * kGlobalBatch);
      EXPECT_EQ(training.global_batch_size(), kGlobalBatch);
    }
    EXPECT_EQ(saved, kSteps);
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
  ExpectSoundHistory(job);
}

// The training is done before the server is back, though it is not over: then everything is committed, in order.
TEST_F(RecoveryTest, TheTrainingGoesOnPastManyCheckpointsWithoutTheServer) {
  StartAgent("a", 2);
  const auto& undisturbed = Undisturbed();
  auto spec = TinyJob(folder_, 2, kSteps, kInterval);
  ASSERT_TRUE(spec.ok()) << spec.status();
  spec->mutable_recipe()->mutable_checkpoint()->set_keep_latest_k(0);  // all are looked at in the end
  spec->mutable_recipe()->mutable_checkpoint()->set_max_pending_commits(kSteps / kInterval);
  const std::string job = Submit(*std::move(spec));
  AwaitCommit(job, kInterval);
  KillServer();
  const std::string run = Path("runs") + job.substr(job.rfind('/')) + "/epoch-1";
  // 0: the server was killed before it could say that it had committed the first.
  const auto last_found = [&] {
    const auto steps = checkpoint::ListCheckpoints(launch::CheckpointsPath(run)).value();
    return steps.empty() ? int64_t{0} : steps.back();
  };
  ASSERT_LT(last_found(), kSteps - 2 * kInterval) << "the job was as good as over before it could be disturbed";
  WaitUntil("the last step", [&] {
    const auto metrics = launch::ReadMetrics(run);
    return metrics.ok() && !metrics->empty() && metrics->back().step() == kSteps;
  });
  EXPECT_NE(Trainer(1), 0) << "they wait for the server's word";
  EXPECT_LT(last_found(), kSteps) << "nobody has committed it";
  StartServer();
  AwaitSuccess(job);
  EXPECT_EQ(Attempts(job).size(), 1);
  int64_t step = 0, time_us = 0;
  for (const v1::Checkpoint& checkpoint : Checkpoints(job)) {
    EXPECT_EQ(checkpoint.step(), step += kInterval);
    EXPECT_GE(checkpoint.time_us(), time_us);
    time_us = checkpoint.time_us();
  }
  EXPECT_EQ(step, kSteps);
  ExpectUndisturbed(job, undisturbed, 0);
  ExpectCheckpointsAsListed(job);
  ExpectSoundHistory(job);
}

TEST_F(RecoveryTest, ATrainerThatIsKilledIsStartedAgain) {
  StartAgent("a", 2);
  const auto& undisturbed = Undisturbed();
  const std::string job = Submit(2, kSteps, kInterval);
  AwaitCommit(job, kInterval);
  const pid_t trainer = Trainer(1);
  ASSERT_NE(trainer, 0) << "the job was over before it could be disturbed";
  Signal(trainer, SIGKILL);
  AwaitSuccess(job);
  const auto attempts = Attempts(job);
  ASSERT_EQ(attempts.size(), 2);
  EXPECT_EQ(attempts[0].state(), "failed");
  EXPECT_NE(attempts[0].error().message().find("rank 1"), std::string::npos) << attempts[0].error().message();
  ExpectUndisturbed(job, undisturbed, 0);
  ExpectCheckpointsAsListed(job);
  ExpectWentOn(job);
}

TEST_F(RecoveryTest, AnAgentThatIsKilledGoesOnWhenItIsBack) {
  pid_t agent = StartAgent("a", 2);
  const auto& undisturbed = Undisturbed();
  const std::string job = Submit(2, kSteps, kInterval);
  AwaitCommitAndMetrics(job, kInterval);
  Kill(&agent);
  agents_.clear();
  WaitUntil("the end of its trainers", [this] { return Trainer(0) == 0 && Trainer(1) == 0; });
  StartAgent("a", 2);
  AwaitSuccess(job);
  ASSERT_EQ(Attempts(job).size(), 2);
  EXPECT_EQ(Attempts(job)[0].state(), "lost");
  ExpectUndisturbed(job, undisturbed, 0);
  ExpectCheckpointsAsListed(job);
  ExpectWentOn(job);
}

TEST_F(RecoveryTest, ADamagedCheckpointIsPassedOverAndTheOneBeforeItGivesTheSameCurve) {
  pid_t agent = StartAgent("a", 2);
  const auto& undisturbed = Undisturbed();
  auto spec = TinyJob(folder_, 2, kSteps, kInterval);
  ASSERT_TRUE(spec.ok()) << spec.status();
  spec->mutable_policy()->set_max_restarts(0);  // nothing of this is a failure of the job
  const std::string job = Submit(*std::move(spec));
  AwaitCommitAndMetrics(job, 3 * kInterval);
  Kill(&agent);
  agents_.clear();
  WaitUntil("the end of its trainers", [this] { return Trainer(0) == 0 && Trainer(1) == 0; });
  // All that it has said by then is taken, the last commit too.
  WaitUntil("the end of its connection", [this] { return !Workers().at(0).connected(); });
  // A bit of the newest one's data, and the manifest of the one before.
  const auto committed = Checkpoints(job);
  const v1::Checkpoint newest = committed[committed.size() - 1], second = committed[committed.size() - 2];
  FlipBit(checkpoint::StepDirectory(newest.directory(), newest.step()) + "/rank-00000.bin");
  std::filesystem::remove(checkpoint::StepDirectory(second.directory(), second.step()) + "/manifest.pb");
  StartAgent("a", 2);
  AwaitSuccess(job);
  const auto attempts = Attempts(job);
  ASSERT_EQ(attempts.size(), 4) << "went on from step " << attempts[1].resume_step();
  for (const auto& [attempt, damaged] : {std::pair(attempts[1], newest), std::pair(attempts[2], second)}) {
    EXPECT_EQ(attempt.resume_step(), damaged.step());
    EXPECT_EQ(attempt.damage().step(), damaged.step());
    EXPECT_EQ(attempt.damage().directory(), damaged.directory());
    EXPECT_TRUE(std::filesystem::exists(checkpoint::StepDirectory(damaged.directory(), damaged.step()) + ".damaged"));
  }
  EXPECT_EQ(attempts[3].resume_step(), newest.step() - 2 * kInterval);
  EXPECT_EQ(Get(job).steps_back(), 2);
  const auto listed = Run({"checkpoints", job, "--server", address()});
  EXPECT_NE(listed.out.find("rank-00000.bin"), std::string::npos) << listed.out;
  ExpectUndisturbed(job, undisturbed, 0);
  ExpectCheckpointsAsListed(job);
  ExpectSoundHistory(job);
}

TEST_F(RecoveryTest, AStoppedAgentIsReplacedByAnotherAndFencedOff) {
  const pid_t stopped = StartAgent("a", 2);
  const auto& undisturbed = Undisturbed();
  const std::string job = Submit(2, kSteps, kInterval);
  AwaitCommitAndMetrics(job, kInterval);
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
    if (checkpoint.step() > resumed) {
      EXPECT_EQ(checkpoint.epoch(), 2) << checkpoint.step();
    }
  }
  ExpectUndisturbed(job, undisturbed, 0);
  ExpectCheckpointsAsListed(job);
  ExpectWentOn(job);
}

TEST_F(RecoveryTest, AStoppedAgentThatGoesOnEndsItsTrainersAndGetsTheJobAgain) {
  const pid_t agent = StartAgent("a", 2);
  const auto& undisturbed = Undisturbed();
  const std::string job = Submit(2, kSteps, kInterval);
  AwaitCommitAndMetrics(job, kInterval);
  Signal(agent, SIGSTOP);
  Await(job, "the end of its lease", [](const v1::Job& now) { return now.state() == v1::RESTARTING; });
  Signal(agent, SIGCONT);
  AwaitSuccess(job);
  ExpectUndisturbed(job, undisturbed, 0);
  ExpectCheckpointsAsListed(job);
  ExpectWentOn(job);
}

TEST_F(RecoveryTest, FewerSlotsAfterTheRestartArePlannedAnewAndNoSampleIsLostOrSeenTwice) {
  pid_t large = StartAgent("a", 2);
  const auto& undisturbed = Undisturbed();
  auto spec = TinyJob(folder_, 2, kSteps, kInterval);
  ASSERT_TRUE(spec.ok()) << spec.status();
  spec->mutable_recipe()->mutable_checkpoint()->set_keep_latest_k(0);  // all are looked at in the end
  const std::string job = Submit(*std::move(spec));
  AwaitCommitAndMetrics(job, kInterval);
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
  ExpectSavedByTwoThenByOne(job, attempts[1].resume_step());
  ExpectWentOn(job);
}

}  // namespace
}  // namespace legoai::service

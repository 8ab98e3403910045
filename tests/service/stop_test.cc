// Jobs that save before they stop: what was saved is gone on with, and nothing is trained twice.
#include <gmock/gmock.h>
#include <signal.h>

#include "server/cli/testing/lego_process.h"
#include "tests/service/service_processes.h"
#include "tests/service/service_test_fixture.h"

namespace legoai::service {
namespace {

using cli::testing::Result;
using ::testing::HasSubstr;

// Fewer steps than points of a query of metrics; nothing is saved but on request.
constexpr int64_t kSteps = 900, kInterval = 100'000;

class StopTest : public ServiceTest {
 protected:
  void AwaitStep(const std::string& job, int64_t step) {
    Await(job, "step " + std::to_string(step), [&](const v1::Job& now) { return now.progress().step() >= step; });
  }
  v1::Job AwaitCancelled(const std::string& job) {
    cli::testing::WaitUntil("the end of the job", [&] { return Get(job).has_end_time_us(); });
    EXPECT_EQ(Get(job).state(), v1::CANCELLED);
    return Get(job);
  }
  std::map<int64_t, double> Undisturbed() {
    const std::string job = Submit(2, kSteps, kInterval);
    AwaitSuccess(job);
    return Losses(job);
  }
  // From a to b, without losing a step or doing one twice.
  void ExpectMoved(const std::string& job, const std::map<int64_t, double>& undisturbed) {
    const v1::Job done = AwaitSuccess(job);
    const auto attempts = Attempts(job);
    ASSERT_EQ(attempts.size(), 2u);
    EXPECT_EQ(attempts[0].placements(0).worker(), "workers/a");
    EXPECT_EQ(attempts[0].state(), "stopped");
    ASSERT_TRUE(attempts[0].has_saved_step());
    EXPECT_EQ(attempts[1].placements(0).worker(), "workers/b");
    EXPECT_EQ(attempts[1].resume_step(), attempts[0].saved_step());
    EXPECT_EQ(done.restarts(), 0);
    EXPECT_FALSE(done.has_stop());
    ExpectUndisturbed(job, undisturbed, 0);
    ExpectSoundHistory(job);
  }
};

TEST_F(StopTest, ACancelledJobSavesItsStepAndARetryGoesOnFromThere) {
  StartAgent("a", 2);
  const std::map<int64_t, double> undisturbed = Undisturbed();
  const std::string job = Submit(2, kSteps, kInterval);
  AwaitStep(job, 20);
  const Result cancelled = Run({"cancel", job, "--save", "--reason", "enough seen", "--server", address()});
  EXPECT_EQ(cancelled.code, 0) << cancelled.err;
  EXPECT_THAT(cancelled.out, HasSubstr("it saves first, for at most 1 min"));
  const v1::Job done = AwaitCancelled(job);
  const auto checkpoints = Checkpoints(job);
  ASSERT_EQ(checkpoints.size(), 1u) << done.reason();
  const int64_t saved = checkpoints[0].step();
  EXPECT_GE(saved, 20);
  EXPECT_EQ(done.reason(), "was cancelled: enough seen; step " + std::to_string(saved) + " is saved, and nothing was lost");
  EXPECT_EQ(Attempts(job).at(0).state(), "stopped");
  EXPECT_EQ(Attempts(job).at(0).saved_step(), saved);
  EXPECT_EQ(done.restarts(), 0);
  const Result retried = Run({"retry", job, "--server", address()});
  EXPECT_THAT(retried.out, HasSubstr("goes on from step " + std::to_string(saved)));
  std::string retry = retried.out.substr(retried.out.find("projects/"));
  retry = retry.substr(0, retry.find(','));
  AwaitSuccess(retry);
  std::map<int64_t, double> losses = Losses(job);
  EXPECT_EQ(losses.rbegin()->first, saved) << "no step after the one that is saved";
  for (const auto& [step, loss] : Losses(retry)) EXPECT_TRUE(losses.emplace(step, loss).second) << step << " was done twice";
  EXPECT_EQ(losses, undisturbed);
}

TEST_F(StopTest, ADrainedWorkersJobGoesOnElsewhere) {
  StartAgent("a", 2);
  const std::map<int64_t, double> undisturbed = Undisturbed();
  const std::string job = Submit(2, kSteps, kInterval);
  AwaitStep(job, 20);
  StartAgent("b", 2);
  const Result drained = Run({"workers", "a", "--drain", "--server", address()});
  EXPECT_EQ(drained.code, 0) << drained.err;
  ExpectMoved(job, undisturbed);
}

// The server is killed as soon as it has said that the worker drains, and when the stop is under way.
TEST_F(StopTest, AServerThatIsKilledGoesOnWithTheDrain) {
  StartAgent("a", 2);
  const std::map<int64_t, double> undisturbed = Undisturbed();
  const std::string job = Submit(2, kSteps, kInterval);
  AwaitStep(job, 20);
  StartAgent("b", 2);
  EXPECT_EQ(Run({"workers", "a", "--drain", "--server", address()}).code, 0);
  KillServer();
  StartServer();
  cli::testing::WaitUntil("the stop", [&] { return Get(job).has_stop() || Get(job).attempts() > 1; });
  KillServer();
  StartServer();
  ExpectMoved(job, undisturbed);
}

// A rank that does not come to the end of its step: the time is over, and the job goes on from the beginning.
TEST_F(StopTest, ARankThatHangsHoldsNothingUpLongerThanTheGrace) {
  StartAgent("a", 2);
  const std::string job = Submit(2, 100'000, kInterval);
  AwaitStep(job, 5);
  const pid_t rank = Trainer(1);
  ASSERT_NE(rank, 0);
  Signal(rank, SIGSTOP);
  EXPECT_EQ(Run({"cancel", job, "--save", "--grace", "2", "--server", address()}).code, 0);
  const v1::Job done = AwaitCancelled(job);
  EXPECT_THAT(done.reason(), HasSubstr("was not saved within 2 s: it has no checkpoint"));
  EXPECT_TRUE(Checkpoints(job).empty());
  EXPECT_EQ(Attempts(job).at(0).state(), "stopped") << "nobody is to blame";
  EXPECT_FALSE(Attempts(job).at(0).has_error());
}

TEST_F(StopTest, CallsThatCannotBeAreRefused) {
  StartAgent("a", 2);
  const std::string job = Submit(2, 10, 10);
  EXPECT_EQ(Run({"cancel", job, "--grace", "2", "--server", address()}).code, 2);
  EXPECT_EQ(Run({"cancel", job, "--save", "--grace", "-1", "--server", address()}).code, 2);
  EXPECT_EQ(Run({"cancel", job, "--save", "--grace", "1000000", "--server", address()}).code, 2);
  EXPECT_EQ(Run({"workers", "a", "--let-finish", "--server", address()}).code, 2);
  EXPECT_EQ(Run({"workers", "a", "--drain", "--let-finish", "--grace", "3", "--server", address()}).code, 2);
  AwaitSuccess(job);
}

}  // namespace
}  // namespace legoai::service

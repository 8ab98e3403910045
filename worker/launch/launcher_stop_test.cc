// Ranks that do not end when they are asked to: all are gone when the launcher is done, or named where nobody can end them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "worker/launch/testing/launcher_fixture.h"

namespace legoai::launch {
namespace {

using ::testing::HasSubstr;
using testing::LauncherTest;

class LauncherStopTest : public LauncherTest {
 protected:
  LauncherStopTest() { steps_ = 1'000'000; }
  ~LauncherStopTest() override { prctl(PR_SET_CHILD_SUBREAPER, 0); }
  // Processes whose parents are gone become this one's children, and are seen to end.
  static void AdoptOrphans() { ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0); }
  bool IsGone(int rank) const { return kill(pids_.at(rank), 0) == -1; }
  LaunchOptions DeafOptions(const std::string& act, int64_t culprit) {
    LaunchOptions options = Options(act, culprit);
    options.arguments.push_back("--block_term=1");
    return options;
  }
  // The number after `prefix` in what the culprit told.
  pid_t Told(const std::string& prefix) const {
    for (const std::string& log : logs_) {
      const size_t at = log.find(prefix);
      if (at != std::string::npos) return std::stoi(log.substr(at + prefix.size()));
    }
    ADD_FAILURE() << "nobody said \"" << prefix << "\"";
    return -1;
  }
  static void ExpectKilled(pid_t pid) {
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  }
};

TEST_F(LauncherStopTest, ARankThatIgnoresSigtermIsKilled) {
  hear_ = {1, 2};
  EXPECT_THAT(Run("ignore_term", 0).status().message(), HasSubstr("rank 0 (train, step 2): no message for 5 min"));
}

// On a busy machine the others' complaint can come before the end of the process they complain of.
TEST_F(LauncherStopTest, ARankThatIsStillDyingIsTheCause) {
  LaunchOptions options = Options("die_slowly", 1);
  options.clock = [this, looks = 0, clock = options.clock]() mutable {
    if (acts_ && ++looks > 60) kill(pids_.at(1), SIGCONT);
    return clock();
  };
  const auto outcome = Run(std::move(options), Callbacks());
  EXPECT_THAT(outcome.status().message(), HasSubstr("rank 1 (train, step 2): the process exited with code 3"));
}

// Nothing shall be saved, so nobody waits for a rank that cannot stop.
TEST_F(LauncherStopTest, AHungRankDoesNotKeepAStopThatSavesNothing) {
  stop_at_ = 5;
  stop_saves_ = false;
  LaunchOptions options = DeafOptions("hang", 1);
  options.discard_grace = absl::Milliseconds(30);
  const auto outcome = Run(std::move(options), Callbacks());
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->cause, v1::Exit::STOPPED);
  EXPECT_GE(outcome->step, 4);
  EXPECT_TRUE(IsGone(0) && IsGone(1) && IsGone(2));
}

TEST_F(LauncherStopTest, RanksThatBlockSigtermAreKilled) {
  hear_ = {0, 2};
  const auto outcome = Run(DeafOptions("hang", 1), Callbacks());
  EXPECT_THAT(outcome.status().message(), HasSubstr("rank 1 (train, step 2): no message for 5 min"));
}

TEST_F(LauncherStopTest, RanksThatBlockSigtermAreKilledWhereOneIsStopped) {
  hear_ = {0, 1};
  const auto outcome = Run(DeafOptions("stop_self", 2), Callbacks());
  EXPECT_THAT(outcome.status().message(), HasSubstr("rank 2 (train, step 2): does not answer: the process is stopped (SIGSTOP)"));
}

TEST_F(LauncherStopTest, ARankThatWaitsInTheKernelIsNamedAndKilled) {
  hear_ = {0, 1};
  LaunchOptions options = DeafOptions("wait_in_kernel", 2);
  options.answer_timeout = absl::Minutes(3);
  const auto outcome = Run(std::move(options), Callbacks());
  EXPECT_THAT(outcome.status().message(), HasSubstr("rank 2 (train, step 2): does not answer: the process waits for a disk"));
  EXPECT_THAT(Faults(), ::testing::ElementsAre("none", "none", "unresponsive"));
  EXPECT_EQ(troubled_[2].process_state(), "D");
}

TEST_F(LauncherStopTest, WhatARankStartedEndsWithIt) {
  AdoptOrphans();
  const auto outcome = Launcher(Options("fork", 1), Callbacks(), &stop_).Run();
  EXPECT_THAT(outcome.status().message(), HasSubstr("rank 1 (train, step 2): the process was killed by signal 9"));
  ExpectKilled(Told("child "));
}

TEST_F(LauncherStopTest, ARankThatCannotBeEndedIsNamedAndLeft) {
  AdoptOrphans();
  LaunchOptions options = Options("be_held", 0);
  options.kill_grace = absl::Minutes(1);
  // Time passes from the moment at which it is held, and past any grace only when the others are gone.
  options.clock = [this, clock = options.clock] {
    const auto tells = [](const std::string& log) { return log.find("held by ") != std::string::npos; };
    if (hear_.empty() && std::any_of(logs_.begin(), logs_.end(), tells)) hear_ = {1, 2};
    if (pids_.size() == 3 && IsGone(1) && IsGone(2)) ++minutes_;
    return clock();
  };
  const auto outcome = Launcher(std::move(options), Callbacks(), &stop_).Run();
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(outcome.status().message(),
              HasSubstr(absl::StrCat("rank 0 (train, step 2): process ", pids_.at(0), " cannot be killed")));
  EXPECT_TRUE(IsGone(1) && IsGone(2));
  const pid_t holder = Told("held by ");
  kill(holder, SIGKILL);
  ExpectKilled(pids_[0]);
  ExpectKilled(holder);
}

}  // namespace
}  // namespace legoai::launch

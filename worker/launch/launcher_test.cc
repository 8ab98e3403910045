#include "worker/launch/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/process/child_process.h"
#include "core/process/host_resources.h"
#include "proto/errors.h"
#include "proto/testing/assert_ok.h"
#include "worker/launch/testing/launcher_fixture.h"

namespace legoai::launch {
namespace {

using ::testing::HasSubstr;
using testing::LauncherTest;

TEST_F(LauncherTest, AllFinishAndACheckpointIsCommittedOnce) {
  LaunchCallbacks callbacks = Callbacks();
  std::vector<std::string> commits;
  callbacks.commit = [&](int64_t step, const std::vector<std::string>& digests) {
    commits.push_back(absl::StrCat(step, ": ", absl::StrJoin(digests, " ")));
    return absl::OkStatus();
  };
  ASSERT_OK_AND_ASSIGN(const auto outcome, Run(Options("none", 0), callbacks));
  EXPECT_EQ(outcome.cause, v1::Exit::FINISHED);
  EXPECT_EQ(outcome.step, 5);
  EXPECT_THAT(commits, ::testing::ElementsAre("2: digest-0 digest-1 digest-2"));
  EXPECT_THAT(logs_, ::testing::IsSupersetOf({"0: verdict on 2: OK", "1: verdict on 2: OK", "2: verdict on 2: OK"}));
  EXPECT_EQ(last_step_, (std::map<int64_t, int64_t>{{0, 5}, {1, 5}, {2, 5}}));
  EXPECT_THAT(logs_, ::testing::Contains(HasSubstr("1: pid")));
  for (const std::string& log : logs_) {
    if (!absl::StrContains(log, "pid")) continue;
    EXPECT_EQ(absl::StrContains(log, "fd -1"), !absl::StartsWith(log, "0:")) << log;
  }
}

TEST_F(LauncherTest, ADeniedCheckpointTellsTheReason) {
  LaunchCallbacks callbacks = Callbacks();
  callbacks.commit = [](int64_t, const std::vector<std::string>&) { return absl::AbortedError("epoch 4 is over"); };
  EXPECT_TRUE(Run(Options("none", 0), callbacks).ok());
  EXPECT_THAT(logs_, ::testing::Contains("2: verdict on 2: ABORTED: epoch 4 is over"));
  EXPECT_THAT(logs_, ::testing::Contains("2: ends: ABORTED: epoch 4 is over"));
}

// Who decides is far away: the ranks wait, are watched, and hear that they shall stop.
TEST_F(LauncherTest, AVerdictThatComesLateIsWaitedFor) {
  LaunchCallbacks callbacks = Callbacks();
  int64_t asked = 0;
  callbacks.commit = [&](int64_t step, const std::vector<std::string>& digests) -> std::optional<absl::Status> {
    EXPECT_EQ(step, 2);
    EXPECT_EQ(digests.size(), 3u);
    if (++asked == 2) stop_.Request(/*save=*/true);
    if (asked < 20) {
      stop_.Wake();
      return std::nullopt;
    }
    return absl::OkStatus();
  };
  steps_ = 1'000'000;
  ASSERT_OK_AND_ASSIGN(const auto outcome, Run(Options("none", 0), callbacks));
  EXPECT_EQ(outcome.cause, v1::Exit::STOPPED);
  EXPECT_EQ(asked, 20);
  EXPECT_THAT(logs_, ::testing::IsSupersetOf({"0: verdict on 2: OK", "2: verdict on 2: OK", "1: saved", "1: ends: OK"}));
}

TEST_F(LauncherTest, KilledAtOnceEvenWhileAVerdictIsAwaited) {
  LaunchCallbacks callbacks = Callbacks();
  int64_t asked = 0;
  callbacks.commit = [&](int64_t, const std::vector<std::string>&) -> std::optional<absl::Status> {
    if (++asked == 3) stop_.Kill();
    stop_.Wake();
    return std::nullopt;
  };
  EXPECT_EQ(Run(Options("none", 0), callbacks).status().code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(logs_, ::testing::Not(::testing::Contains(HasSubstr("verdict"))));
  EXPECT_THAT(logs_, ::testing::Not(::testing::Contains(HasSubstr("saved"))));
  stop_.Kill();
  EXPECT_EQ(Run(Options("none", 0), Callbacks()).status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(pids_.empty()) << "nothing was started";
}

TEST_F(LauncherTest, RanksArePinnedToTheProcessorsGiven) {
  const std::vector<int> allowed = AllowedCpus();
  LaunchOptions options = Options("none", 0);
  options.processors = {allowed.back()};
  LaunchCallbacks callbacks = Callbacks();
  int64_t looked = 0;
  callbacks.started = [&](int64_t rank, pid_t pid) {
    pids_.push_back(pid);
    cpu_set_t cpus;
    ASSERT_EQ(sched_getaffinity(pid, sizeof(cpus), &cpus), 0);
    EXPECT_EQ(CPU_COUNT(&cpus), 1);
    EXPECT_TRUE(CPU_ISSET(allowed.back(), &cpus)) << "rank " << rank;
    ++looked;
  };
  EXPECT_TRUE(Run(options, callbacks).ok());
  EXPECT_EQ(looked, 3);
}

TEST_F(LauncherTest, EachRankHearsOfItsGpu) {
  LaunchOptions options = Options("none", 0);
  options.gpus = {"GPU-c", "GPU-a", "GPU-b"};
  EXPECT_TRUE(Run(options, Callbacks()).ok());
  for (const char* end : {"0: pid .* gpu GPU-c", "1: pid .* gpu GPU-a", "2: pid .* gpu GPU-b"})
    EXPECT_THAT(logs_, ::testing::Contains(::testing::MatchesRegex(end)));
  options.gpus.pop_back();
  pids_.clear();
  EXPECT_EQ(GetFieldViolation(Run(options, Callbacks()).status())->field(), "gpus");
  EXPECT_TRUE(pids_.empty()) << "nothing was started";
}

TEST_F(LauncherTest, WithoutGpusNoRankHearsOfOne) {
  EXPECT_TRUE(Run("none", 0).ok());
  EXPECT_THAT(logs_, ::testing::Contains(::testing::MatchesRegex("2: pid .* gpu none")));
}

TEST_F(LauncherTest, ARankThatIsKilledIsNamed) {
  steps_ = 1'000'000;
  const auto outcome = Run("die", 1);
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(outcome.status().message(), HasSubstr("rank 1 (train, step 2): the process was killed by signal 9"));
  EXPECT_THAT(Faults(), ::testing::ElementsAre("none", "failed", "none"));
  EXPECT_EQ(troubled_[1].text(), "the process was killed by signal 9 (Killed)");
  EXPECT_EQ(troubled_[1].process_state(), "");
  EXPECT_EQ(trouble_, outcome.status());
}

TEST_F(LauncherTest, ARankThatExitsWithoutAWordIsNamed) {
  steps_ = 1'000'000;
  EXPECT_THAT(Run("exit", 2).status().message(), HasSubstr("rank 2 (train, step 2): the process exited with code 7"));
}

TEST_F(LauncherTest, AStoppedRankDoesNotAnswer) {
  steps_ = 1'000'000;
  hear_ = {0, 2};
  const auto outcome = Run("stop_self", 1);
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(outcome.status().message(), HasSubstr("rank 1 (train, step 2): does not answer: the process is stopped (SIGSTOP)"));
  EXPECT_THAT(Faults(), ::testing::ElementsAre("none", "unresponsive", "none"));
  EXPECT_EQ(troubled_[1].text(), "does not answer: the process is stopped (SIGSTOP)");
  EXPECT_EQ(troubled_[1].process_state(), "T");
  EXPECT_EQ(troubled_[1].phase(), "train");
  EXPECT_EQ(troubled_[1].step(), 2);
  EXPECT_GT(troubled_[1].silent_seconds(), absl::ToDoubleSeconds(kPatience));
  EXPECT_EQ(trouble_, outcome.status());
}

TEST_F(LauncherTest, AFailureKeepsItsFieldAndBeatsItsConsequences) {
  steps_ = 1'000'000;
  const auto failed = Run("fail", 2);
  EXPECT_EQ(failed.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(failed.status().message(), HasSubstr("rank 2"));
  ASSERT_TRUE(GetFieldViolation(failed.status()).has_value());
  EXPECT_EQ(GetFieldViolation(failed.status())->field(), "training.lr");
  EXPECT_EQ(Run("lose_peer", 0).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(LauncherTest, ProtocolErrorsAreTheRanksFailure) {
  steps_ = 1'000'000;
  EXPECT_THAT(Run("oversized", 0).status().message(),
              HasSubstr("rank 0 (train, step 2): broke the protocol: the peer announces"));
  EXPECT_THAT(Run("garbage", 1).status().message(), HasSubstr("are no legoai.v1.FromTrainer"));
}

// What takes a rank longer than any limit, but goes on, is no silence; nor is that of those who wait for it.
TEST_F(LauncherTest, SlowWorkIsNotSilence) {
  meet_ = 3;
  hear_ = {0, 1, 2};
  stop_at_minute_ = 2 * kPatience / absl::Minutes(1);
  ASSERT_OK_AND_ASSIGN(const auto outcome, Run("work", 1));
  EXPECT_EQ(outcome.step, 3);
  EXPECT_GE(done_, 2 * kPatience / absl::Minutes(1)) << "progress that was told";
}

TEST_F(LauncherTest, AHungRankIsToldFromThoseWhoWaitForIt) {
  meet_ = 3;
  hear_ = {0, 2};
  const auto outcome = Run("hang", 1);
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(outcome.status().message(), HasSubstr("rank 1 (train, step 2): hangs, or works longer than the time-out"));
  EXPECT_THAT(outcome.status().message(), HasSubstr("waits in a meeting of all ranks"));
  EXPECT_THAT(Faults(), ::testing::ElementsAre("none", "hangs", "none"));
}

TEST_F(LauncherTest, NobodyPassesAMeetingBeforeAllHaveArrived) {
  ASSERT_TRUE(Run("none", 0).ok());
  std::vector<std::string> meeting;
  for (const std::string& log : logs_) {
    if (absl::EndsWith(log, "arrives") || absl::EndsWith(log, "passes")) meeting.push_back(log.substr(3));
  }
  EXPECT_THAT(meeting, ::testing::ElementsAre("arrives", "arrives", "arrives", "passes", "passes", "passes"));
}

TEST_F(LauncherTest, AnotherBuildIsRefused) {
  LaunchOptions options = Options("none", 0);
  options.start.set_build_version("0.1.0+other");
  const auto outcome = Run(std::move(options), Callbacks());
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(outcome.status().message(), HasSubstr("build_version = 0.1.0+other: the launcher was built from other sources"));
}

TEST_F(LauncherTest, StopReachesAllRanks) {
  steps_ = 1'000'000;
  stop_at_ = 4;
  ASSERT_OK_AND_ASSIGN(const auto outcome, Run("none", 0));
  EXPECT_EQ(outcome.cause, v1::Exit::STOPPED);
  EXPECT_GE(outcome.step, 4);
  EXPECT_THAT(logs_, ::testing::IsSupersetOf({"0: saved", "1: saved", "2: saved"}));
  logs_.clear();
  stop_saves_ = false;
  EXPECT_TRUE(Run("none", 0).ok());
  EXPECT_THAT(logs_, ::testing::IsSupersetOf({"0: discarded", "1: discarded", "2: discarded"}));
}

TEST_F(LauncherTest, AMissingProgramAndATakenPortAreFieldErrors) {
  LaunchOptions options = Options("none", 0);
  options.trainer = "worker/launch/no_such_trainer";
  auto outcome = Run(std::move(options), Callbacks());
  ASSERT_TRUE(GetFieldViolation(outcome.status()).has_value()) << outcome.status();
  EXPECT_EQ(GetFieldViolation(outcome.status())->value(), "worker/launch/no_such_trainer");

  const auto taken = ListenOnLoopback(0);
  options = Options("none", 0);
  options.rendezvous_port = taken->port;
  outcome = Run(std::move(options), Callbacks());
  ASSERT_TRUE(GetFieldViolation(outcome.status()).has_value()) << outcome.status();
  EXPECT_THAT(outcome.status().message(), HasSubstr("the port is in use"));
  close(taken->fd);
}

TEST_F(LauncherTest, OutputGoesToLogFilesAndRanksArePinned) {
  LaunchOptions options = Options("none", 0);
  options.trainer = "/bin/sh";
  options.arguments = {"-c", "grep Cpus_allowed_list /proc/self/status; exit 5"};
  options.log_directory = ::testing::TempDir();
  EXPECT_THAT(Run(std::move(options), Callbacks()).status().message(), HasSubstr("exited with code 5"));
  std::ifstream log(::testing::TempDir() + "/rank-1.log");
  std::string key, cpus;
  log >> key >> cpus;
  EXPECT_TRUE(!cpus.empty() && cpus.find_first_not_of("0123456789") == std::string::npos) << cpus;
}

// A process that launches is killed: its ranks must die with it. This process adopts them and sees them end.
TEST_F(LauncherTest, NobodySurvivesTheLauncher) {
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  steps_ = 1'000'000;
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const pid_t victim = fork();
  if (victim == 0) {
    LaunchCallbacks callbacks;
    callbacks.log = [&](int64_t, const v1::Log& log) {
      const int pid = absl::StartsWith(log.text(), "pid ") ? std::stoi(log.text().substr(4)) : 0;
      if (pid != 0 && write(fds[1], &pid, sizeof(pid)) < 0) _exit(1);
    };
    Launcher launcher(Options("none", 0), callbacks);
    launcher.Run().status().IgnoreError();
    _exit(0);
  }
  std::set<int> expected = {victim};
  for (int i = 0; i < 3; ++i) {
    int pid = 0;
    ASSERT_EQ(read(fds[0], &pid, sizeof(pid)), static_cast<ssize_t>(sizeof(pid)));
    expected.insert(pid);
  }
  kill(victim, SIGKILL);
  std::set<int> ended;
  for (int i = 0; i < 4; ++i) ended.insert(waitpid(-1, nullptr, 0));
  EXPECT_EQ(ended, expected);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
}

// Ranks that do not end when they are asked to: all are gone when the launcher is done, or named where nobody can end them.
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
  ASSERT_OK_AND_ASSIGN(const auto outcome, Run(std::move(options), Callbacks()));
  EXPECT_EQ(outcome.cause, v1::Exit::STOPPED);
  EXPECT_GE(outcome.step, 4);
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

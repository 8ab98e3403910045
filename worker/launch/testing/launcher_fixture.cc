#include "worker/launch/testing/launcher_fixture.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace legoai::launch::testing {

LaunchOptions LauncherTest::Options(const std::string& act, int64_t culprit, int64_t world) {
  LaunchOptions options;
  options.trainer = "worker/launch/test_trainer";
  options.arguments = {"--build=test",
                       "--act=" + act,
                       absl::StrCat("--culprit=", culprit),
                       absl::StrCat("--steps=", steps_),
                       absl::StrCat("--meet=", meet_),
                       absl::StrCat("--saves=", saves_)};
  options.world_size = world;
  options.start.set_build_version("test");
  options.start.set_epoch(4);
  options.start.mutable_recipe()->mutable_checkpoint()->set_max_pending_commits(most_pending_);
  options.init_timeout = options.train_timeout = kPatience;
  options.answer_timeout = options.kill_grace = absl::Hours(5);
  options.stop_grace = absl::Milliseconds(30);
  options.clock = [this] { return ++looks_ * absl::Milliseconds(1) + minutes_ * absl::Minutes(1); };
  return options;
}

LaunchCallbacks LauncherTest::Callbacks() {
  LaunchCallbacks callbacks;
  callbacks.log = [this](int64_t rank, const v1::Log& log) {
    logs_.push_back(absl::StrCat(rank, ": ", log.text()));
    if (log.text() == "acts") acts_ = true;
  };
  callbacks.started = [this](int64_t, pid_t pid) { pids_.push_back(pid); };
  callbacks.progress = [this](int64_t rank, const v1::Progress& progress) {
    last_step_[rank] = progress.step();
    if (!progress.waits().empty()) waits_.insert(progress.waits());
    done_ = std::max(done_, progress.done());
    if (acts_) heard_.insert(rank);
    if (acts_ && !hear_.empty() && std::includes(heard_.begin(), heard_.end(), hear_.begin(), hear_.end())) {
      heard_.clear();
      if (++minutes_ == stop_at_minute_) stop_.Request(/*save=*/true);
    }
    // Of one rank alone: what a later one asked might be taken only by the next run.
    if (rank == 0 && progress.step() == stop_at_) stop_.Request(stop_saves_);
  };
  callbacks.troubled = [this](const std::vector<v1::RankCondition>& ranks, const absl::Status& failure) {
    EXPECT_TRUE(troubled_.empty()) << "told once";
    troubled_ = ranks;
    trouble_ = failure;
  };
  return callbacks;
}

absl::StatusOr<LaunchOutcome> LauncherTest::Run(LaunchOptions options, LaunchCallbacks callbacks) {
  pids_.clear();
  troubled_.clear();
  auto outcome = Launcher(std::move(options), std::move(callbacks), &stop_).Run();
  for (pid_t pid : pids_) EXPECT_EQ(kill(pid, 0), -1) << pid;
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
  return outcome;
}

std::vector<std::string> LauncherTest::Faults() const {
  std::vector<std::string> faults;
  for (const v1::RankCondition& condition : troubled_) faults.push_back(condition.fault());
  return faults;
}

}  // namespace legoai::launch::testing

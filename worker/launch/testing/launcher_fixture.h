// For tests of the launcher: jobs of real processes that train nothing (test_trainer.cc). Not thread-safe.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/process/child_process.h"
#include "worker/launch/launcher.h"

namespace legoai::launch::testing {

// Runs launchers over the test trainer and keeps what its ranks said.
//
// Limits on silence are minutes, and a minute passes where a test lets it: whenever all ranks of `hear_` have been heard of once
// more after the culprit has begun to act. So no rank is taken for silent because the machine is slow, or was stopped. Besides, a
// millisecond passes whenever the launcher looks.
class LauncherTest : public ::testing::Test {
 protected:
  LaunchOptions Options(const std::string& act, int64_t culprit, int64_t world = 3);
  LaunchCallbacks Callbacks();

  // Also checks that nobody is left: neither running nor as a zombie.
  absl::StatusOr<LaunchOutcome> Run(LaunchOptions options, LaunchCallbacks callbacks);
  std::vector<std::string> Faults() const;  // as was told when something had gone wrong, by rank
  absl::StatusOr<LaunchOutcome> Run(const std::string& act, int64_t culprit) { return Run(Options(act, culprit), Callbacks()); }

  static constexpr absl::Duration kPatience = absl::Minutes(5);
  std::set<int64_t> hear_, heard_;
  bool acts_ = false;
  int64_t looks_ = 0, minutes_ = 0, stop_at_minute_ = -1, done_ = 0;
  int64_t steps_ = 5, meet_ = 0, saves_ = 0, most_pending_ = 0;
  int64_t stop_at_ = -1;
  bool stop_saves_ = true;
  StopPipe stop_;
  std::vector<std::string> logs_;
  std::vector<pid_t> pids_;
  std::map<int64_t, int64_t> last_step_;
  std::set<std::string> waits_;              // for what ranks said that they wait
  std::vector<v1::RankCondition> troubled_;  // what was told of the ranks, and of the failure, when something had gone wrong
  absl::Status trouble_;
};

}  // namespace legoai::launch::testing

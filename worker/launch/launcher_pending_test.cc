// Checkpoints whose verdicts come late: ranks go on as far as they may, hear the verdicts in order, and end when all are there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/testing/assert_ok.h"
#include "worker/launch/testing/launcher_fixture.h"

namespace legoai::launch {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::LauncherTest;
using ::testing::Not;

// Offers in every second step.
class LauncherPendingTest : public LauncherTest {
 protected:
  LauncherPendingTest() { saves_ = 2; }

  // Verdicts are those of verdicts_; asked_ keeps the steps in the order in which they were first asked for.
  LaunchCallbacks PendingCallbacks() {
    LaunchCallbacks callbacks = Callbacks();
    callbacks.commit = [this](int64_t step, const std::vector<std::string>& digests) -> std::optional<absl::Status> {
      EXPECT_THAT(digests, ElementsAre("digest-0", "digest-1", "digest-2"));
      if (asked_.empty() || asked_.back() < step) asked_.push_back(step);
      const auto known = verdicts_.find(step);
      return known == verdicts_.end() ? std::nullopt : std::optional(known->second);
    };
    return callbacks;
  }
  // What a rank logged that begins so.
  std::vector<std::string> Said(int64_t rank, const std::string& begin) const {
    std::vector<std::string> said;
    for (const std::string& log : logs_) {
      if (absl::StartsWith(log, absl::StrCat(rank, ": ", begin))) said.push_back(log.substr(3));
    }
    return said;
  }
  // Whether all ranks have said it.
  bool AllSaid(const std::string& text) const {
    for (int64_t rank = 0; rank < 3; ++rank) {
      if (Said(rank, text).empty()) return false;
    }
    return true;
  }
  // Calls `then` once, when `when` holds after a message.
  void Once(LaunchCallbacks* callbacks, std::function<bool()> when, std::function<void()> then) {
    const auto look = [this, when, then, done = false]() mutable {
      if (done || !when()) return;
      done = true;
      then();
      stop_.Wake();
    };
    const auto shared = std::make_shared<std::function<void()>>(look);
    callbacks->log = [shared, log = callbacks->log](int64_t rank, const v1::Log& line) {
      log(rank, line);
      (*shared)();
    };
    callbacks->progress = [shared, progress = callbacks->progress](int64_t rank, const v1::Progress& message) {
      progress(rank, message);
      (*shared)();
    };
  }

  std::map<int64_t, absl::Status> verdicts_;
  std::vector<int64_t> asked_;
};

TEST_F(LauncherPendingTest, RanksGoOnAndHearTheVerdictsInOrder) {
  steps_ = 9, most_pending_ = 4;
  LaunchCallbacks callbacks = PendingCallbacks();
  // Nothing is answered before all steps are done: it is the end that waits.
  const auto done = [this] {
    return !waits_.empty() && AllSaid("has offered 8") && last_step_[0] == 9 && last_step_[1] == 9 && last_step_[2] == 9;
  };
  Once(&callbacks, done, [this] {
    EXPECT_THAT(waits_, ElementsAre("the server's word on the checkpoint of step 2"));
    EXPECT_THAT(logs_, Not(Contains(HasSubstr("ends"))));
    for (const int64_t step : {8, 6, 4, 2}) verdicts_[step] = absl::OkStatus();
  });
  ASSERT_OK_AND_ASSIGN(const auto outcome, Run(Options("none", 0), callbacks));
  EXPECT_EQ(outcome.cause, v1::Exit::FINISHED);
  EXPECT_THAT(asked_, ElementsAre(2, 4, 6, 8));
  for (int64_t rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(Said(rank, "verdict"),
                ElementsAre("verdict on 2: OK", "verdict on 4: OK", "verdict on 6: OK", "verdict on 8: OK"));
    EXPECT_THAT(Said(rank, "ends"), ElementsAre("ends: OK"));
  }
}

TEST_F(LauncherPendingTest, AtTheLimitAllRanksWait) {
  steps_ = 9, most_pending_ = 2;
  LaunchCallbacks callbacks = PendingCallbacks();
  Once(
      &callbacks, [this] { return !waits_.empty(); },
      [this] {
        EXPECT_THAT(waits_, ElementsAre("the server's word on the checkpoint of step 2"));
        EXPECT_THAT(asked_, ElementsAre(2, 4, 6));
        for (int64_t rank = 0; rank < 3; ++rank) {
          EXPECT_EQ(last_step_[rank], 6) << "none goes on while another waits";
          EXPECT_THAT(Said(rank, "has offered"), ElementsAre("has offered 2", "has offered 4"));
        }
        verdicts_[2] = absl::OkStatus();
      });
  // One verdict gives room for one more, and so the next limit is reached at step 8.
  const auto progress = callbacks.progress;
  callbacks.progress = [&](int64_t rank, const v1::Progress& message) {
    progress(rank, message);
    if (message.waits() != "the server's word on the checkpoint of step 4") return;
    EXPECT_THAT(asked_, ElementsAre(2, 4, 6, 8));
    EXPECT_EQ(message.step(), 8);
    for (const int64_t step : {4, 6, 8}) verdicts_[step] = absl::OkStatus();
  };
  ASSERT_OK_AND_ASSIGN(const auto outcome, Run(Options("none", 0), callbacks));
  EXPECT_EQ(outcome.step, 9);
  EXPECT_EQ(waits_.size(), 2u);
  EXPECT_TRUE(AllSaid("verdict on 8: OK"));
}

// The others are asked for as before.
TEST_F(LauncherPendingTest, ADenialOfTheFirstOfSeveral) {
  steps_ = 7, most_pending_ = 4;
  LaunchCallbacks callbacks = PendingCallbacks();
  Once(
      &callbacks, [this] { return !waits_.empty(); },
      [this] {
        verdicts_[2] = absl::AbortedError("not this one");
        verdicts_[4] = verdicts_[6] = absl::OkStatus();
      });
  ASSERT_TRUE(Run(Options("none", 0), callbacks).ok());
  for (int64_t rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(Said(rank, "verdict"),
                ElementsAre("verdict on 2: ABORTED: not this one", "verdict on 4: OK", "verdict on 6: OK"));
    EXPECT_THAT(Said(rank, "ends"), ElementsAre("ends: OK"));
  }
}

TEST_F(LauncherPendingTest, AStopThatSavesWaitsForTheVerdicts) {
  steps_ = 1'000'000, most_pending_ = 1;
  saves_ = 0;  // in step 2 alone: these ranks do not agree on the step in which they stop
  LaunchCallbacks callbacks = PendingCallbacks();
  stop_at_ = 7;
  Once(
      &callbacks, [this] { return !waits_.empty() && AllSaid("saved"); },
      [this] {
        EXPECT_THAT(logs_, Not(Contains(HasSubstr("ends"))));
        verdicts_[2] = absl::OkStatus();
      });
  ASSERT_OK_AND_ASSIGN(const auto outcome, Run(Options("none", 0), callbacks));
  EXPECT_EQ(outcome.cause, v1::Exit::STOPPED);
  EXPECT_GE(outcome.step, 7);
  EXPECT_TRUE(AllSaid("verdict on 2: OK"));
  EXPECT_TRUE(AllSaid("ends: OK"));
}

// Neither at the limit nor at the end.
TEST_F(LauncherPendingTest, AStopThatDiscardsWaitsForNoVerdict) {
  steps_ = 1'000'000, most_pending_ = 1;
  stop_saves_ = false;
  LaunchOptions options = Options("none", 0);
  options.discard_grace = absl::Hours(1);
  LaunchCallbacks callbacks = PendingCallbacks();
  Once(
      &callbacks, [this] { return !waits_.empty(); }, [this] { stop_.Request(/*save=*/false); });
  ASSERT_OK_AND_ASSIGN(const auto outcome, Run(options, callbacks));
  EXPECT_EQ(outcome.cause, v1::Exit::STOPPED);
  EXPECT_TRUE(AllSaid("discarded"));
  EXPECT_TRUE(AllSaid("ends: CANCELLED"));
  EXPECT_THAT(logs_, Not(Contains(HasSubstr("verdict"))));
}

// Who has failed has offered something before: whoever decides hears of all of it.
TEST_F(LauncherPendingTest, WhatIsPendingWhenARankDiesIsAskedFor) {
  steps_ = 1'000'000, most_pending_ = 4, saves_ = 1;
  const auto outcome = Run(Options("die", 1), PendingCallbacks());
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(asked_, ElementsAre(1, 2));
  EXPECT_THAT(waits_, IsEmpty());
}

}  // namespace
}  // namespace legoai::launch

#include "worker/launch/pending_commits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "absl/strings/str_cat.h"

namespace legoai::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class PendingCommitsTest : public ::testing::Test {
 protected:
  PendingCommits::Decide Decide() {
    return [this](int64_t step, const std::vector<std::string>& digests) -> std::optional<absl::Status> {
      asked_.push_back(step);
      EXPECT_THAT(digests, ElementsAre(absl::StrCat("digest of ", step)));
      const auto known = verdicts_.find(step);
      return known == verdicts_.end() ? std::nullopt : std::optional(known->second);
    };
  }
  static void Add(PendingCommits& pending, int64_t step) { pending.Add(step, {absl::StrCat("digest of ", step)}); }
  static std::vector<std::string> Texts(const std::vector<PendingCommits::Verdict>& verdicts) {
    std::vector<std::string> texts;
    for (const auto& verdict : verdicts) texts.push_back(absl::StrCat(verdict.step, " ", verdict.status.ToString()));
    return texts;
  }

  std::vector<int64_t> asked_;
  std::map<int64_t, absl::Status> verdicts_;
};

TEST_F(PendingCommitsTest, RanksWaitForTheOldestOnceMoreArePendingThanMay) {
  PendingCommits pending(2, Decide());
  EXPECT_FALSE(pending.WaitsFor());
  for (const int64_t step : {10, 20}) {
    Add(pending, step);
    EXPECT_THAT(Texts(pending.Ask()), IsEmpty());
    EXPECT_FALSE(pending.WaitsFor()) << step;
  }
  Add(pending, 30);
  EXPECT_EQ(pending.WaitsFor(), 10);
  verdicts_[10] = absl::OkStatus();
  EXPECT_THAT(Texts(pending.Ask()), ElementsAre("10 OK"));
  EXPECT_FALSE(pending.WaitsFor());
  Add(pending, 40);
  EXPECT_EQ(pending.WaitsFor(), 20);
}

TEST_F(PendingCommitsTest, WhereNoneMayBePendingEachIsWaitedFor) {
  PendingCommits pending(0, Decide());
  Add(pending, 10);
  EXPECT_EQ(pending.WaitsFor(), 10);
  verdicts_[10] = absl::AbortedError("no");
  EXPECT_THAT(Texts(pending.Ask()), ElementsAre("10 ABORTED: no"));
  EXPECT_FALSE(pending.WaitsFor());
}

TEST_F(PendingCommitsTest, WithoutAnybodyToAskAllAreCommittedAtOnce) {
  PendingCommits pending(0, nullptr);
  Add(pending, 10);
  EXPECT_THAT(Texts(pending.Ask()), ElementsAre("10 OK"));
  EXPECT_THAT(Texts(pending.Ask()), IsEmpty());
}

// A denial of the first one is no denial of the others.
TEST_F(PendingCommitsTest, AllAreAskedInOrderAndAnsweredInOrder) {
  PendingCommits pending(4, Decide());
  for (const int64_t step : {10, 20, 30}) Add(pending, step);
  verdicts_[20] = absl::OkStatus();
  EXPECT_THAT(Texts(pending.Ask()), IsEmpty()) << "not before that of step 10";
  EXPECT_THAT(asked_, ElementsAre(10, 20, 30));
  verdicts_.clear();
  verdicts_[10] = absl::AbortedError("no");
  EXPECT_THAT(Texts(pending.Ask()), ElementsAre("10 ABORTED: no", "20 OK"));
  EXPECT_THAT(asked_, ElementsAre(10, 20, 30, 10, 30)) << "an answer is taken once";
}

// Whatever comes when: each verdict once, in order, and the ranks wait exactly while more are pending than may.
TEST_F(PendingCommitsTest, RandomAnswers) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    verdicts_.clear();
    const int64_t most = random() % 4;
    PendingCommits pending(most, Decide());
    int64_t added = 0, passed = 0;
    while (passed < 20) {
      if (added < 20 && !pending.WaitsFor() && random() % 2 == 0) Add(pending, ++added);
      if (added > 0 && random() % 3 == 0) verdicts_[1 + random() % added] = absl::OkStatus();
      for (const auto& verdict : pending.Ask()) {
        ASSERT_EQ(verdict.step, ++passed);
        ASSERT_TRUE(verdicts_.count(verdict.step));
      }
      ASSERT_LE(added - passed, most + 1);
      ASSERT_EQ(pending.WaitsFor().has_value(), added - passed > most);
      if (pending.WaitsFor()) {
        ASSERT_EQ(pending.WaitsFor(), passed + 1);
      }
    }
  }
}

}  // namespace
}  // namespace legoai::launch

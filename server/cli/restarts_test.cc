#include "server/cli/restarts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace legoai::cli {
namespace {

using ::testing::ElementsAre;

std::vector<double> Pauses(Restarts restarts, const std::vector<std::optional<int64_t>>& checkpoints) {
  std::vector<double> seconds;
  for (const auto& checkpoint : checkpoints) seconds.push_back(absl::ToDoubleSeconds(restarts.Take(checkpoint)));
  return seconds;
}

TEST(Restarts, PausesGrowToAMinuteWhileNothingNewIsSaved) {
  EXPECT_THAT(Pauses(Restarts(9, absl::Seconds(300)), std::vector<std::optional<int64_t>>(9)),
              ElementsAre(1, 2, 4, 8, 16, 32, 60, 60, 60));
  EXPECT_THAT(Pauses(Restarts(9, absl::Seconds(300)), std::vector<std::optional<int64_t>>(9, 40)),
              ElementsAre(1, 2, 4, 8, 16, 32, 60, 60, 60));
}

TEST(Restarts, ANewCheckpointMakesThePauseShortAgain) {
  EXPECT_THAT(Pauses(Restarts(9, absl::Seconds(300)), {std::nullopt, std::nullopt, 4, 4, 4, 8, 8}),
              ElementsAre(1, 2, 1, 2, 4, 1, 2));
  // An older one: the latest was damaged.
  EXPECT_THAT(Pauses(Restarts(9, absl::Seconds(300)), {8, 4, std::nullopt}), ElementsAre(1, 2, 4));
}

TEST(Restarts, NoPauseIsLongerThanHalfTheTimeThatHostsWaitForEachOther) {
  EXPECT_THAT(Pauses(Restarts(5, absl::Seconds(10)), std::vector<std::optional<int64_t>>(5)), ElementsAre(1, 2, 4, 5, 5));
  EXPECT_THAT(Pauses(Restarts(2, absl::Seconds(1)), std::vector<std::optional<int64_t>>(2)), ElementsAre(0.5, 0.5));
}

TEST(Restarts, EachIsTakenOnce) {
  Restarts restarts(2, absl::Seconds(300));
  EXPECT_EQ(restarts.left(), 2);
  restarts.Take(std::nullopt);
  restarts.Take(4);
  EXPECT_EQ(restarts.left(), 0);
}

}  // namespace
}  // namespace legoai::cli

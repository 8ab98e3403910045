#include "server/cli/pace.h"

#include <gtest/gtest.h>

namespace legoai::cli {
namespace {

absl::Time At(double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

TEST(Pace, IsTheMeanOfTheStepsThatWereSeen) {
  Pace pace;
  EXPECT_EQ(pace.Observe(100, 0.25, At(7)), 0.25);
  EXPECT_EQ(pace.Observe(100, 0.5, At(8)), 0.5) << "no step has passed yet";
  EXPECT_DOUBLE_EQ(pace.Observe(110, 9, At(12)), 0.5);
  EXPECT_DOUBLE_EQ(pace.Observe(120, 0.01, At(17)), 0.5) << "one quick step changes little";
}

TEST(Pace, BeginsAnewWithAnotherAttempt) {
  Pace pace;
  pace.Observe(10, 1, At(0));
  EXPECT_DOUBLE_EQ(pace.Observe(20, 1, At(20)), 2);
  EXPECT_EQ(pace.Observe(15, 0.5, At(500)), 0.5);
  EXPECT_DOUBLE_EQ(pace.Observe(17, 9, At(501)), 0.5);
  pace.Forget();
  EXPECT_EQ(pace.Observe(18, 3, At(900)), 3);
}

}  // namespace
}  // namespace legoai::cli

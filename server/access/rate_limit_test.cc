#include "server/access/rate_limit.h"

#include <gtest/gtest.h>

#include <string>

namespace legoai::access {
namespace {

class RateLimitTest : public ::testing::Test {
 protected:
  RateLimit Make(double per_second, double burst) {
    return RateLimit(per_second, burst, [this] { return now_; });
  }
  static int TakeAll(RateLimit& limit, const std::string& caller, int tries) {
    int taken = 0;
    for (int i = 0; i < tries; ++i) taken += limit.Take(caller);
    return taken;
  }
  void Pass(double seconds) {
    now_ += std::chrono::duration_cast<RateLimit::Clock::duration>(std::chrono::duration<double>(seconds));
  }

  RateLimit::Clock::time_point now_{std::chrono::hours(1)};
};

TEST_F(RateLimitTest, ABurstThenSoManyASecond) {
  RateLimit limit = Make(10, 5);
  EXPECT_EQ(TakeAll(limit, "a", 100), 5);
  for (int second = 0; second < 20; ++second) {
    int taken = 0;
    for (int i = 0; i < 50; ++i) {
      Pass(0.02);
      taken += limit.Take("a");
    }
    EXPECT_NEAR(taken, 10, 1);
  }
  Pass(1000);
  EXPECT_EQ(TakeAll(limit, "a", 100), 5);
}

TEST_F(RateLimitTest, CallersDoNotTakeFromEachOther) {
  RateLimit limit = Make(1, 3);
  EXPECT_EQ(TakeAll(limit, "a", 100), 3);
  EXPECT_EQ(TakeAll(limit, "b", 100), 3);
}

TEST_F(RateLimitTest, WhoHasNotCalledForAWhileIsForgotten) {
  RateLimit limit = Make(1, 3);
  for (int i = 0; i < 1000; ++i) limit.Take(std::to_string(i));
  EXPECT_EQ(limit.callers(), 1000u);
  Pass(11);
  limit.Take("a");
  EXPECT_EQ(limit.callers(), 1u);
}

TEST_F(RateLimitTest, StrangersWithoutEndDoNotTakeMemoryWithoutEnd) {
  RateLimit limit = Make(0.001, 1);
  for (int i = 0; i < 150'000; ++i) limit.Take(std::to_string(i));
  EXPECT_LE(limit.callers(), 100'001u);
  EXPECT_FALSE(limit.Take("one more"));
}

TEST_F(RateLimitTest, NoneIsNoLimit) {
  RateLimit limit = Make(0, 0);
  EXPECT_EQ(TakeAll(limit, "a", 10'000), 10'000);
  EXPECT_EQ(limit.callers(), 0u);
}

}  // namespace
}  // namespace legoai::access

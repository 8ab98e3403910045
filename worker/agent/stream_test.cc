#include "worker/agent/stream.h"

#include <gtest/gtest.h>

#include <set>

namespace legoai::agent {
namespace {

TEST(BackoffTest, GrowsToItsLimitAndBeginsAnew) {
  Backoff backoff(absl::Milliseconds(100), absl::Seconds(5), 1);
  absl::Duration limit = absl::Milliseconds(100);
  for (int i = 0; i < 20; ++i) {
    const absl::Duration wait = backoff.Next();
    EXPECT_GE(wait, limit / 2) << i;
    EXPECT_LE(wait, limit) << i;
    limit = std::min(absl::Seconds(5), 2 * limit);
  }
  EXPECT_EQ(limit, absl::Seconds(5));
  backoff.Reset();
  EXPECT_LE(backoff.Next(), absl::Milliseconds(100));
}

TEST(BackoffTest, AgentsDoNotComeBackTogether) {
  std::set<absl::Duration> waits;
  for (uint64_t seed = 0; seed < 1000; ++seed) waits.insert(Backoff(absl::Seconds(1), absl::Seconds(5), seed).Next());
  EXPECT_GT(waits.size(), 990u);
}

}  // namespace
}  // namespace legoai::agent

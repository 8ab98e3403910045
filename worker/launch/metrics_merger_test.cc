#include "worker/launch/metrics_merger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace legoai::launch {
namespace {

using ::testing::ElementsAre;

v1::StepMetrics Report(int64_t rank, int64_t step, int64_t peak, double exposed = 0) {
  v1::StepMetrics metrics;
  metrics.set_step(step);
  metrics.set_peak_memory_bytes(peak);
  metrics.set_loss(static_cast<double>(rank));
  v1::RankMetrics& row = *metrics.add_ranks();
  row.set_rank(rank);
  row.set_peak_memory_bytes(peak);
  row.set_exposed_communication_seconds(exposed);
  return metrics;
}

std::vector<int64_t> RanksOf(const v1::StepMetrics& metrics) {
  std::vector<int64_t> ranks;
  for (const auto& row : metrics.ranks()) ranks.push_back(row.rank());
  return ranks;
}

TEST(MetricsMerger, RankZerosReportWithTheLargestPeakAndARowOfEach) {
  MetricsMerger merger(3);
  EXPECT_FALSE(merger.Add(2, Report(2, 5, 30)));
  EXPECT_FALSE(merger.Add(0, Report(0, 5, 10)));
  EXPECT_FALSE(merger.Add(0, Report(0, 6, 11))) << "of the next step, before rank 1's of this one";
  const auto merged = merger.Add(1, Report(1, 5, 20));
  ASSERT_TRUE(merged);
  EXPECT_EQ(merged->step(), 5);
  EXPECT_EQ(merged->loss(), 0);
  EXPECT_EQ(merged->peak_memory_bytes(), 30);
  EXPECT_THAT(RanksOf(*merged), ElementsAre(0, 1, 2));
  EXPECT_EQ(merged->ranks(2).peak_memory_bytes(), 30);
  EXPECT_THAT(merger.peak_memory_bytes(), ElementsAre(11, 20, 30));
}

// `exposed` of a step of a second.
v1::StepMetrics Communicates(int64_t rank, int64_t step, double exposed) {
  v1::StepMetrics metrics = Report(rank, step, 1, exposed);
  metrics.mutable_ranks(0)->set_step_seconds(1);
  metrics.mutable_ranks(0)->add_collectives();
  return metrics;
}

TEST(MetricsMerger, ExposedIsTheMeanOfTheRanksAndNothingWhereNoneCommunicates) {
  MetricsMerger merger(2);
  merger.Add(0, Report(0, 1, 1, 0.2));
  EXPECT_FALSE(merger.Add(1, Report(1, 1, 1, 0.2))->has_exposed_communication_share());
  merger.Add(0, Communicates(0, 2, 0.2));
  EXPECT_DOUBLE_EQ(merger.Add(1, Communicates(1, 2, 0.4))->exposed_communication_share(), 0.3);
  merger.Add(0, Communicates(0, 3, 0.2));
  v1::StepMetrics unmeasured = Report(1, 3, 1);
  unmeasured.clear_ranks();
  const auto merged = merger.Add(1, unmeasured);
  EXPECT_THAT(RanksOf(*merged), ElementsAre(0)) << "a rank whose step was not measured has no row";
  EXPECT_DOUBLE_EQ(merged->exposed_communication_share(), 0.2);
}

// Those that have no row wait most.
TEST(MetricsMerger, ExposedIsOfAllRanksOfALargeJob) {
  constexpr int64_t kWorld = 100;
  MetricsMerger merger(kWorld);
  std::optional<v1::StepMetrics> merged;
  double sum = 0;
  for (int64_t rank = 0; rank < kWorld; ++rank) {
    const double exposed = 0.002 * static_cast<double>(rank);
    sum += exposed;
    merged = merger.Add(rank, Communicates(rank, 1, exposed));
  }
  ASSERT_TRUE(merged);
  ASSERT_EQ(merged->ranks_size(), kMostRankRows);
  double kept = 0;
  for (const v1::RankMetrics& row : merged->ranks()) kept += row.exposed_communication_seconds();
  EXPECT_LT(kept / kMostRankRows, 0.07);
  EXPECT_NEAR(merged->exposed_communication_share(), sum / kWorld, 1e-12);  // 0.099
}

TEST(MetricsMerger, InTheEndWhatSomeHaveReported) {
  MetricsMerger merger(2);
  merger.Add(0, Report(0, 7, 10));
  merger.Add(1, Report(1, 8, 10));
  const auto rest = merger.Rest();
  ASSERT_EQ(rest.size(), 1u) << "without rank 0's there is no report";
  EXPECT_EQ(rest[0].step(), 7);
  EXPECT_THAT(RanksOf(rest[0]), ElementsAre(0));
  EXPECT_TRUE(merger.Rest().empty());
}

TEST(MetricsMerger, OfALargeJobTheFirstAndThoseThatWaitLeast) {
  constexpr int64_t kWorld = 100;
  MetricsMerger merger(kWorld);
  std::optional<v1::StepMetrics> merged;
  for (int64_t rank = 0; rank < kWorld; ++rank) {
    const double exposed = rank == 0 ? 0.9 : rank % 2 == 0 ? 0.1 : 0.5;
    merged = merger.Add(rank, Report(rank, 1, 1, exposed));
  }
  ASSERT_TRUE(merged);
  ASSERT_EQ(merged->ranks_size(), kMostRankRows);
  std::vector<int64_t> expected;  // all even ones, and the first 14 odd ones
  for (int64_t rank = 0; rank < kWorld; ++rank) {
    if (rank % 2 == 0 || rank < 28) expected.push_back(rank);
  }
  EXPECT_EQ(RanksOf(*merged), expected);
}

}  // namespace
}  // namespace legoai::launch

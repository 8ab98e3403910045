#include "core/schedule/timeline.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace legoai::parallel {
namespace {

Timeline Of(v1::PipelineSchedule kind, int64_t ranks, int64_t chunks, int64_t microbatches) {
  return TimelineOf(MakeSchedule(kind, ranks, chunks, microbatches).value());
}

// The published shares: (p - 1) / (v m + p - 1), which is (p - 1) / (m + p - 1) with one chunk a rank.
TEST(Timeline, BubblesAreThePublishedOnes) {
  for (const int64_t ranks : {1, 2, 4, 8}) {
    for (const int64_t rounds : {1, 2, 4}) {
      const int64_t m = rounds * ranks;
      const auto share = [&](int64_t locals) { return static_cast<double>(ranks - 1) / (locals * m + ranks - 1); };
      const std::string at = absl::StrCat(ranks, " ranks, ", m, " microbatches");
      EXPECT_DOUBLE_EQ(Of(v1::GPIPE, ranks, ranks, m).bubble_share, share(1)) << at;
      EXPECT_DOUBLE_EQ(Of(v1::ONE_F_ONE_B, ranks, ranks, m).bubble_share, share(1)) << at;
      for (int64_t locals = 2; ranks > 1 && locals <= 4; ++locals) {
        EXPECT_DOUBLE_EQ(Of(v1::INTERLEAVED_1F1B, ranks, locals * ranks, m).bubble_share, share(locals)) << at;
        EXPECT_DOUBLE_EQ(Of(v1::LOOPED_BFS, ranks, locals * ranks, m).bubble_share, share(locals)) << at;
      }
    }
  }
}

// With forward and both gradients equal: the bubble of ZB-H1 is (p - 1) (F + B - W) = p - 1 beside 3 (p - 1) of 1F1B, and each
// rank keeps p microbatches (Qi et al. 2024, table 1); in a V only the way down the ranks is left, and 2 p halves are kept, one
// more by DualPipeV.
TEST(Timeline, ZeroBubblesAreThePublishedOnes) {
  for (const int64_t p : {2, 3, 4, 8}) {
    for (const int64_t m : {2 * p, 3 * p, 4 * p + 1}) {
      const std::string at = absl::StrCat(p, " ranks, ", m, " microbatches");
      const Timeline h1 = Of(v1::INTERLEAVED_ZERO_BUBBLE, p, p, m);
      EXPECT_EQ(h1.length, 3 * m + p - 1) << at;
      EXPECT_EQ(h1.in_flight, std::vector<int64_t>(p, p)) << at;
      const Timeline zbv = Of(v1::ZBV_ZERO_BUBBLE, p, 2 * p, m), dual = Of(v1::DUALPIPE_V, p, 2 * p, m);
      EXPECT_EQ(zbv.length, 6 * m + p - 1) << at;
      EXPECT_EQ(zbv.in_flight, std::vector<int64_t>(p, 2 * p)) << at;
      EXPECT_EQ(dual.length, 6 * m + p - 1) << at;
      EXPECT_EQ(dual.in_flight, std::vector<int64_t>(p, 2 * p + 1)) << at;
    }
  }
}

TEST(Timeline, InFlightIsWhatTheScheduleSays) {
  for (const auto kind : {v1::GPIPE, v1::ONE_F_ONE_B, v1::INTERLEAVED_1F1B, v1::LOOPED_BFS}) {
    const int64_t ranks = 4, chunks = Loops(kind) ? 12 : 4, microbatches = 10;
    const Timeline timeline = Of(kind, ranks, chunks, microbatches);
    for (int64_t rank = 0; rank < ranks; ++rank)
      EXPECT_EQ(timeline.in_flight[rank], MostInFlight(kind, ranks, chunks, microbatches, rank)) << kind << " rank " << rank;
  }
}

TEST(Timeline, IsDrawnAsText) {
  EXPECT_EQ(TimelineText(Of(v1::ONE_F_ONE_B, 2, 2, 3)),
            "rank 0  F0 F1 .  .  B0    F2 B1    .  B2\n"
            "rank 1  .  F0 B0    F1 B1    F2 B2    .  .\n");
  EXPECT_EQ(TimelineText(Of(v1::LOOPED_BFS, 2, 4, 2)),
            "rank 0  0F0 0F1 2F0 2F1 .   .   .   2B0     2B1     0B0     0B1\n"
            "rank 1  .   1F0 1F1 3F0 3F1 3B0     3B1     1B0     1B1     .   .\n");
  EXPECT_EQ(TimelineText(Of(v1::INTERLEAVED_ZERO_BUBBLE, 2, 2, 3)),
            "rank 0  F0 F1 .  I0 W0 F2 I1 W1 I2 W2\n"
            "rank 1  .  F0 I0 F1 I1 W0 F2 I2 W1 W2\n");
}

}  // namespace
}  // namespace legoai::parallel

#include "core/schedule/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace legoai::parallel {
namespace {

using Kind = Action::Kind;

TEST(Schedule, LiteralCases) {
  const Schedule gpipe = *MakeSchedule(v1::GPIPE, 2, 3);
  EXPECT_EQ(Print(gpipe[0]), "F0 F1 F2 B0 B1 B2");
  EXPECT_EQ(Print(gpipe[1]), "F0 F1 F2 B0 B1 B2");
  const Schedule one = *MakeSchedule(v1::ONE_F_ONE_B, 3, 4);
  EXPECT_EQ(Print(one[0]), "F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(Print(one[1]), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(Print(one[2]), "F0 B0 F1 B1 F2 B2 F3 B3");
  EXPECT_EQ(Print((*MakeSchedule(v1::ONE_F_ONE_B, 4, 2))[0]), "F0 F1 B0 B1");
}

TEST(Schedule, OneStageIsGradientAccumulation) {
  for (v1::PipelineSchedule kind : {v1::GPIPE, v1::ONE_F_ONE_B}) {
    EXPECT_EQ(Print((*MakeSchedule(kind, 1, 3))[0]), "F0 B0 F1 B1 F2 B2");
  }
}

// The most microbatches of which a rank holds activations.
int64_t MostInFlight(const std::vector<Action>& actions) {
  int64_t now = 0, most = 0;
  for (const Action& action : actions) most = std::max(most, now += action.kind == Kind::kForward ? 1 : -1);
  return most;
}

TEST(Schedule, PropertiesOfManySizes) {
  for (int64_t stages = 1; stages <= 9; ++stages) {
    for (int64_t microbatches = 1; microbatches <= 20; ++microbatches) {
      SCOPED_TRACE(testing::Message() << stages << " stages, " << microbatches << " microbatches");
      const Schedule gpipe = *MakeSchedule(v1::GPIPE, stages, microbatches);
      const Schedule one = *MakeSchedule(v1::ONE_F_ONE_B, stages, microbatches);
      ASSERT_EQ(gpipe.size(), stages);
      EXPECT_TRUE(CheckSchedule(gpipe, microbatches).ok()) << CheckSchedule(gpipe, microbatches);
      EXPECT_TRUE(CheckSchedule(one, microbatches).ok()) << CheckSchedule(one, microbatches);
      for (int64_t rank = 0; rank < stages; ++rank) {
        EXPECT_EQ(MostInFlight(one[rank]), std::min(microbatches, stages - rank));
        EXPECT_EQ(MostInFlight(gpipe[rank]), stages == 1 ? 1 : microbatches);
      }
    }
  }
}

// Time until all ranks are done when a forward takes 1 and a backward 2, by brute force over time: an oracle that shares no code
// with CheckSchedule.
int64_t Makespan(const Schedule& schedule) {
  const int64_t ranks = schedule.size();
  std::vector<size_t> next(ranks, 0);
  std::vector<int64_t> free_at(ranks, 0);
  std::vector<std::vector<std::pair<Action, int64_t>>> ends(ranks);
  const auto end_of = [&](int64_t rank, Kind kind, int64_t microbatch) -> int64_t {
    for (const auto& [action, end] : ends[rank]) {
      if (action.kind == kind && action.microbatch == microbatch) return end;
    }
    return INT64_MAX;
  };
  for (int64_t now = 0; now < 10000; ++now) {
    bool all = true;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      if (next[rank] == schedule[rank].size()) continue;
      all = false;
      const Action& action = schedule[rank][next[rank]];
      const bool forward = action.kind == Kind::kForward;
      const int64_t source = forward ? rank - 1 : rank + 1;
      const bool arrived = source < 0 || source == ranks || end_of(source, action.kind, action.microbatch) <= now;
      const bool own = forward || end_of(rank, Kind::kForward, action.microbatch) <= now;
      if (free_at[rank] > now || !arrived || !own) continue;
      free_at[rank] = now + (forward ? 1 : 2);
      ends[rank].push_back({action, free_at[rank]});
      ++next[rank];
    }
    if (all) return *std::max_element(free_at.begin(), free_at.end());
  }
  return -1;
}

TEST(Schedule, BothTakeTheIdealTimeAndTheBubble) {
  for (int64_t stages = 1; stages <= 6; ++stages) {
    for (int64_t microbatches = 1; microbatches <= 12; ++microbatches) {
      SCOPED_TRACE(testing::Message() << stages << " stages, " << microbatches << " microbatches");
      const int64_t ideal = 3 * (microbatches + stages - 1);
      EXPECT_EQ(Makespan(*MakeSchedule(v1::GPIPE, stages, microbatches)), ideal);
      EXPECT_EQ(Makespan(*MakeSchedule(v1::ONE_F_ONE_B, stages, microbatches)), ideal);
    }
  }
}

TEST(Schedule, ChecksFindWhatIsWrong) {
  const Schedule good = *MakeSchedule(v1::ONE_F_ONE_B, 2, 2);  // F0 F1 B0 B1 | F0 B0 F1 B1
  Schedule bad = good;
  bad[0].pop_back();
  EXPECT_FALSE(CheckSchedule(bad, 2).ok());
  bad = good;
  std::swap(bad[1][0], bad[1][1]);
  EXPECT_EQ(CheckSchedule(bad, 2).message(), "pipeline rank 1: B0 before its forward");
  bad = good;
  bad[0][0].microbatch = 1;
  EXPECT_FALSE(CheckSchedule(bad, 2).ok());
  bad = good;
  bad[1][0].stage = 0;
  EXPECT_FALSE(CheckSchedule(bad, 2).ok());
  // Rank 0 wants B0 before it gives F1; rank 1 wants F1 before it gives B0.
  bad = good;
  std::swap(bad[0][1], bad[0][2]);
  std::swap(bad[1][1], bad[1][2]);
  EXPECT_EQ(CheckSchedule(bad, 2).message(), "pipeline ranks wait for each other: rank 0 at B0, rank 1 at F1");
}

TEST(Schedule, RefusesWhatIsNotKnown) {
  EXPECT_EQ(MakeSchedule(v1::PIPELINE_SCHEDULE_UNSPECIFIED, 2, 2).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeSchedule(v1::GPIPE, 0, 2).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeSchedule(v1::GPIPE, 2, 0).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace legoai::parallel

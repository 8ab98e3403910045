#include "core/schedule/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace legoai::parallel {
namespace {

using Kind = Action::Kind;

constexpr v1::PipelineSchedule kAll[] = {
    v1::GPIPE,           v1::ONE_F_ONE_B, v1::INTERLEAVED_1F1B, v1::LOOPED_BFS, v1::INTERLEAVED_ZERO_BUBBLE,
    v1::ZBV_ZERO_BUBBLE, v1::DUALPIPE_V};

TEST(Schedule, LiteralCases) {
  const Schedule gpipe = *MakeSchedule(v1::GPIPE, 2, 2, 3);
  EXPECT_EQ(Print(gpipe.ranks[0]), "F0 F1 F2 B0 B1 B2");
  EXPECT_EQ(Print(gpipe.ranks[1]), "F0 F1 F2 B0 B1 B2");
  const Schedule one = *MakeSchedule(v1::ONE_F_ONE_B, 3, 3, 4);
  EXPECT_EQ(Print(one.ranks[0]), "F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(Print(one.ranks[1]), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(Print(one.ranks[2]), "F0 B0 F1 B1 F2 B2 F3 B3");
  EXPECT_EQ(Print(MakeSchedule(v1::ONE_F_ONE_B, 4, 4, 2)->ranks[0]), "F0 F1 B0 B1");
}

// Narayanan et al. 2021, figure 4: the first rank of two with two chunks each starts with 2 x (2 - 1) + 2 forwards.
TEST(Schedule, LiteralCasesOfSeveralChunks) {
  const Schedule interleaved = *MakeSchedule(v1::INTERLEAVED_1F1B, 2, 4, 4);
  EXPECT_EQ(Print(interleaved.ranks[0]), "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3");
  EXPECT_EQ(Print(interleaved.ranks[1]), "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3");
  const Schedule looped = *MakeSchedule(v1::LOOPED_BFS, 2, 4, 2);
  EXPECT_EQ(Print(looped.ranks[1]), "1F0 1F1 3F0 3F1 3B0 3B1 1B0 1B1");
}

// Five microbatches on two ranks: a round of three, then one of two.
TEST(Schedule, RoundsMayBeUneven) {
  const Schedule uneven = *MakeSchedule(v1::INTERLEAVED_1F1B, 2, 4, 5);
  EXPECT_EQ(Print(MakeForwardSchedule({2, 4}, 5)->ranks[0]), "0F0 0F1 0F2 2F0 2F1 2F2 0F3 0F4 2F3 2F4");
  EXPECT_TRUE(CheckSchedule(uneven, 5).ok()) << CheckSchedule(uneven, 5);
}

TEST(Schedule, OneStageIsGradientAccumulation) {
  for (const v1::PipelineSchedule kind : kAll) {
    EXPECT_EQ(Print(MakeSchedule(kind, 1, 1, 3)->ranks[0]), "F0 B0 F1 B1 F2 B2");
  }
}

// The most forwards of which a rank holds activations.
int64_t CountedInFlight(const std::vector<Action>& actions) {
  int64_t now = 0, most = 0;
  for (const Action& action : actions) {
    if (action.kind != Kind::kWeightGradient) most = std::max(most, now += action.kind == Kind::kForward ? 1 : -1);
  }
  return most;
}

TEST(Schedule, PropertiesOfManySizes) {
  for (int64_t ranks = 1; ranks <= 9; ++ranks) {
    for (int64_t microbatches = 1; microbatches <= 20; ++microbatches) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, " << microbatches << " microbatches");
      const Schedule gpipe = *MakeSchedule(v1::GPIPE, ranks, ranks, microbatches);
      const Schedule one = *MakeSchedule(v1::ONE_F_ONE_B, ranks, ranks, microbatches);
      ASSERT_EQ(gpipe.ranks.size(), ranks);
      EXPECT_TRUE(CheckSchedule(gpipe, microbatches).ok()) << CheckSchedule(gpipe, microbatches);
      EXPECT_TRUE(CheckSchedule(one, microbatches).ok()) << CheckSchedule(one, microbatches);
      for (int64_t rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(CountedInFlight(one.ranks[rank]), std::min(microbatches, ranks - rank));
        EXPECT_EQ(CountedInFlight(gpipe.ranks[rank]), ranks == 1 ? 1 : microbatches);
        EXPECT_EQ(MostInFlight(v1::GPIPE, ranks, ranks, microbatches, rank), CountedInFlight(gpipe.ranks[rank]));
        EXPECT_EQ(MostInFlight(v1::ONE_F_ONE_B, ranks, ranks, microbatches, rank), CountedInFlight(one.ranks[rank]));
      }
    }
  }
}

TEST(Schedule, PropertiesOfSeveralChunks) {
  for (const v1::PipelineSchedule kind : {v1::INTERLEAVED_1F1B, v1::LOOPED_BFS}) {
    for (int64_t ranks = 2; ranks <= 9; ++ranks) {
      for (int64_t chunks = 2 * ranks; chunks <= 5 * ranks; chunks += ranks) {
        for (int64_t microbatches = 1; microbatches <= 20; ++microbatches) {
          SCOPED_TRACE(testing::Message() << kind << ": " << ranks << " ranks, " << chunks << " chunks, " << microbatches);
          const Schedule schedule = *MakeSchedule(kind, ranks, chunks, microbatches);
          EXPECT_TRUE(CheckSchedule(schedule, microbatches).ok()) << CheckSchedule(schedule, microbatches);
          for (int64_t rank = 0; rank < ranks; ++rank) {
            EXPECT_EQ(MostInFlight(kind, ranks, chunks, microbatches, rank), CountedInFlight(schedule.ranks[rank]));
          }
        }
      }
    }
  }
}

// Qi et al. 2024, figure 3: the second rank's weight gradients lag behind by one microbatch.
TEST(Schedule, LiteralCasesOfZeroBubbles) {
  const Schedule h1 = *MakeSchedule(v1::INTERLEAVED_ZERO_BUBBLE, 2, 2, 3);
  EXPECT_EQ(Print(h1.ranks[0]), "F0 F1 I0 W0 F2 I1 W1 I2 W2");
  EXPECT_EQ(Print(h1.ranks[1]), "F0 I0 F1 I1 W0 F2 I2 W1 W2");
  const Schedule zbv = *MakeSchedule(v1::ZBV_ZERO_BUBBLE, 2, 4, 3);
  EXPECT_EQ(Print(zbv.ranks[1]), "1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1I1 2I2 1I2 1W1 2W2 1W2");
  // DeepSeek-AI 2025: the first backwards and the last ones in parts, those between whole.
  const Schedule dual = *MakeSchedule(v1::DUALPIPE_V, 2, 4, 4);
  EXPECT_EQ(Print(dual.ranks[0]), "0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3 3B1 3F2 0B0 3B2 3F3 0B1 3B3 0I2 0W2 0I3 0W3");
}

TEST(Placement, ChunksGoRoundOrLieInAV) {
  const Placement round{3, 9, false}, v{3, 9, true};
  const std::vector<int64_t> in_round = {0, 1, 2, 0, 1, 2, 0, 1, 2}, in_v = {0, 1, 2, 2, 1, 0, 0, 1, 2};
  for (int64_t chunk = 0; chunk < 9; ++chunk) {
    EXPECT_EQ(round.RankOf(chunk), in_round[chunk]);
    EXPECT_EQ(v.RankOf(chunk), in_v[chunk]);
    for (const Placement& placement : {round, v}) {
      EXPECT_EQ(placement.ChunkOf(placement.RankOf(chunk), placement.LocalOf(chunk)), chunk);
      EXPECT_EQ(placement.Talk(chunk, chunk + 1), chunk < 8 && !placement.Meet(chunk, chunk + 1));
    }
    EXPECT_FALSE(round.Meet(chunk, chunk + 1));
    EXPECT_EQ(v.Meet(chunk, chunk + 1), chunk == 2 || chunk == 5);
  }
  EXPECT_FALSE(v.Talk(0, -1));
  EXPECT_FALSE(v.Talk(8, 9));
  EXPECT_EQ(PlacementOf(v1::ZBV_ZERO_BUBBLE, 4, 8).RankOfLast(), 0);
  EXPECT_EQ(PlacementOf(v1::INTERLEAVED_1F1B, 4, 8).RankOfLast(), 3);
}

// Every order of forwards and backwards by chunk is sound wherever chunks lie.
TEST(Schedule, BreadthFirstIsSoundInEveryPlacement) {
  for (int64_t ranks = 1; ranks <= 5; ++ranks) {
    for (int64_t locals = 1; locals <= (ranks == 1 ? 1 : 3); ++locals) {
      for (const bool in_v : {false, true}) {
        for (const bool parts : {false, true}) {
          const Schedule schedule = BreadthFirst({ranks, ranks * locals, in_v}, 4, parts);
          EXPECT_TRUE(CheckSchedule(schedule, 4).ok()) << CheckSchedule(schedule, 4);
          EXPECT_EQ(PartsBackward(schedule), parts && ranks > 1);
          EXPECT_EQ(MicrobatchesOf(schedule), 4);
        }
      }
    }
  }
}

// Time until all ranks are done when a forward and each gradient of a backward takes 1, by brute force over time: an oracle that
// shares no code with CheckSchedule.
int64_t Makespan(const Schedule& schedule) {
  const int64_t ranks = schedule.ranks.size();
  std::vector<size_t> next(ranks, 0);
  std::vector<int64_t> free_at(ranks, 0);
  std::map<std::tuple<Kind, int64_t, int64_t>, int64_t> ends;
  const auto done = [&](Kind kind, int64_t chunk, int64_t microbatch, int64_t now) {
    const auto found = ends.find({kind, chunk, microbatch});
    return found != ends.end() && found->second <= now;
  };
  for (int64_t now = 0; now < 10000; ++now) {
    bool all = true;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      if (next[rank] == schedule.ranks[rank].size()) continue;
      all = false;
      const Action& action = schedule.ranks[rank][next[rank]];
      const bool forward = action.kind == Kind::kForward, weights = action.kind == Kind::kWeightGradient;
      const int64_t source = forward ? action.chunk - 1 : action.chunk + 1;
      const Kind made = forward ? Kind::kForward : Kind::kInputGradient;  // what the source sends
      const bool is_end = source < 0 || source == schedule.placement.chunks;
      const bool arrived = weights || is_end || done(made, source, action.microbatch, now);
      const Kind before = weights ? Kind::kInputGradient : Kind::kForward;
      const bool own = forward || done(before, action.chunk, action.microbatch, now);
      if (free_at[rank] > now || !arrived || !own) continue;
      free_at[rank] = now + (action.kind == Kind::kBackward ? 2 : 1);
      ends[{weights ? Kind::kWeightGradient : made, action.chunk, action.microbatch}] = free_at[rank];
      ++next[rank];
    }
    if (all) return *std::max_element(free_at.begin(), free_at.end());
  }
  return -1;
}

int64_t LastCompletion(const Schedule& schedule) {
  int64_t last = 0;
  for (const auto& times : CompletionTimes(schedule)) last = std::max(last, times.back());
  return last;
}

// Every chunk's microbatches in order, whatever the sizes; the last weight gradients may lag behind.
TEST(Schedule, PropertiesOfZeroBubbles) {
  for (int64_t ranks = 2; ranks <= 9; ++ranks) {
    for (int64_t microbatches = 1; microbatches <= 40; ++microbatches) {
      for (const v1::PipelineSchedule kind : {v1::INTERLEAVED_ZERO_BUBBLE, v1::ZBV_ZERO_BUBBLE, v1::DUALPIPE_V}) {
        if (microbatches < LeastMicrobatches(kind, ranks)) continue;
        for (int64_t chunks = ranks; chunks <= 4 * ranks; chunks += ranks) {
          if (!PlacesChunks(kind, ranks, chunks)) continue;
          SCOPED_TRACE(testing::Message() << kind << ": " << ranks << " ranks, " << chunks << " chunks, " << microbatches);
          const Schedule schedule = *MakeSchedule(kind, ranks, chunks, microbatches);
          ASSERT_TRUE(CheckSchedule(schedule, microbatches).ok()) << CheckSchedule(schedule, microbatches);
          EXPECT_EQ(LastCompletion(schedule), Makespan(schedule));
          for (int64_t rank = 0; rank < ranks; ++rank) {
            EXPECT_EQ(MostInFlight(kind, ranks, chunks, microbatches, rank), CountedInFlight(schedule.ranks[rank]));
          }
        }
      }
    }
  }
}

TEST(Schedule, BothTakeTheIdealTimeAndTheBubble) {
  for (int64_t stages = 1; stages <= 6; ++stages) {
    for (int64_t microbatches = 1; microbatches <= 12; ++microbatches) {
      SCOPED_TRACE(testing::Message() << stages << " stages, " << microbatches << " microbatches");
      const int64_t ideal = 3 * (microbatches + stages - 1);
      for (const v1::PipelineSchedule kind : {v1::GPIPE, v1::ONE_F_ONE_B}) {
        const Schedule schedule = *MakeSchedule(kind, stages, stages, microbatches);
        EXPECT_EQ(Makespan(schedule), ideal);
        EXPECT_EQ(LastCompletion(schedule), ideal);
      }
    }
  }
}

// The bubble is (p - 1) / v of a microbatch's whole work on a rank, where microbatches make whole rounds (Narayanan et al. 2021).
TEST(Schedule, SeveralChunksDivideTheBubble) {
  for (int64_t ranks = 2; ranks <= 5; ++ranks) {
    for (int64_t locals = 2; locals <= 4; ++locals) {
      for (int64_t rounds = 1; rounds <= 4; ++rounds) {
        const int64_t microbatches = rounds * ranks;
        SCOPED_TRACE(testing::Message() << ranks << " ranks, " << locals << " chunks each, " << microbatches << " microbatches");
        for (const v1::PipelineSchedule kind : {v1::INTERLEAVED_1F1B, v1::LOOPED_BFS}) {
          const Schedule schedule = *MakeSchedule(kind, ranks, ranks * locals, microbatches);
          EXPECT_EQ(Makespan(schedule), 3 * (locals * microbatches + ranks - 1)) << kind;
          EXPECT_EQ(LastCompletion(schedule), Makespan(schedule));
        }
      }
    }
  }
}

TEST(Schedule, ChecksFindWhatIsWrong) {
  const Schedule good = *MakeSchedule(v1::ONE_F_ONE_B, 2, 2, 2);  // F0 F1 B0 B1 | F0 B0 F1 B1
  Schedule bad = good;
  bad.ranks[0].pop_back();
  EXPECT_FALSE(CheckSchedule(bad, 2).ok());
  bad = good;
  std::swap(bad.ranks[1][0], bad.ranks[1][1]);
  EXPECT_EQ(CheckSchedule(bad, 2).message(), "pipeline rank 1: B0 before its forward");
  bad = good;
  bad.ranks[0][0].microbatch = 1;
  EXPECT_FALSE(CheckSchedule(bad, 2).ok());
  bad = *MakeSchedule(v1::INTERLEAVED_ZERO_BUBBLE, 2, 2, 2);  // F0 F1 I0 W0 I1 W1 | F0 I0 F1 I1 W0 W1
  std::swap(bad.ranks[0][2], bad.ranks[0][3]);
  EXPECT_EQ(CheckSchedule(bad, 2).message(), "pipeline rank 0: W0 before the gradient of its input");
  std::swap(bad.ranks[0][2], bad.ranks[0][3]);
  bad.ranks[0].pop_back();
  EXPECT_EQ(CheckSchedule(bad, 2).message(), "pipeline rank 0: 2 forwards and 1 backwards of chunk 0 for 2 microbatches");
  bad = good;
  bad.ranks[1][0].chunk = 0;
  EXPECT_FALSE(CheckSchedule(bad, 2).ok());
  // Rank 0 wants B0 before it gives F1; rank 1 wants F1 before it gives B0.
  bad = good;
  std::swap(bad.ranks[0][1], bad.ranks[0][2]);
  std::swap(bad.ranks[1][1], bad.ranks[1][2]);
  EXPECT_EQ(CheckSchedule(bad, 2).message(), "pipeline ranks wait for each other: rank 0 at B0, rank 1 at F1");
}

TEST(Schedule, RefusesWhatIsNotKnown) {
  const auto code = [](auto... counts) { return MakeSchedule(counts...).status().code(); };
  EXPECT_EQ(code(v1::PIPELINE_SCHEDULE_UNSPECIFIED, 2, 2, 2), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(v1::GPIPE, 0, 1, 2), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(v1::GPIPE, 2, 2, 0), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(v1::GPIPE, 2, 4, 2), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(v1::INTERLEAVED_1F1B, 2, 2, 2), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(v1::INTERLEAVED_1F1B, 2, 5, 2), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(v1::ZBV_ZERO_BUBBLE, 2, 6, 2), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(v1::DUALPIPE_V, 2, 4, 3), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace legoai::parallel

#include "core/schedule/lowering.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/trace/stream_ids.h"

namespace legoai::parallel {
namespace {

using Kind = LoweredAction::Kind;
using Ranks = std::vector<std::vector<LoweredAction>>;

Ranks LowerAll(v1::PipelineSchedule kind, int64_t stages, int64_t microbatches) {
  const Schedule schedule = *MakeSchedule(kind, stages, microbatches);
  Ranks ranks;
  for (int64_t rank = 0; rank < stages; ++rank) ranks.push_back(Lower(schedule, rank));
  return ranks;
}

std::vector<int32_t> Messages(const std::vector<LoweredAction>& actions, Kind kind, Link link) {
  std::vector<int32_t> microbatches;
  for (const LoweredAction& action : actions) {
    if (action.kind == kind && action.link == link) microbatches.push_back(action.microbatch);
  }
  return microbatches;
}

TEST(Lowering, OneStageHasNoMessages) { EXPECT_EQ(Print(LowerAll(v1::ONE_F_ONE_B, 1, 2)[0]), "F0\nB0\nF1\nB1!"); }

TEST(Lowering, LiteralCase) {
  const Ranks ranks = LowerAll(v1::ONE_F_ONE_B, 2, 2);
  EXPECT_EQ(Print(ranks[0]),
            "F0\nsend_next 0\nrecv_next 0\nF1\nwait send_next 0\nsend_next 1\n"
            "wait recv_next 0\nrecv_next 1\nB0\nwait recv_next 1\nB1!\nwait send_next 1");
  EXPECT_EQ(Print(ranks[1]),
            "recv_previous 0\nwait recv_previous 0\nF0\nrecv_previous 1\nB0\nsend_previous 0\n"
            "wait recv_previous 1\nF1\nB1!\nwait send_previous 0\nsend_previous 1\nwait send_previous 1");
}

TEST(Lowering, StreamsAreThoseOfTheMessages) {
  EXPECT_EQ(StreamOfLink(Link::kSendNext), comm::kSendNext);
  EXPECT_EQ(StreamOfLink(Link::kReceivePrevious), comm::kRecvPrevious);
  EXPECT_EQ(StreamOfLink(Link::kSendPrevious), comm::kSendPrevious);
  EXPECT_EQ(StreamOfLink(Link::kReceiveNext), comm::kRecvNext);
}

TEST(Lowering, LargePipelinesEnd) {
  for (v1::PipelineSchedule kind : {v1::GPIPE, v1::ONE_F_ONE_B}) {
    for (int64_t stages : {8, 13, 32}) {
      for (int64_t microbatches : {int64_t{1}, stages - 1, stages, 4 * stages + 1}) {
        EXPECT_TRUE(CheckLowered(LowerAll(kind, stages, microbatches)).ok()) << kind << " " << stages << " " << microbatches;
      }
    }
  }
}

TEST(Lowering, PropertiesOfManySizes) {
  for (v1::PipelineSchedule kind : {v1::GPIPE, v1::ONE_F_ONE_B}) {
    for (int64_t stages = 1; stages <= 7; ++stages) {
      for (int64_t microbatches = 1; microbatches <= 16; ++microbatches) {
        SCOPED_TRACE(testing::Message() << kind << ": " << stages << " stages, " << microbatches << " microbatches");
        const Schedule schedule = *MakeSchedule(kind, stages, microbatches);
        const Ranks ranks = LowerAll(kind, stages, microbatches);
        EXPECT_TRUE(CheckLowered(ranks).ok()) << CheckLowered(ranks);
        for (int64_t rank = 0; rank < stages; ++rank) {
          std::vector<Action> computed;
          int64_t reducing = 0;
          for (const LoweredAction& action : ranks[rank]) {
            if (action.kind != Kind::kForward && action.kind != Kind::kBackward) continue;
            computed.push_back({action.kind == Kind::kForward ? Action::Kind::kForward : Action::Kind::kBackward, action.stage,
                                action.microbatch});
            if (!action.reduce_gradients) continue;
            ++reducing;
            EXPECT_EQ(action.kind, Kind::kBackward);
            EXPECT_EQ(action.microbatch, microbatches - 1);
          }
          EXPECT_EQ(computed, schedule[rank]);
          EXPECT_EQ(reducing, 1);
          if (rank + 1 == stages) continue;
          EXPECT_EQ(Messages(ranks[rank], Kind::kPostSend, Link::kSendNext),
                    Messages(ranks[rank + 1], Kind::kPostReceive, Link::kReceivePrevious));
          EXPECT_EQ(Messages(ranks[rank + 1], Kind::kPostSend, Link::kSendPrevious),
                    Messages(ranks[rank], Kind::kPostReceive, Link::kReceiveNext));
          EXPECT_EQ(Messages(ranks[rank], Kind::kPostSend, Link::kSendNext).size(), microbatches);
        }
      }
    }
  }
}

// A wait refers to the last message posted on its link, so one event per link is enough; and receives overlap: between the
// posting of a receive and its wait there is a computation, except for the first of a rank.
TEST(Lowering, OneMessagePerLinkUnderWayAndReceivesOverlap) {
  for (v1::PipelineSchedule kind : {v1::GPIPE, v1::ONE_F_ONE_B}) {
    for (const auto& actions : LowerAll(kind, 4, 9)) {
      int64_t computed = 0;
      int64_t under_way[kLinkCount] = {0, 0, 0, 0}, posted_at[kLinkCount] = {0, 0, 0, 0};
      for (const LoweredAction& action : actions) {
        const int link = static_cast<int>(action.link);
        if (action.kind == Kind::kForward || action.kind == Kind::kBackward) {
          ++computed;
        } else if (action.kind == Kind::kWait) {
          EXPECT_EQ(--under_way[link], 0);
          if (action.link == Link::kReceivePrevious || action.link == Link::kReceiveNext) {
            EXPECT_EQ(computed - posted_at[link], computed == 0 ? 0 : 1);
          }
        } else {
          EXPECT_EQ(++under_way[link], 1);
          posted_at[link] = computed;
        }
      }
      for (int64_t left : under_way) EXPECT_EQ(left, 0);
    }
  }
}

TEST(Lowering, EvaluationRunsForwardsOnly) {
  for (int64_t stages = 1; stages <= 5; ++stages) {
    const Schedule schedule = *MakeForwardSchedule(stages, 6);
    Ranks ranks;
    for (int64_t rank = 0; rank < stages; ++rank) ranks.push_back(Lower(schedule, rank));
    EXPECT_TRUE(CheckLowered(ranks).ok()) << CheckLowered(ranks);
    for (const auto& actions : ranks) {
      for (const LoweredAction& action : actions) {
        EXPECT_NE(action.kind, Kind::kBackward);
        EXPECT_FALSE(action.reduce_gradients);
      }
    }
  }
  EXPECT_EQ(MakeForwardSchedule(2, 0).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Lowering, CheckFindsEveryDroppedAction) {
  const Ranks good = LowerAll(v1::ONE_F_ONE_B, 3, 4);
  ASSERT_TRUE(CheckLowered(good).ok());
  for (size_t rank = 0; rank < good.size(); ++rank) {
    for (size_t i = 0; i < good[rank].size(); ++i) {
      Ranks bad = good;
      bad[rank].erase(bad[rank].begin() + i);
      const LoweredAction& dropped = good[rank][i];
      const bool send = dropped.link == Link::kSendNext || dropped.link == Link::kSendPrevious;
      if (dropped.kind == Kind::kWait && send) continue;  // memory rests on these, not order
      EXPECT_FALSE(CheckLowered(bad).ok()) << "rank " << rank << " without " << Print(dropped);
    }
  }
}

// Each rank has what the other needs, behind something that the other cannot give yet.
TEST(Lowering, CheckFindsRanksThatBlockEachOther) {
  Ranks bad = LowerAll(v1::ONE_F_ONE_B, 2, 2);
  auto& first = bad[0];
  const auto receive =
      std::find_if(first.begin(), first.end(), [](const LoweredAction& a) { return a.link == Link::kReceiveNext; });
  const auto wait = std::find_if(first.begin(), first.end(),
                                 [](const LoweredAction& a) { return a.kind == Kind::kWait && a.link == Link::kReceiveNext; });
  const LoweredAction moved[] = {*receive, *wait};
  first.erase(wait);
  first.erase(receive);
  first.insert(first.begin(), {moved[0], moved[1]});  // waits for a gradient before it gives an activation
  const absl::Status status = CheckLowered(bad);
  EXPECT_EQ(status.message(), "pipeline does not end: rank 0 at \"wait recv_next 0\"; rank 1 at \"wait recv_previous 0\"");
}

TEST(Lowering, CheckFindsMessagesInTheWrongOrder) {
  Ranks bad = LowerAll(v1::GPIPE, 2, 2);
  for (LoweredAction& action : bad[1]) {
    if (action.link == Link::kReceivePrevious) action.microbatch = 1 - action.microbatch;
  }
  EXPECT_NE(CheckLowered(bad).message().find("meets microbatch"), std::string::npos) << CheckLowered(bad);
}

}  // namespace
}  // namespace legoai::parallel

#include "core/schedule/lowering.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "core/trace/annotation.h"

namespace legoai::parallel {
namespace {

using Kind = LoweredAction::Kind;

struct Size {
  v1::PipelineSchedule kind = v1::ONE_F_ONE_B;
  int64_t ranks = 1, chunks = 1, microbatches = 1;

  friend std::ostream& operator<<(std::ostream& out, const Size& s) {
    return out << v1::PipelineSchedule_Name(s.kind) << ": " << s.ranks << " ranks, " << s.chunks << " chunks, " << s.microbatches
               << " microbatches";
  }
};

LoweredSchedule LowerAll(const Size& size) { return Lower(*MakeSchedule(size.kind, size.ranks, size.chunks, size.microbatches)); }

// Every schedule on up to `most_ranks` ranks with up to `most_microbatches` microbatches and `most_locals` chunks a rank.
std::vector<Size> Sizes(int64_t most_ranks, int64_t most_microbatches, int64_t most_locals) {
  std::vector<Size> sizes;
  for (int64_t ranks = 1; ranks <= most_ranks; ++ranks) {
    for (int64_t m = 1; m <= most_microbatches; ++m) {
      for (const v1::PipelineSchedule kind : {v1::GPIPE, v1::ONE_F_ONE_B}) sizes.push_back({kind, ranks, ranks, m});
      for (int64_t locals = 1; ranks > 1 && locals <= most_locals; ++locals) {
        for (const v1::PipelineSchedule kind :
             {v1::INTERLEAVED_1F1B, v1::LOOPED_BFS, v1::INTERLEAVED_ZERO_BUBBLE, v1::ZBV_ZERO_BUBBLE, v1::DUALPIPE_V}) {
          const bool fits = PlacesChunks(kind, ranks, locals * ranks) && m >= LeastMicrobatches(kind, ranks);
          if (fits) sizes.push_back({kind, ranks, locals * ranks, m});
        }
      }
    }
  }
  return sizes;
}

TEST(Lowering, OneStageHasNoMessages) { EXPECT_EQ(Print(LowerAll({v1::ONE_F_ONE_B, 1, 1, 2}).ranks[0]), "F0\nB0\nF1\nB1!"); }

TEST(Lowering, LiteralCase) {
  const LoweredSchedule lowered = LowerAll({v1::ONE_F_ONE_B, 2, 2, 2});
  EXPECT_EQ(Print(lowered.ranks[0]),
            "F0\nsend_next 0\nrecv_next 0\nF1\nwait send_next 0\nsend_next 1\n"
            "wait recv_next 0\nrecv_next 1\nB0\nwait recv_next 1\nB1!\nwait send_next 1");
  EXPECT_EQ(Print(lowered.ranks[1]),
            "recv_previous 0\nwait recv_previous 0\nrecv_previous 1\nF0\nB0\nsend_previous 0\n"
            "wait recv_previous 1\nF1\nB1!\nwait send_previous 0\nsend_previous 1\nwait send_previous 1");
}

// The gradient goes to the rank before as soon as it is there; the weights' waits for nothing.
TEST(Lowering, LiteralCaseOfZeroBubble) {
  EXPECT_EQ(Print(LowerAll({v1::INTERLEAVED_ZERO_BUBBLE, 2, 2, 2}).ranks[1]),
            "recv_previous 0\nwait recv_previous 0\nrecv_previous 1\nF0\nI0\nsend_previous 0\n"
            "wait recv_previous 1\nF1\nI1!\nwait send_previous 0\nsend_previous 1\nW0\nW1!\nwait send_previous 1");
}

// Of two ranks the next one is the previous one, too.
TEST(Lowering, LiteralCaseOfSeveralChunks) {
  EXPECT_EQ(Print(LowerAll({v1::LOOPED_BFS, 2, 4, 1}).ranks[0]),
            "0F0\nsend_next 0:0\nrecv_previous 2:0\nwait recv_previous 2:0\nrecv_next 2:0\n2F0\nwait send_next 0:0\n"
            "send_next 2:0\nwait recv_next 2:0\n2B0!\nsend_previous 2:0\nrecv_next 0:0\nwait recv_next 0:0\n0B0!\n"
            "wait send_next 2:0\nwait send_previous 2:0");
}

// The last rank hands over from the way down to the way up; both of its neighbours are the rank before.
TEST(Lowering, LiteralCaseOfAV) {
  const LoweredSchedule lowered = LowerAll({v1::ZBV_ZERO_BUBBLE, 2, 4, 1});
  EXPECT_EQ(Print(lowered.ranks[0]),
            "0F0\nsend_next 0:0\nrecv_previous 3:0\nwait recv_previous 3:0\n3F0\n3I0!\nsend_previous 3:0\nrecv_next 0:0\n3W0!\n"
            "wait recv_next 0:0\n0I0!\n0W0!\nwait send_next 0:0\nwait send_previous 3:0");
  EXPECT_EQ(Print(lowered.ranks[1]),
            "recv_previous 1:0\nwait recv_previous 1:0\n1F0\nrecv_next 2:0\n2F0\nsend_next 2:0\nwait recv_next 2:0\n2I0!\n"
            "2W0!\n1I0!\nsend_previous 1:0\n1W0!\nwait send_next 2:0\nwait send_previous 1:0");
}

TEST(Lowering, StreamsAreThoseOfTheMessages) {
  EXPECT_EQ(StreamOfLink(Link::kSendNext), comm::kSendNext);
  EXPECT_EQ(StreamOfLink(Link::kReceivePrevious), comm::kRecvPrevious);
  EXPECT_EQ(StreamOfLink(Link::kSendPrevious), comm::kSendPrevious);
  EXPECT_EQ(StreamOfLink(Link::kReceiveNext), comm::kRecvNext);
}

TEST(Lowering, LargePipelinesInAVEnd) {
  for (const int64_t ranks : {8, 13, 32}) {
    for (const int64_t microbatches : {int64_t{1}, ranks, 2 * ranks, 4 * ranks + 1}) {
      for (const v1::PipelineSchedule kind : {v1::ZBV_ZERO_BUBBLE, v1::DUALPIPE_V}) {
        if (microbatches < LeastMicrobatches(kind, ranks)) continue;
        const Size size{kind, ranks, 2 * ranks, microbatches};
        EXPECT_TRUE(CheckLowered(LowerAll(size)).ok()) << size << ": " << CheckLowered(LowerAll(size));
      }
    }
  }
}

TEST(Lowering, LargePipelinesEnd) {
  for (const int64_t ranks : {8, 13, 32}) {
    for (const int64_t microbatches : {int64_t{1}, ranks - 1, ranks, 4 * ranks + 1}) {
      for (const Size& size :
           {Size{v1::GPIPE, ranks, ranks, microbatches}, Size{v1::ONE_F_ONE_B, ranks, ranks, microbatches},
            Size{v1::INTERLEAVED_1F1B, ranks, 4 * ranks, microbatches}, Size{v1::LOOPED_BFS, ranks, 3 * ranks, microbatches},
            Size{v1::INTERLEAVED_ZERO_BUBBLE, ranks, ranks, microbatches},
            Size{v1::INTERLEAVED_ZERO_BUBBLE, ranks, 3 * ranks, microbatches}}) {
        const absl::Status status = CheckLowered(LowerAll(size));
        EXPECT_TRUE(status.ok()) << size << ": " << status;
      }
    }
  }
}

// What is received on a channel, in the order in which it is posted; or what is sent.
std::vector<std::pair<int32_t, int32_t>> Messages(const std::vector<LoweredAction>& actions, Kind kind, Link link,
                                                  int32_t shift) {
  std::vector<std::pair<int32_t, int32_t>> messages;
  for (const LoweredAction& action : actions) {
    if (action.kind == kind && action.link == link) messages.emplace_back(action.chunk + shift, action.microbatch);
  }
  return messages;
}

std::optional<Action::Kind> Computes(Kind kind) {
  switch (kind) {
    case Kind::kForward: return Action::Kind::kForward;
    case Kind::kBackward: return Action::Kind::kBackward;
    case Kind::kInputGradient: return Action::Kind::kInputGradient;
    case Kind::kWeightGradient: return Action::Kind::kWeightGradient;
    default: return std::nullopt;
  }
}

TEST(Lowering, PropertiesOfManySizes) {
  for (const Size& size : Sizes(8, 17, 4)) {
    SCOPED_TRACE(testing::Message() << size);
    const Schedule schedule = *MakeSchedule(size.kind, size.ranks, size.chunks, size.microbatches);
    const LoweredSchedule lowered = Lower(schedule);
    EXPECT_TRUE(CheckLowered(lowered).ok()) << CheckLowered(lowered);
    for (int64_t rank = 0; rank < size.ranks; ++rank) {
      std::vector<Action> computed;
      std::set<std::pair<Kind, int32_t>> reduced;
      for (const LoweredAction& action : lowered.ranks[rank]) {
        const auto kind = Computes(action.kind);
        if (!kind) continue;
        computed.push_back({*kind, action.chunk, action.microbatch});
        if (!action.reduce_gradients) continue;
        EXPECT_TRUE(reduced.emplace(action.kind, action.chunk).second);
        EXPECT_NE(action.kind, Kind::kForward);
        EXPECT_EQ(action.microbatch, size.microbatches - 1);
      }
      EXPECT_EQ(computed, schedule.ranks[rank]);
      const auto last = [&](const Action& a) {
        return a.kind != Action::Kind::kForward && a.microbatch + 1 == size.microbatches;
      };
      EXPECT_EQ(reduced.size(), std::count_if(schedule.ranks[rank].begin(), schedule.ranks[rank].end(), last));
      if (schedule.placement.in_v) continue;  // both neighbours are "next"
      const auto& next = lowered.ranks[(rank + 1) % size.ranks];
      EXPECT_EQ(Messages(lowered.ranks[rank], Kind::kPostSend, Link::kSendNext, 1),
                Messages(next, Kind::kPostReceive, Link::kReceivePrevious, 0));
      EXPECT_EQ(Messages(next, Kind::kPostSend, Link::kSendPrevious, -1),
                Messages(lowered.ranks[rank], Kind::kPostReceive, Link::kReceiveNext, 0));
    }
  }
}

// No message is made before its receive is posted, if all goes as in CompletionTimes; and a link has one send under way.
TEST(Lowering, ReceivesAreThereFirstAndSendsOneByOne) {
  for (const Size& size : Sizes(5, 9, 3)) {
    SCOPED_TRACE(testing::Message() << size);
    const Schedule schedule = *MakeSchedule(size.kind, size.ranks, size.chunks, size.microbatches);
    const auto times = CompletionTimes(schedule);
    std::map<std::tuple<bool, int32_t, int32_t>, int64_t> made;  // a forward or not
    for (int64_t rank = 0; rank < size.ranks; ++rank) {
      for (size_t i = 0; i < times[rank].size(); ++i) {
        const Action& action = schedule.ranks[rank][i];
        const bool forward = action.kind == Action::Kind::kForward;
        if (action.kind != Action::Kind::kWeightGradient) made[{forward, action.chunk, action.microbatch}] = times[rank][i];
      }
    }
    const LoweredSchedule lowered = Lower(schedule);
    for (int64_t rank = 0; rank < size.ranks; ++rank) {
      size_t computed = 0;
      int64_t sends[kLinkCount] = {0, 0, 0, 0};
      for (const LoweredAction& action : lowered.ranks[rank]) {
        const int link = static_cast<int>(action.link);
        const bool forward = action.link == Link::kReceivePrevious;
        if (Computes(action.kind)) ++computed;
        const bool send_is_through = action.kind == Kind::kWait && !forward && action.link != Link::kReceiveNext;
        if (action.kind == Kind::kPostSend) ++sends[link];
        if (send_is_through) --sends[link];
        EXPECT_TRUE(sends[link] == 0 || sends[link] == 1);
        if (action.kind != Kind::kPostReceive || computed == 0) continue;
        EXPECT_LE(times[rank][computed - 1], made.at({forward, action.chunk + (forward ? -1 : 1), action.microbatch}));
      }
      for (const int64_t left : sends) EXPECT_EQ(left, 0);
    }
  }
}

TEST(Lowering, EvaluationRunsForwardsOnly) {
  for (int64_t ranks = 1; ranks <= 5; ++ranks) {
    for (int64_t locals = 1; locals <= (ranks > 1 ? 3 : 1); ++locals) {
      for (const bool in_v : {false, true}) {
        const LoweredSchedule lowered = Lower(*MakeForwardSchedule({ranks, ranks * locals, in_v}, 6));
        EXPECT_TRUE(CheckLowered(lowered).ok()) << CheckLowered(lowered);
        for (const auto& actions : lowered.ranks) {
          for (const LoweredAction& action : actions) {
            EXPECT_NE(action.kind, Kind::kBackward);
            EXPECT_FALSE(action.reduce_gradients);
          }
        }
      }
    }
  }
  EXPECT_EQ(MakeForwardSchedule({2, 2}, 0).status().code(), absl::StatusCode::kInvalidArgument);
}

// The rule that does for one chunk a rank, not for several: each receive one action ahead, in the order of use.
LoweredSchedule OneAhead(LoweredSchedule lowered) {
  for (auto& actions : lowered.ranks) {
    std::vector<LoweredAction> receives;
    for (const LoweredAction& action : actions) {
      const bool wait =
          action.kind == Kind::kWait && (action.link == Link::kReceivePrevious || action.link == Link::kReceiveNext);
      if (wait) receives.push_back(action), receives.back().kind = Kind::kPostReceive;
    }
    std::erase_if(actions, [](const LoweredAction& action) { return action.kind == Kind::kPostReceive; });
    std::vector<LoweredAction> moved;
    size_t posted = 0, waited = 0;
    for (const LoweredAction& action : actions) {
      const bool wait =
          action.kind == Kind::kWait && (action.link == Link::kReceivePrevious || action.link == Link::kReceiveNext);
      if (wait && posted == waited) moved.push_back(receives[posted++]);
      moved.push_back(action);
      waited += wait;
      if (wait && posted < receives.size()) moved.push_back(receives[posted++]);
    }
    actions = moved;
  }
  return lowered;
}

TEST(Lowering, CheckRefusesReceivesInTheOrderOfUse) {
  for (const Size& size :
       {Size{v1::INTERLEAVED_1F1B, 2, 4, 4}, Size{v1::INTERLEAVED_1F1B, 4, 8, 8}, Size{v1::LOOPED_BFS, 3, 6, 4},
        Size{v1::ZBV_ZERO_BUBBLE, 4, 8, 8}, Size{v1::DUALPIPE_V, 4, 8, 8}}) {
    ASSERT_TRUE(CheckLowered(LowerAll(size)).ok()) << size;
    EXPECT_FALSE(CheckLowered(OneAhead(LowerAll(size))).ok()) << size;
  }
}

TEST(Lowering, CheckFindsEveryDroppedAction) {
  for (const Size& size :
       {Size{v1::ONE_F_ONE_B, 3, 3, 4}, Size{v1::INTERLEAVED_1F1B, 2, 4, 3}, Size{v1::INTERLEAVED_ZERO_BUBBLE, 2, 4, 3},
        Size{v1::ZBV_ZERO_BUBBLE, 3, 6, 4}, Size{v1::DUALPIPE_V, 2, 4, 4}}) {
    const LoweredSchedule good = LowerAll(size);
    ASSERT_TRUE(CheckLowered(good).ok());
    for (size_t rank = 0; rank < good.ranks.size(); ++rank) {
      for (size_t i = 0; i < good.ranks[rank].size(); ++i) {
        LoweredSchedule bad = good;
        bad.ranks[rank].erase(bad.ranks[rank].begin() + i);
        const LoweredAction& dropped = good.ranks[rank][i];
        const bool send = dropped.link == Link::kSendNext || dropped.link == Link::kSendPrevious;
        if (dropped.kind == Kind::kWait && send) continue;  // memory rests on these, not order
        EXPECT_FALSE(CheckLowered(bad).ok()) << size << ": rank " << rank << " without " << Print(dropped, true);
      }
    }
  }
}

// Each rank has what the other needs, behind something that the other cannot give yet.
TEST(Lowering, CheckFindsRanksThatBlockEachOther) {
  LoweredSchedule bad = LowerAll({v1::ONE_F_ONE_B, 2, 2, 2});
  auto& first = bad.ranks[0];
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
  LoweredSchedule bad = LowerAll({v1::GPIPE, 2, 2, 2});
  for (LoweredAction& action : bad.ranks[1]) {
    if (action.link == Link::kReceivePrevious) action.microbatch = 1 - action.microbatch;
  }
  EXPECT_NE(CheckLowered(bad).message().find("meets microbatch"), std::string::npos) << CheckLowered(bad);
}

}  // namespace
}  // namespace legoai::parallel

#include "core/flight/flight_analysis.h"

#include <gtest/gtest.h>

#include "core/flight/testing/flight_world.h"

namespace legoai::comm {
namespace {

using Ranks = std::vector<int64_t>;

Ranks Culprits(const v1::FlightAnalysis& analysis) { return {analysis.culprits().begin(), analysis.culprits().end()}; }

// Verdict, culprits and text.
std::string Told(const v1::FlightAnalysis& analysis) {
  std::string culprits;
  for (const int64_t rank : analysis.culprits()) culprits += (culprits.empty() ? "" : ",") + std::to_string(rank);
  return analysis.verdict() + ", " + culprits + ": " + analysis.text();
}

template <class Repeated>
Ranks ToRanks(const Repeated& ranks) {
  return {ranks.begin(), ranks.end()};
}

TEST(AnalyzeFlight, NothingIsFullyMatched) {
  const auto analysis = AnalyzeFlight({}, 0);
  EXPECT_EQ(Told(analysis), "fully_matched, : every collective was entered alike and nobody waits");
}

TEST(AnalyzeFlight, AFinishedRunIsFullyMatched) {
  FlightWorld world(3);
  const int64_t group = world.AddGroup("dp_shard", {0, 1, 2});
  for (int i = 0; i < 5; ++i) world.AddCollective(group, "all_gather");
  world.AddMessage(group, 0, 2);
  const auto analysis = AnalyzeFlight(world.Run(), 3);
  EXPECT_EQ(analysis.verdict(), "fully_matched");
  EXPECT_EQ(analysis.matched(), 5);
  EXPECT_EQ(analysis.findings_size(), 0);
}

TEST(AnalyzeFlight, NamesWhoHasNotEntered) {
  FlightWorld world(3);
  const int64_t group = world.AddGroup("dp_shard", {0, 1, 2});
  for (int i = 0; i < 17; ++i) world.AddCollective(group, "all_gather");
  world.Hang(1, 16);
  const auto analysis = AnalyzeFlight(world.Run(), 3);
  EXPECT_EQ(Told(analysis),
            "collective_state_mismatch, 1: rank 1 has not entered all_gather 17 of dp_shard, in which ranks 0,2 wait");
  EXPECT_EQ(analysis.matched(), 16);
  ASSERT_EQ(analysis.findings_size(), 1);
  EXPECT_EQ(analysis.findings(0).process_group(), "dp_shard");
  EXPECT_EQ(analysis.findings(0).sequence(), 17);
  EXPECT_EQ(analysis.findings(0).profiling_name(), "gloo:all_gather");
  EXPECT_EQ(ToRanks(analysis.findings(0).missing_ranks()), Ranks({1}));
  EXPECT_EQ(ToRanks(analysis.findings(0).culprits()), Ranks({1}));
}

// Ranks 0,1 and 2,3 are tensor parallel, 0,2 and 1,3 data parallel: 3 hangs, 2 waits for it, 0 waits for 2, 1 waits for 0.
TEST(AnalyzeFlight, FollowsWaitsThroughGroupsToTheRoot) {
  FlightWorld world(4);
  const int64_t tp0 = world.AddGroup("tp", {0, 1}), tp1 = world.AddGroup("tp", {2, 3}), dp0 = world.AddGroup("dp", {0, 2});
  world.AddCollective(tp1, "all_reduce");
  world.AddCollective(tp1, "all_reduce");
  world.AddCollective(dp0, "reduce_scatter");
  world.AddCollective(tp0, "all_reduce");
  world.Hang(3, 1);
  const auto analysis = AnalyzeFlight(world.Run(), 4);
  EXPECT_EQ(
      Told(analysis),
      "collective_state_mismatch, 3: rank 3 has not entered all_reduce 2 of tp, in which rank 2 waits; 3 ranks wait in all");
  ASSERT_EQ(analysis.findings_size(), 3);
  EXPECT_EQ(analysis.findings(0).culprits_size(), 1);
  for (int i : {1, 2}) {
    EXPECT_EQ(analysis.findings(i).culprits_size(), 0);
    EXPECT_EQ(analysis.findings(i).missing_ranks_size(), 1);
  }
}

TEST(AnalyzeFlight, FollowsMessagesToo) {
  FlightWorld world(3);
  const int64_t pp = world.AddGroup("pp", {0, 1, 2});
  for (int microbatch = 0; microbatch < 3; ++microbatch) {
    world.AddMessage(pp, 0, 1);
    world.AddMessage(pp, 1, 2);
  }
  world.Hang(0, 4);
  const auto analysis = AnalyzeFlight(world.Run(), 3);
  EXPECT_EQ(Told(analysis),
            "collective_state_mismatch, 0: rank 0 does not send message 5 of pp from rank 0 to rank 1, for which rank 1 waits; 2 "
            "ranks wait in all");
}

TEST(AnalyzeFlight, AReceiverThatDoesNotComeIsToBlame) {
  FlightWorld world(2);
  world.AddMessage(world.AddGroup("pp", {0, 1}), 0, 1);
  world.Hang(1, 0);
  const auto analysis = AnalyzeFlight(world.Run(), 2);
  EXPECT_EQ(
      Told(analysis),
      "collective_state_mismatch, 1: rank 1 does not receive message 1 of pp from rank 0 to rank 1, for which rank 0 waits");
}

TEST(AnalyzeFlight, WhoHasOnlyQueuedAnOperationHasNotEnteredIt) {
  FlightWorld world(4);
  const int64_t all = world.AddGroup("dp", {0, 1, 2, 3}), pair = world.AddGroup("tp", {2, 3});
  world.AddCollective(pair, "all_reduce");
  world.AddCollective(all, "all_gather");
  world.Hang(3, 0);
  const auto analysis = AnalyzeFlight(world.Run(INT64_MAX, /*ahead=*/1), 4);  // 2 has queued the all_gather
  EXPECT_EQ(Culprits(analysis), Ranks({3}));
  ASSERT_EQ(analysis.findings_size(), 2);
  EXPECT_EQ(analysis.findings(1).text(), "ranks 2,3 have not entered all_gather 1 of dp, in which ranks 0,1 wait");
}

TEST(AnalyzeFlight, WhereStartsAreNotRecordedQueuedIsEntered) {
  FlightWorld world = Collectives(3, 1);
  world.Hang(2, 0);
  auto dumps = world.Run();
  for (auto& dump : dumps) {
    for (auto& entry : *dump.mutable_entries()) {
      entry.set_state("scheduled");
      entry.clear_time_started_ns();
    }
  }
  const auto analysis = AnalyzeFlight(dumps, 3);
  EXPECT_EQ(Culprits(analysis), Ranks({2}));
  EXPECT_EQ(ToRanks(analysis.findings(0).missing_ranks()), Ranks({2}));
}

TEST(AnalyzeFlight, ARankWithoutADumpIsSuspectedWhereAllOthersHaveCome) {
  FlightWorld world = Collectives(3, 1);
  world.Hang(2, 0);
  auto dumps = world.Run();
  dumps.pop_back();
  const auto analysis = AnalyzeFlight(dumps, 3);
  EXPECT_EQ(analysis.verdict(), "undecided");
  EXPECT_EQ(Culprits(analysis), Ranks({2}));
  EXPECT_EQ(ToRanks(analysis.ranks_without_dump()), Ranks({2}));
  EXPECT_EQ(analysis.text(), "rank 2 has left no dump; ranks 0,1 wait in all_reduce 1 of dp, which all others have entered");
}

TEST(AnalyzeFlight, ARankWithoutADumpIsNotSuspectedWhereAnotherIsMissing) {
  FlightWorld world = Collectives(3, 1);
  world.Hang(1, 0);
  auto dumps = world.Run();
  dumps.pop_back();
  const auto analysis = AnalyzeFlight(dumps, 3);
  EXPECT_EQ(analysis.verdict(), "collective_state_mismatch");
  EXPECT_EQ(Culprits(analysis), Ranks({1}));
}

TEST(AnalyzeFlight, DumpsThatAreMissingAreTold) {
  FlightWorld world(3);
  world.AddCollective(world.AddGroup("dp", {0, 1}), "all_reduce");
  auto dumps = world.Run();
  dumps.pop_back();
  EXPECT_EQ(AnalyzeFlight(dumps, 3).text(),
            "as far as the dumps of 2 of 3 ranks tell, every collective was entered alike and nobody waits");
}

TEST(AnalyzeFlight, WhoEnteredSomethingElseIsBlamedOnRequestToo) {
  FlightWorld world = Collectives(3, 1);
  world.Alter(2, 0, [](v1::FlightEntry* entry) { entry->set_dtype("Half"); });
  auto dumps = world.Run();
  for (auto& dump : dumps) dump.set_reason("read");
  const auto analysis = AnalyzeFlight(dumps, 3);
  EXPECT_EQ(analysis.verdict(), "collective_dtype_mismatch");
  EXPECT_EQ(Culprits(analysis), Ranks({2}));
}

TEST(AnalyzeFlight, NobodyIsToBlameWhereAllAreInside) {
  FlightWorld world = Collectives(2, 1);
  auto dumps = world.Run();
  for (auto& dump : dumps) dump.mutable_entries(0)->set_state("started");
  const auto analysis = AnalyzeFlight(dumps, 2);
  EXPECT_EQ(Told(analysis), "fully_matched, : no rank is behind: all have entered what is under way (all_reduce 1 of dp)");
  EXPECT_EQ(analysis.matched(), 1);
}

// Rank 1 froze in the middle of what 0 is inside of too: nothing tells which of them it was. 2 waits behind.
TEST(AnalyzeFlight, WhatAllAreInsideOfAndOthersWaitBehindIsUndecided) {
  FlightWorld world(3);
  world.AddCollective(world.AddGroup("dp", {0, 1}), "all_reduce");
  world.AddCollective(world.AddGroup("tp", {0, 2}), "all_reduce");
  world.Hang(1, 0, {"started"});
  const auto analysis = AnalyzeFlight(world.Run(), 3);
  EXPECT_EQ(Told(analysis),
            "undecided, 0,1: ranks 0,1 have entered all_reduce 1 of dp, and none has completed it; one of them holds it up; 1 "
            "rank waits in all");
}

void SetCondition(v1::FlightDump* dump, const std::string& fault, const std::string& text) {
  dump->mutable_condition()->set_fault(fault);
  dump->mutable_condition()->set_text(text);
  dump->mutable_condition()->set_phase("train");
  dump->mutable_condition()->set_step(21);
}

constexpr char kStopped[] = "does not answer: the process is stopped (SIGSTOP)";

// Both were stuck in one ring of messages: the dumps say no more, but the launcher saw which process was stopped.
TEST(AnalyzeFlight, WhoWasStoppedInsideOfWhatAllAreInsideOfIsNamed) {
  FlightWorld world = Collectives(2, 3);
  auto dumps = world.Run();
  for (auto& dump : dumps) dump.mutable_entries(2)->set_state("started");
  SetCondition(&dumps[0], "consequence", "no message for 10 s");
  SetCondition(&dumps[1], "unresponsive", kStopped);
  const auto analysis = AnalyzeFlight(dumps, 2);
  EXPECT_EQ(Told(analysis),
            "collective_state_mismatch, 1: rank 1 has entered all_reduce 3 of dp and stands still in it; rank 0 waits there; "
            "rank 1 (train, step 21): does not answer: the process is stopped (SIGSTOP)");
  ASSERT_EQ(analysis.findings_size(), 1);
  EXPECT_EQ(analysis.findings(0).process_group(), "dp");
  EXPECT_EQ(analysis.findings(0).sequence(), 3);
  EXPECT_EQ(analysis.findings(0).profiling_name(), "gloo:all_reduce");
  EXPECT_EQ(ToRanks(analysis.findings(0).culprits()), Ranks({1}));
  EXPECT_EQ(analysis.matched(), 3);
}

TEST(AnalyzeFlight, OfThoseWhoHaveNotCompletedWhoWasStoppedIsToBlame) {
  FlightWorld world = Collectives(3, 1, "all_gather");
  auto dumps = world.Run();
  for (int rank : {0, 1}) dumps[rank].mutable_entries(0)->set_state("started");
  SetCondition(&dumps[1], "unresponsive", kStopped);
  const auto analysis = AnalyzeFlight(dumps, 3);
  EXPECT_EQ(Culprits(analysis), Ranks({1}));
  EXPECT_EQ(ToRanks(analysis.findings(0).culprits()), Ranks({1}));
}

// Rank 1 died; the others were asked at once, and rank 2 was still on its way to where 0 waits.
TEST(AnalyzeFlight, WhoIsMerelyOnItsWayIsNotBlamedBesideWhoFailed) {
  FlightWorld world = Collectives(3, 1);
  world.Hang(1, 0);
  world.Hang(2, 0);
  auto dumps = world.Run();
  EXPECT_EQ(Culprits(AnalyzeFlight(dumps, 3)), Ranks({1, 2}));
  SetCondition(&dumps[1], "failed", "the process was killed by signal 9 (Killed)");
  SetCondition(&dumps[2], "unresponsive", "does not answer: the process hangs");
  const auto analysis = AnalyzeFlight(dumps, 3);
  EXPECT_EQ(Culprits(analysis), Ranks({1}));
  EXPECT_EQ(ToRanks(analysis.findings(0).culprits()), Ranks({1}));
  EXPECT_EQ(ToRanks(analysis.findings(0).missing_ranks()), Ranks({1, 2}));
  EXPECT_EQ(
      analysis.text(),
      "ranks 1,2 have not entered all_reduce 1 of dp, in which rank 0 waits; rank 1 (train, step 21): the process was killed "
      "by signal 9 (Killed)");
}

// Rings of a run that trains, read one after another: ranks are at different points, and nobody has said that one hangs.
TEST(AnalyzeFlight, OfRanksThatWereReadOnRequestNobodyIsBlamedForBeingBehind) {
  FlightWorld world = Collectives(3, 3);
  world.Hang(1, 2);
  for (const char* reason : {"read", "request"}) {
    auto dumps = world.Run();
    for (auto& dump : dumps) dump.set_reason(reason);
    for (bool told : {false, true}) {
      if (told) SetCondition(&dumps[1], "none", "");
      const auto analysis = AnalyzeFlight(dumps, 3);
      EXPECT_EQ(analysis.verdict(), "undecided");
      EXPECT_EQ(Culprits(analysis), Ranks());
      ASSERT_EQ(analysis.findings_size(), 1);
      EXPECT_EQ(analysis.findings(0).verdict(), "undecided");
      EXPECT_EQ(ToRanks(analysis.findings(0).missing_ranks()), Ranks({1}));
      EXPECT_EQ(ToRanks(analysis.findings(0).culprits()), Ranks());
      EXPECT_EQ(
          analysis.text(),
          "rank 1 has not entered all_reduce 3 of dp, in which ranks 0,2 wait; nobody is to blame for that so far: ranks in "
          "order are at different points when they are read, and whoever hangs is named when comm.train_timeout_seconds are "
          "over");
    }
    SetCondition(&dumps[1], "unresponsive", kStopped);
    EXPECT_EQ(Culprits(AnalyzeFlight(dumps, 3)), Ranks({1}));
  }
}

// In a checkpoint, say: the others wait for it, but in no collective.
TEST(AnalyzeFlight, WhoWasStoppedWhereNobodyWaitsIsNamedWithWhatItWentThroughLast) {
  FlightWorld world = Collectives(2, 4, "all_gather");
  auto dumps = world.Run();
  SetCondition(&dumps[0], "none", "");
  SetCondition(&dumps[1], "unresponsive", kStopped);
  const auto analysis = AnalyzeFlight(dumps, 2);
  EXPECT_EQ(Told(analysis),
            "undecided, 1: rank 1 (train, step 21): does not answer: the process is stopped (SIGSTOP); nobody waits in a "
            "communication for that; its last was all_gather 4 of dp");
  EXPECT_EQ(analysis.findings_size(), 0);
}

// Rank 1 froze in the middle of two at once, with 0 and with 2, behind which 3 and 4 wait: it alone explains both.
TEST(AnalyzeFlight, OfSeveralSetsWhoIsInAllOfThemIsToBlame) {
  FlightWorld world(5);
  world.AddCollective(world.AddGroup("tp", {0, 1}), "all_reduce");
  world.AddCollective(world.AddGroup("dp", {1, 2}), "all_gather");
  world.AddCollective(world.AddGroup("dp", {0, 3}), "all_gather");
  world.AddCollective(world.AddGroup("tp", {2, 4}), "all_reduce");
  auto dumps = world.Run();
  for (int rank : {0, 1, 2}) dumps[rank].mutable_entries(0)->set_state("started");
  dumps[1].mutable_entries(1)->set_state("started");
  for (int rank : {0, 2}) dumps[rank].mutable_entries()->RemoveLast();
  for (int rank : {3, 4}) dumps[rank].mutable_entries(0)->set_state("started");
  const auto analysis = AnalyzeFlight(dumps, 5);
  EXPECT_EQ(Culprits(analysis), Ranks({1})) << analysis.DebugString();
  ASSERT_EQ(analysis.findings_size(), 4);
  for (int i : {0, 1}) EXPECT_EQ(ToRanks(analysis.findings(i).culprits()), Ranks({1}));
  for (int i : {2, 3}) EXPECT_EQ(analysis.findings(i).culprits_size(), 0);
}

// Two ranks left no dump; the one that is missing in both groups is to blame, the other one waits in one of them perhaps.
TEST(AnalyzeFlight, OfRanksWithoutADumpWhoIsMissingEverywhereIsToBlame) {
  FlightWorld world(4);
  world.AddCollective(world.AddGroup("dp", {0, 2, 3}), "all_reduce");
  world.AddCollective(world.AddGroup("tp", {1, 3}), "all_gather");
  world.Hang(3, 0);
  auto dumps = world.Run();
  dumps.resize(2);
  const auto analysis = AnalyzeFlight(dumps, 4);
  EXPECT_EQ(analysis.verdict(), "undecided");
  EXPECT_EQ(Culprits(analysis), Ranks({3})) << analysis.DebugString();
}

// Rank 1 had started a prefetch before it froze; 0 comes to that only after what it waits in: no circle, rank 1 is to blame.
TEST(AnalyzeFlight, WhatARankStartedAheadDoesNotHoldUpWhatComesBefore) {
  FlightWorld world(2);
  const int64_t dp = world.AddGroup("dp", {0, 1}), tp = world.AddGroup("tp", {0, 1});
  world.AddCollective(tp, "all_reduce");
  world.AddCollective(dp, "all_gather");
  auto dumps = world.Run();
  dumps[0].mutable_entries(0)->set_state("started");
  dumps[0].mutable_entries()->RemoveLast();
  dumps[1].mutable_entries(0)->set_state("scheduled");
  dumps[1].mutable_entries(1)->set_state("started");
  const auto analysis = AnalyzeFlight(dumps, 2);
  EXPECT_EQ(
      Told(analysis),
      "collective_state_mismatch, 1: rank 1 has not entered all_reduce 1 of tp, in which rank 0 waits; 2 ranks wait in all");
  EXPECT_EQ(analysis.findings_size(), 2);
}

TEST(AnalyzeFlight, WhoHasNotCompletedWhatOthersHave) {
  FlightWorld world = Collectives(2, 1);
  auto dumps = world.Run();
  dumps[1].mutable_entries(0)->set_state("started");
  const auto analysis = AnalyzeFlight(dumps, 2);
  EXPECT_EQ(analysis.verdict(), "collective_state_mismatch");
  EXPECT_EQ(Culprits(analysis), Ranks({1}));
  EXPECT_EQ(ToRanks(analysis.findings(0).culprits()), Ranks({1}));
  EXPECT_EQ(analysis.text(), "rank 1 has not completed all_reduce 1 of dp, which others have");
}

// As seen of a ring of four of which one was stopped in the middle: 3 got through, and waits for the others in the next.
TEST(AnalyzeFlight, OfThoseWhoHaveNotCompletedOneIsToBlame) {
  FlightWorld world = Collectives(4, 3, "all_gather");
  auto dumps = world.Run();
  for (auto& dump : dumps) {
    const bool through = dump.rank() == 3;
    dump.mutable_entries(0)->set_state(through ? "completed" : "started");
    dump.mutable_entries(1)->set_state("started");
    dump.mutable_entries(2)->set_state("started");
    if (!through) dump.mutable_entries()->RemoveLast();
  }
  const auto analysis = AnalyzeFlight(dumps, 4);
  EXPECT_EQ(Told(analysis),
            "collective_state_mismatch, 0,1,2: ranks 0-2 have not completed all_gather 1 of dp, which others have; one of them "
            "holds it up; 1 rank waits in all");
  ASSERT_EQ(analysis.findings_size(), 2);
  EXPECT_EQ(analysis.findings(1).culprits_size(), 0);
}

TEST(AnalyzeFlight, ACircleIsBlamedAsAWhole) {
  FlightWorld world(3);
  const int64_t a = world.AddGroup("a", {0, 1}), b = world.AddGroup("b", {0, 1}), c = world.AddGroup("c", {1, 2});
  world.AddCollective(a, "all_reduce");
  world.AddCollective(b, "all_reduce");
  world.AddCollective(c, "all_reduce");
  auto dumps = world.Run();
  for (auto& dump : dumps) dump.mutable_entries()->Clear();
  // Rank 0 enters a, rank 1 enters b, rank 2 enters c.
  auto enter = [&](int64_t rank, const std::string& name, int64_t group) {
    v1::FlightEntry* entry = dumps[rank].add_entries();
    entry->set_pg_id(group);
    entry->set_process_group(name);
    entry->set_collective_seq_id(1);
    entry->set_profiling_name("gloo:all_reduce");
    entry->set_state("started");
    entry->set_peer(-1);
  };
  enter(0, "a", a);
  enter(1, "b", b);
  enter(2, "c", c);
  const auto analysis = AnalyzeFlight(dumps, 3);
  EXPECT_EQ(Told(analysis),
            "collective_state_mismatch, 0,1: ranks 0,1 wait for one another: rank 1 has not entered all_reduce 1 of a, in which "
            "rank 0 waits");
  EXPECT_EQ(analysis.findings_size(), 3);
}

TEST(AnalyzeFlight, OfAMismatchWhatFollowsInItsGroupIsAConsequence) {
  FlightWorld world(3);
  const int64_t group = world.AddGroup("dp", {0, 1, 2});
  for (int i = 0; i < 4; ++i) world.AddCollective(group, i % 2 == 0 ? "all_gather" : "reduce_scatter");
  auto dumps = world.Run();
  auto* entries = dumps[1].mutable_entries();
  entries->DeleteSubrange(0, 1);  // it left the first one out
  for (int i = 0; i < 3; ++i) entries->Mutable(i)->set_collective_seq_id(i + 1);
  const auto analysis = AnalyzeFlight(dumps, 3);
  EXPECT_EQ(analysis.verdict(), "collective_type_mismatch");
  EXPECT_EQ(Culprits(analysis), Ranks({1}));
  EXPECT_EQ(analysis.findings_size(), 1);
  EXPECT_EQ(analysis.text(), "at all_gather 1 of dp: rank 1 is in reduce_scatter, the others all_gather");
}

// PyTorch launches some messages as one: their own entries stay "scheduled", one named "coalesced" after them has the state.
TEST(AnalyzeFlight, OperationsLaunchedAsOneHaveTheStateOfTheLaunch) {
  for (const char* state : {"completed", "started"}) {
    FlightWorld world(2);
    const int64_t group = world.AddGroup("pp", {0, 1});
    world.AddMessage(group, 0, 1);
    world.AddMessage(group, 1, 0);
    auto dumps = world.Run();
    for (auto& dump : dumps) {
      for (auto& entry : *dump.mutable_entries()) {
        entry.set_p2p_seq_id(1);
        entry.set_state("scheduled");
      }
      v1::FlightEntry launch = dump.entries(1);
      launch.set_record_id(2);
      launch.set_profiling_name("nccl:coalesced");
      launch.set_state(&dump == &dumps[0] ? state : "started");
      *dump.add_entries() = launch;
    }
    const auto analysis = AnalyzeFlight(dumps, 2);
    EXPECT_EQ(analysis.verdict(), "fully_matched") << analysis.DebugString();
    dumps[1].mutable_entries()->Clear();
    EXPECT_EQ(Culprits(AnalyzeFlight(dumps, 2)), state == std::string("started") ? Ranks({1}) : Ranks()) << state;
  }
}

TEST(AnalyzeFlight, GroupsOfWhichNoDumpTellsTheRanksAreLeftAlone) {
  FlightWorld world = Collectives(2, 1);
  world.Hang(1, 0);
  auto dumps = world.Run();
  for (auto& dump : dumps) dump.clear_groups();
  EXPECT_EQ(AnalyzeFlight(dumps, 2).culprits_size(), 0);
}

}  // namespace
}  // namespace legoai::comm

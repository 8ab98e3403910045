#include "core/flight/flight_merge.h"

#include <gtest/gtest.h>

namespace legoai::comm {
namespace {

v1::FlightDump DumpOf(int64_t rank, int64_t world_size) {
  v1::FlightDump dump;
  dump.set_rank(rank);
  dump.set_world_size(world_size);
  auto* group = dump.add_groups();
  group->set_pg_id(0);
  group->set_name("world");
  for (int64_t r = 0; r < world_size; ++r) group->add_ranks(r);
  return dump;
}

void AddCollective(v1::FlightDump* dump, int64_t sequence, const std::string& name, const std::string& state) {
  auto* entry = dump->add_entries();
  entry->set_process_group("world");
  entry->set_collective_seq_id(sequence);
  entry->set_profiling_name(name);
  entry->set_state(state);
  entry->set_peer(-1);
}

TEST(MergeFlightDumps, ShowsWhoHasNotCome) {
  v1::FlightDump a = DumpOf(0, 3), b = DumpOf(1, 3);
  AddCollective(&a, 1, "all_gather", "completed");
  AddCollective(&b, 1, "all_gather", "completed");
  AddCollective(&a, 2, "all_reduce", "started");
  const MergedFlight merged = MergeFlightDumps({a, b});
  EXPECT_EQ(merged.world_size, 3);
  EXPECT_EQ(merged.missing, std::vector<int64_t>{2});
  ASSERT_EQ(merged.operations.size(), 2u);
  EXPECT_TRUE(merged.operations[0].complete());
  EXPECT_FALSE(merged.operations[1].complete());
  EXPECT_EQ(merged.operations[1].states.at(0), "started");
  EXPECT_EQ(merged.operations[1].not_reached, std::vector<int64_t>{1});  // of rank 2 nothing is known
}

TEST(MergeFlightDumps, DifferentCollectivesOfOneNumberStayApart) {
  v1::FlightDump a = DumpOf(0, 2), b = DumpOf(1, 2);
  AddCollective(&a, 7, "all_gather", "started");
  AddCollective(&b, 7, "all_reduce", "started");
  const MergedFlight merged = MergeFlightDumps({a, b});
  ASSERT_EQ(merged.operations.size(), 2u);
  EXPECT_EQ(merged.operations[0].name, "all_gather");
  EXPECT_EQ(merged.operations[0].not_reached, std::vector<int64_t>{1});
  EXPECT_EQ(merged.operations[1].not_reached, std::vector<int64_t>{0});
}

TEST(MergeFlightDumps, WhatTheRingOfARankLostIsNotWhatItHasNotReached) {
  v1::FlightDump a = DumpOf(0, 2), b = DumpOf(1, 2);
  for (int64_t sequence : {5, 6}) AddCollective(&a, sequence, "all_gather", "completed");
  AddCollective(&b, 6, "all_gather", "completed");
  const MergedFlight merged = MergeFlightDumps({a, b});
  ASSERT_EQ(merged.operations.size(), 2u);
  EXPECT_EQ(merged.operations[0].overwritten, std::vector<int64_t>{1});
  EXPECT_TRUE(merged.operations[0].not_reached.empty());
}

TEST(MergeFlightDumps, GroupsOfOneNameOnOtherRanksAreOthers) {
  std::vector<v1::FlightDump> dumps;
  for (int64_t rank = 0; rank < 4; ++rank) {
    v1::FlightDump dump = DumpOf(rank, 4);
    dump.mutable_groups(0)->clear_ranks();
    for (int64_t r : {rank / 2 * 2, rank / 2 * 2 + 1}) dump.mutable_groups(0)->add_ranks(r);
    AddCollective(&dump, 1, "all_reduce", rank < 2 ? "completed" : "started");
    dumps.push_back(dump);
  }
  const MergedFlight merged = MergeFlightDumps(dumps);
  ASSERT_EQ(merged.operations.size(), 2u);
  EXPECT_EQ(merged.operations[0].group_ranks, (std::vector<int64_t>{0, 1}));
  EXPECT_TRUE(merged.operations[0].complete());
  EXPECT_FALSE(merged.operations[1].complete());
}

TEST(MergeFlightDumps, MessagesBelongToTheirRank) {
  v1::FlightDump a = DumpOf(0, 2), b = DumpOf(1, 2);
  for (v1::FlightDump* dump : {&a, &b}) {
    AddCollective(dump, 0, dump == &a ? "send" : "recv", "started");
    auto* entry = dump->mutable_entries(0);
    entry->set_is_p2p(true);
    entry->set_p2p_seq_id(3);
    entry->set_peer(dump == &a ? 1 : 0);
  }
  const MergedFlight merged = MergeFlightDumps({a, b});
  ASSERT_EQ(merged.operations.size(), 2u);
  for (const auto& operation : merged.operations) {
    EXPECT_EQ(operation.sequence, 3);
    EXPECT_TRUE(operation.not_reached.empty());
    ASSERT_EQ(operation.peers.size(), 1u);
    EXPECT_EQ(operation.peers.begin()->second, 1 - operation.peers.begin()->first);
  }
}

}  // namespace
}  // namespace legoai::comm

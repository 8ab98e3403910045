#include "core/flight/flight_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/flight/flight_analysis.h"
#include "core/flight/flight_ring.h"
#include "core/flight/testing/flight_world.h"
#include "proto/testing/assert_ok.h"

namespace legoai::comm {
namespace {

namespace fs = std::filesystem;

constexpr char kPickles[] = "core/flight/testdata/pickle";

std::string Bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream all;
  all << file.rdbuf();
  return all.str();
}

class FlightFiles : public testing::Test {
 protected:
  FlightFiles() { fs::create_directories(folder_); }
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  std::string Write(const std::string& name, const std::string& bytes) const {
    fs::create_directories(fs::path(Path(name)).parent_path());
    std::ofstream(Path(name), std::ios::binary) << bytes;
    return Path(name);
  }
  void ExpectRefused(const std::vector<std::string>& places, const std::vector<std::string>& parts) const {
    const auto dumps = ReadFlight(places);
    ASSERT_FALSE(dumps.ok());
    for (const std::string& part : parts) EXPECT_NE(dumps.status().message().find(part), std::string::npos) << dumps.status();
  }
  const fs::path folder_ = fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
};

// What torch.distributed writes: see testdata/make_pickles.py.
TEST_F(FlightFiles, PyTorchsPicklesAreReadAndAnalyzed) {
  ASSERT_OK_AND_ASSIGN(const auto dumps, ReadFlight({kPickles}));
  ASSERT_EQ(dumps.size(), 2u);
  const v1::FlightDump& first = dumps[0];
  EXPECT_EQ(first.version(), "2.10");
  EXPECT_EQ(first.rank(), 0);
  EXPECT_EQ(dumps[1].rank(), 1);
  EXPECT_EQ(first.world_size(), 4);
  ASSERT_EQ(first.groups_size(), 2);
  EXPECT_EQ(first.groups(0).name(), "0:default_pg");
  EXPECT_EQ(first.groups(1).name(), "3");
  EXPECT_EQ(first.groups(1).ranks_size(), 2);
  ASSERT_EQ(first.entries_size(), 7);
  EXPECT_EQ(first.entries(2).profiling_name(), "nccl:send 0->1");
  EXPECT_TRUE(first.entries(2).is_p2p());
  EXPECT_EQ(first.entries(2).peer(), 1);
  EXPECT_EQ(first.entries(3).peer(), 1);
  EXPECT_EQ(dumps[1].entries(2).peer(), 0);
  const v1::FlightEntry& gather = first.entries(5);
  EXPECT_EQ(gather.process_group(), "3");
  EXPECT_EQ(gather.pg_id(), first.groups(1).pg_id());
  EXPECT_EQ(gather.dtype(), "BFloat16");
  EXPECT_EQ(std::vector<int64_t>(gather.input_sizes().begin(), gather.input_sizes().end()), (std::vector<int64_t>{2, -1, 3, 1}));
  EXPECT_EQ(gather.output_sizes_size(), 9);
  EXPECT_EQ(first.entries(6).time_completed_ns(), 0);

  const auto analysis = AnalyzeFlight(dumps, 4);
  EXPECT_EQ(analysis.verdict(), "collective_state_mismatch");
  ASSERT_EQ(analysis.culprits_size(), 1);
  EXPECT_EQ(analysis.culprits(0), 1);
  EXPECT_EQ(analysis.text(), "rank 1 has not entered all_reduce 3 of 0:default_pg, in which rank 0 waits");
  EXPECT_EQ(analysis.ranks_without_dump_size(), 2);
}

// PyTorch's JSON has the same names; without times it has 0 where the pickle has None.
TEST_F(FlightFiles, PyTorchsJsonSaysTheSame) {
  ASSERT_OK_AND_ASSIGN(const auto pickled, ReadFlightFile(std::string(kPickles) + "/nccl_trace_rank_1"));
  const std::string json = R"({"version": "2.10", "comm_lib_version": "2.28.9", "pg_status": {},
    "pg_config": {"3": {"desc": "undefined", "name": "3", "ranks": "[0, 1]"}},
    "entries": [{"record_id": 0, "pg_id": 1, "process_group": ["3", "undefined"], "thread_id": "1", "thread_name": "python3",
      "collective_seq_id": 0, "p2p_seq_id": 1, "op_id": 1, "profiling_name": "nccl:recv 1<-0", "time_created_ns": 5,
      "input_sizes": [[4, 8]], "input_dtypes": ["Float"], "output_sizes": [[4, 8]], "output_dtypes": ["Float"],
      "state": "scheduled", "time_discovered_started_ns": 0, "time_discovered_completed_ns": 0, "retired": false,
      "timeout_ms": 600000, "is_p2p": true}]})";
  ASSERT_OK_AND_ASSIGN(const auto dump, ReadFlightFile(Write("comm_lib_trace_rank_1.json", json)));
  EXPECT_EQ(dump.rank(), 1);
  v1::FlightEntry expected = pickled.entries(2);
  expected.set_record_id(0);
  expected.set_pg_id(0);
  expected.set_time_created_ns(5);
  EXPECT_EQ(dump.entries(0).DebugString(), expected.DebugString());
}

TEST_F(FlightFiles, OfARunTheFlightFolderIsReadAndRingsBeforeJson) {
  auto dumps = Collectives(2, 1).Run();
  Write("run/flight/rank-0.json", FlightDumpToJson(dumps[0]));
  Write("run/flight/rank-1.json", FlightDumpToJson(dumps[1]));
  Write("run/flight/notes.txt", "not a dump");
  ASSERT_OK_AND_ASSIGN(const auto json, ReadFlight({Path("run")}));
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[0].DebugString(), dumps[0].DebugString());
  ASSERT_TRUE(FlightRing::Create(Path("run/flight/rank-1"), 1, 2, {}, 4, "gloo", 1000).ok());
  ASSERT_OK_AND_ASSIGN(const auto both, ReadFlight({Path("run/flight")}));
  EXPECT_EQ(both[0].entries_size(), 1);
  EXPECT_EQ(both[1].entries_size(), 0);  // the ring's
}

TEST_F(FlightFiles, TheLaunchersWordOnARankIsKeptAndItsDumpTaken) {
  auto dumps = Collectives(2, 1).Run();
  v1::RankCondition& condition = *dumps[1].mutable_condition();
  condition.set_fault("unresponsive");
  condition.set_text("does not answer");
  condition.set_process_state("T");
  condition.set_silent_seconds(10.25);
  condition.set_phase("train");
  condition.set_step(21);
  for (int rank : {0, 1}) {
    Write("run/flight/rank-" + std::to_string(rank) + ".json", FlightDumpToJson(dumps[rank]));
    ASSERT_TRUE(FlightRing::Create(Path("run/flight/rank-" + std::to_string(rank)), rank, 2, {}, 4, "gloo", 1000).ok());
  }
  ASSERT_OK_AND_ASSIGN(const auto read, ReadFlight({Path("run")}));
  EXPECT_EQ(read[0].entries_size(), 0) << "the ring's";
  EXPECT_FALSE(read[0].has_condition());
  EXPECT_EQ(read[1].DebugString(), dumps[1].DebugString());
}

TEST_F(FlightFiles, TheRankFollowsFromGroupsWhereNoNameSaysIt) {
  const std::string pickle = Bytes(std::string(kPickles) + "/nccl_trace_rank_0");
  ExpectRefused({Write("trace", pickle)}, {Path("trace"), "does not say of which rank it is", "_rank_N"});
  const auto dump = ReadFlightFile(Write("alone.json", R"({"version": "2.10", "pg_config": {
    "0": {"desc": "default_pg", "ranks": "[0, 1, 2]"}, "1": {"desc": "undefined", "ranks": "[1, 2]"},
    "2": {"desc": "undefined", "ranks": "[0, 2]"}}})"));
  ASSERT_TRUE(dump.ok()) << dump.status();
  EXPECT_EQ(dump->rank(), 2);
}

TEST_F(FlightFiles, GroupsOfPyTorchMayHaveAnyName) {
  const auto dump = ReadFlightFile(Write("trace_rank-5", R"({"version": "2.10",
    "pg_config": {"a3f09b": {"name": "a3f09b", "desc": "mesh_dp", "ranks": "[4, 5]"}},
    "entries": [
      {"pg_id": 7, "process_group": ["a3f09b", "mesh_dp"], "profiling_name": "nccl:barrier", "state": "scheduled"},
      {"pg_id": 8, "process_group": ["gone", "undefined"], "profiling_name": "nccl:barrier", "state": "scheduled"}]})"));
  ASSERT_TRUE(dump.ok()) << dump.status();
  EXPECT_EQ(dump->rank(), 5);
  EXPECT_EQ(dump->entries(0).pg_id(), dump->groups(0).pg_id());
  EXPECT_EQ(dump->entries(0).process_group(), "a3f09b:mesh_dp");
  EXPECT_NE(dump->entries(1).pg_id(), dump->groups(0).pg_id());
}

TEST_F(FlightFiles, SizesOfSeveralTensorsSurviveJson) {
  ASSERT_OK_AND_ASSIGN(const auto dump, ReadFlightFile(std::string(kPickles) + "/nccl_trace_rank_0"));
  ASSERT_OK_AND_ASSIGN(const auto back, FlightDumpFromJson(FlightDumpToJson(dump)));
  EXPECT_EQ(back.entries(5).DebugString(), dump.entries(5).DebugString());
}

TEST_F(FlightFiles, DtypesThatDifferAreTold) {
  const auto dump = ReadFlightFile(Write("t_rank_0", R"({"version": "2.10", "pg_config": {}, "entries": [
    {"profiling_name": "nccl:a", "input_dtypes": ["Float", "Half", "Float"], "output_dtypes": ["Float"]},
    {"profiling_name": "nccl:a", "input_dtypes": [], "output_dtypes": ["Float"]}, {"profiling_name": "nccl:barrier"}]})"));
  ASSERT_TRUE(dump.ok()) << dump.status();
  EXPECT_EQ(dump->entries(0).dtype(), "Float,Half->Float");
  EXPECT_EQ(dump->entries(1).dtype(), "Float");
  EXPECT_EQ(dump->entries(2).dtype(), "");
}

TEST_F(FlightFiles, WhatIsNoDumpIsRefusedByName) {
  ExpectRefused({Path("none")}, {Path("none")});
  ExpectRefused({Write("text", "hello")}, {Path("text")});
  ExpectRefused({Write("empty", "")}, {Path("empty")});
  ExpectRefused({Write("config.json", R"({"model_type": "llama"})")}, {Path("config.json"), "not a flight recorder's JSON"});
  ExpectRefused({Write("broken.json", R"({"version": )")}, {Path("broken.json")});
  ExpectRefused({Write("sizes_rank_0.json", R"({"version": "2", "pg_config": {}, "entries": [{"input_sizes": [["x"]]}]})")},
                {Path("sizes_rank_0.json")});
  ExpectRefused({std::string(kPickles) + "/calls_a_function.pickle"}, {"calls_a_function.pickle", "opcode GLOBAL is refused"});
  ExpectRefused({std::string(kPickles) + "/values.pickle"}, {"values.pickle", "not a flight recorder's"});
  ExpectRefused({Write("damaged_rank_9999999999", R"({"version": "2", "pg_config": {}})")}, {"speaks of rank 9999999999"});
  fs::create_directories(Path("nothing"));
  ExpectRefused({Path("nothing")}, {Path("nothing"), "has no flight records"});
}

TEST_F(FlightFiles, TwoDumpsOfOneRankAreRefused) {
  const std::string pickle = Bytes(std::string(kPickles) + "/nccl_trace_rank_0");
  Write("two/a_rank_0", pickle);
  Write("two/b_rank_0", pickle);
  ExpectRefused({Path("two")}, {"two/b_rank_0", "rank 0", "two/a_rank_0"});
}

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

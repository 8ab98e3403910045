// Dumps as PyTorch's own flight recorder writes them: LibTorch's recorder and pickler run here, ours reads.
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/FlightRecorderDetail.hpp>
#include <tuple>
#include <vector>

#include "core/flight/flight_analysis.h"
#include "core/flight/flight_files.h"

namespace legoai::comm {

// Stands for the device's event, which the recorder asks how far an operation is.
struct Event {
  bool reached = false;
  bool query() const { return reached; }
};

}  // namespace legoai::comm

namespace c10d {

template <>
float getDurationFromEvent<legoai::comm::Event>(legoai::comm::Event&, legoai::comm::Event&) {
  return 0.5F;
}

}  // namespace c10d

namespace legoai::comm {
namespace {

using Recorder = c10d::FlightRecorder<Event>;
using Name = std::tuple<std::string, std::string>;

const Name kWorld = {"0", "default_pg"}, kPair = {"5", "undefined"};

// One rank of a job of two, as ProcessGroupNCCL records it.
class Rank {
 public:
  explicit Rank(int64_t rank) : rank_(rank) {
    recorder_.enabled_ = true;
    recorder_.max_entries_ = 100;
    recorder_.record_pg_ranks(kWorld, {0, 1});
    recorder_.record_pg_ranks(kPair, {0, 1});
  }

  void AllReduce(const at::Tensor& tensor, bool completes) {
    Record(0, kWorld, ++collectives_, 0, "nccl:all_reduce", {tensor}, {tensor}, completes, false);
  }
  void Gather(const std::vector<at::Tensor>& in, const std::vector<at::Tensor>& out) {
    Record(1, kPair, 1, 0, "nccl:all_gather", in, out, true, false);
  }
  void Message(const at::Tensor& tensor, bool completes) {
    Record(1, kPair, 0, ++messages_, rank_ == 0 ? "nccl:send 0->1" : "nccl:recv 1<-0", {tensor}, {tensor}, completes, true);
  }

  // As the watchdog writes it on a time-out, and as the debug server's JSON.
  void WriteTo(const std::string& folder) {
    std::ofstream(folder + "/pickle/nccl_trace_rank_" + std::to_string(rank_), std::ios::binary)
        << recorder_.dump(std::nullopt, true, false, false);
    std::ofstream(folder + "/json/trace_rank_" + std::to_string(rank_) + ".json")
        << recorder_.dump_json(std::nullopt, true, false);
  }

 private:
  void Record(size_t pg, const Name& name, int64_t collective, int64_t message, const std::string& profiling_name,
              const std::vector<at::Tensor>& in, const std::vector<at::Tensor>& out, bool completes, bool p2p) {
    events_.push_back(std::make_unique<Event>(Event{true}));
    Event* start = events_.back().get();
    events_.push_back(std::make_unique<Event>(Event{completes}));
    const auto id =
        recorder_.record(pg, name, collective, message, ++operations_, profiling_name, in, out, start, events_.back().get(),
                         std::chrono::minutes(10), std::make_shared<c10d::ProcessGroupStatus>(), p2p);
    if (completes) recorder_.retire_id(id);
  }

  const int64_t rank_;
  Recorder recorder_;
  std::vector<std::unique_ptr<Event>> events_;
  int64_t collectives_ = 0, messages_ = 0, operations_ = 0;
};

TEST(TorchFlight, WhatTorchWritesIsReadAndAnalyzed) {
  const std::string folder = testing::TempDir() + "/torch_flight";
  for (const char* kind : {"/pickle", "/json"}) std::filesystem::create_directories(folder + kind);
  const at::Tensor large = at::empty({4, 3}), small = at::empty({2}, at::kHalf), scalar = at::empty({});
  for (int64_t rank : {0, 1}) {
    Rank recorded(rank);
    recorded.AllReduce(large, true);
    recorded.AllReduce(scalar, true);
    recorded.Message(large, true);
    recorded.Gather({small}, {small, small});
    if (rank == 0) recorded.AllReduce(large, false);
    recorded.WriteTo(folder);
  }
  for (const char* kind : {"/pickle", "/json"}) {
    SCOPED_TRACE(kind);
    const auto dumps = ReadFlight({folder + kind});
    ASSERT_TRUE(dumps.ok()) << dumps.status();
    ASSERT_EQ(dumps->size(), 2u);
    const v1::FlightDump& dump = (*dumps)[0];
    EXPECT_EQ(dump.version(), c10d::version_val_str);
    EXPECT_EQ(dump.world_size(), 2);
    ASSERT_EQ(dump.groups_size(), 2);
    ASSERT_EQ(dump.entries_size(), 5);
    EXPECT_EQ(dump.entries(0).process_group(), "0:default_pg");
    EXPECT_EQ(dump.entries(0).input_sizes_size(), 2);
    EXPECT_EQ(dump.entries(0).state(), "completed");
    EXPECT_EQ(dump.entries(1).input_sizes_size(), 0);
    EXPECT_EQ(dump.entries(2).peer(), 1);
    EXPECT_EQ((*dumps)[1].entries(2).peer(), 0);
    EXPECT_EQ(dump.entries(3).dtype(), "Half");
    EXPECT_EQ(dump.entries(3).output_sizes_size(), 3);  // two tensors and what is between them
    EXPECT_EQ(dump.entries(4).state(), "started");
    EXPECT_EQ(dump.entries(4).time_completed_ns(), 0);
    const auto analysis = AnalyzeFlight(*dumps, 2);
    EXPECT_EQ(analysis.verdict(), "collective_state_mismatch");
    ASSERT_EQ(analysis.culprits_size(), 1);
    EXPECT_EQ(analysis.culprits(0), 1);
    EXPECT_EQ(analysis.text(), "rank 1 has not entered all_reduce 3 of 0:default_pg, in which rank 0 waits");
    EXPECT_EQ(analysis.matched(), 3);
  }
}

}  // namespace
}  // namespace legoai::comm

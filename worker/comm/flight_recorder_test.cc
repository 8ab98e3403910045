#include "worker/comm/flight_recorder.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "worker/comm/ops.h"
#include "worker/comm/testing/process_group_test_util.h"

namespace legoai::comm {
namespace {

std::string TempPath(const char* name) { return std::string(getenv("TEST_TMPDIR")) + "/" + name; }

std::unique_ptr<FlightRecorder> MakeRecorder(const std::string& path, const mesh::Mesh& mesh, int64_t capacity) {
  auto ring = FlightRing::Create(path, 0, mesh.world(), mesh.Groups(0), capacity, "gloo", 5000);
  EXPECT_TRUE(ring.ok()) << ring.status();
  return std::make_unique<FlightRecorder>(*std::move(ring));
}

CommObserver::Call Call(const char* kind, int64_t group, int64_t peer = -1) {
  CommObserver::Call call;
  call.kind = kind;
  call.group = group;
  call.peer = peer;
  call.input_sizes = {2, 3};
  call.output_sizes = {4, 3};
  call.bytes = 24;
  return call;
}

TEST(FlightRecorder, KeepsTheLastCallsWithTheirStates) {
  const std::string path = TempPath("ring");
  const mesh::Mesh mesh{.pp = 2, .dp_shard = 2};
  auto recorder = MakeRecorder(path, mesh, 4);
  for (int i = 0; i < 3; ++i) recorder->Completed(recorder->Created(Call("all_gather", 3)), 0, nullptr);
  recorder->Created(Call("send", 1, 1));
  const int64_t hung = recorder->Created(Call("all_gather", 3));
  recorder->Started(hung, 0, nullptr);
  recorder->Completed(1, 0, nullptr);  // overwritten by the fifth: without effect
  auto dump = ReadFlightRing(path, "request");
  ASSERT_TRUE(dump.ok()) << dump.status();
  ASSERT_EQ(dump->entries_size(), 4);
  EXPECT_EQ(dump->entries(0).record_id(), 1);
  EXPECT_EQ(dump->entries(0).state(), "completed");
  EXPECT_TRUE(dump->entries(2).is_p2p());
  EXPECT_EQ(dump->entries(2).p2p_seq_id(), 1);
  EXPECT_EQ(dump->entries(2).peer(), 1);
  EXPECT_EQ(dump->entries(2).state(), "scheduled");
  const auto& last = dump->entries(3);
  EXPECT_EQ(last.state(), "started");
  EXPECT_EQ(last.collective_seq_id(), 4);
  EXPECT_EQ(last.process_group(), "dp_shard");
  EXPECT_EQ(last.profiling_name(), "gloo:all_gather");
  EXPECT_EQ(dump->groups(3).ranks_size(), 2);
}

TEST(FlightRecorder, JsonRoundTrips) {
  const std::string path = TempPath("json_ring");
  auto recorder = MakeRecorder(path, {.dp_shard = 2}, 8);
  recorder->Completed(recorder->Created(Call("reduce_scatter", 3)), 0, nullptr);
  recorder->Created(Call("all_gather", 3));
  auto dump = ReadFlightRing(path, "timeout");
  ASSERT_TRUE(dump.ok());
  auto back = FlightDumpFromJson(FlightDumpToJson(*dump));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->DebugString(), dump->DebugString());
}

TEST(FlightRecorder, ReadsWhatPyTorchWrites) {
  // As torch.distributed's flight recorder writes it (version 2.10), shortened to one entry.
  auto dump =
      FlightDumpFromJson(R"({"version": "2.10", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
    "pg_status": {"0": {"last_enqueued_collective": 2, "last_started_collective": -1, "last_completed_collective": 2}},
    "entries": [{"frames": [{"name": "f", "filename": "a.py", "line": 1}], "record_id": 0, "pg_id": 0,
      "process_group": ["0", "default_pg"], "collective_seq_id": 1, "p2p_seq_id": 0, "op_id": 1,
      "profiling_name": "nccl:all_reduce", "time_created_ns": 1724779239936775119, "input_sizes": [[3, 4]],
      "input_dtypes": ["Float"], "output_sizes": [[3, 4]],
      "output_dtypes": ["Float"], "state": "completed", "time_discovered_started_ns": null,
      "time_discovered_completed_ns": 1724779239975811724, "retired": true, "timeout_ms": 600000, "is_p2p": false}]})");
  ASSERT_TRUE(dump.ok()) << dump.status();
  EXPECT_EQ(dump->groups(0).ranks_size(), 2);
  EXPECT_EQ(dump->entries(0).profiling_name(), "nccl:all_reduce");
  EXPECT_EQ(dump->entries(0).bytes(), 3 * 4 * 4);
  EXPECT_EQ(dump->entries(0).time_completed_ns(), 1724779239975811724);
}

TEST(FlightRecorder, IsReadableAfterTheProcessWasKilled) {
  const std::string path = TempPath("killed_ring");
  pid_t child = fork();
  if (child == 0) {
    auto recorder = MakeRecorder(path, {.dp_shard = 2}, 8);
    recorder->Started(recorder->Created(Call("all_gather", 3)), 0, nullptr);
    raise(SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  auto dump = ReadFlightRing(path, "crash");
  ASSERT_TRUE(dump.ok()) << dump.status();
  ASSERT_EQ(dump->entries_size(), 1);
  EXPECT_EQ(dump->entries(0).state(), "started");
}

TEST(FlightRecorder, RefusesOtherFiles) {
  EXPECT_EQ(ReadFlightRing(TempPath("none"), "").status().code(), absl::StatusCode::kNotFound);
  std::ofstream(TempPath("text")) << std::string(10000, 'x');
  EXPECT_EQ(ReadFlightRing(TempPath("text"), "").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadFlightRing(TempPath("text/ring"), "").status().code(), absl::StatusCode::kInvalidArgument);  // no such folder
  EXPECT_FALSE(FlightDumpFromJson("{\"version\": 1}").ok());
}

// Whatever a rank that went astray has written over its ring: what is read stays within it.
TEST(FlightRecorder, ADamagedRingIsReadAsFarAsItGoes) {
  const std::string path = TempPath("damaged_ring");
  {
    auto recorder = MakeRecorder(path, {.dp_shard = 2}, 4);
    for (int i = 0; i < 4; ++i) recorder->Created(Call("all_gather", 3));
  }
  const size_t bytes = std::filesystem::file_size(path), records = bytes - 4 * sizeof(FlightRing::Record);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  // All but the number of each record, which says that it is one.
  for (int i = 0; i < 4; ++i) {
    file.seekp(records + i * sizeof(FlightRing::Record) + sizeof(uint64_t));
    file << std::string(sizeof(FlightRing::Record) - sizeof(uint64_t), '\x7f');
  }
  file.close();
  auto dump = ReadFlightRing(path, "");
  ASSERT_TRUE(dump.ok()) << dump.status();
  ASSERT_EQ(dump->entries_size(), 4);
  EXPECT_EQ(dump->entries(0).input_sizes_size(), 6);
  EXPECT_EQ(dump->entries(0).dtype(), std::string(16, '\x7f'));
}

// A runtime of one rank, on which a recorder looks.
std::unique_ptr<Runtime> Alone(FlightRecorder* recorder, std::unique_ptr<Streams> streams = MakeThreadStreams()) {
  auto runtime = Runtime::Create(0, mesh::Mesh{}.Groups(0), std::move(streams), NoCommunicator, recorder);
  EXPECT_TRUE(runtime.ok()) << runtime.status();
  return *std::move(runtime);
}

TEST(FlightRecorder, SeesWhatTheRuntimeDoes) {
  const mesh::Mesh mesh{.dp_shard = 2};
  auto recorder = MakeRecorder(TempPath("runtime_ring"), mesh, 8);
  const auto runtime = Alone(recorder.get());
  RuntimeScope scope(runtime.get());
  AllReduce(at::full({7}, 1.0), 0);
  auto dump = ReadFlightRing(TempPath("runtime_ring"), "request");
  ASSERT_TRUE(dump.ok());
  ASSERT_EQ(dump->entries_size(), 1);
  EXPECT_EQ(dump->entries(0).state(), "completed");
  EXPECT_EQ(dump->entries(0).bytes(), 28);
  EXPECT_EQ(dump->entries(0).dtype(), "Float");
}

// Calls an operator of communication; every tensor it wants is `tensor`. A message to itself fails, after it was recorded.
void CallOperator(const c10::OperatorHandle& op, const at::Tensor& tensor) {
  torch::jit::Stack stack;
  for (const auto& argument : op.schema().arguments()) {
    argument.type()->kind() == c10::TypeKind::TensorType ? stack.emplace_back(tensor.clone())
                                                              : stack.emplace_back(int64_t{0});
  }
  try {
    op.callBoxed(&stack);
  } catch (const c10::Error&) {
  }
}

// The operators of ops.h that communicate.
std::vector<c10::OperatorHandle> CommunicationOperators() {
  std::vector<c10::OperatorHandle> operators;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findOp(name);
    if (name.name.rfind("lego::", 0) != 0 || !op || !op->hasSchema()) continue;
    if (op->schema().argumentIndexWithName("group")) operators.push_back(*op);
  }
  return operators;
}

TEST(FlightRecorder, EveryOperatorThatCommunicatesHasItsBytes) {
  const uint32_t seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  const auto operators = CommunicationOperators();
  ASSERT_EQ(operators.size(), 8u);
  for (int trial = 0; trial < 20; ++trial) {
    for (const auto& op : operators) {
      const auto dtype = std::array{at::kFloat, at::kDouble, at::kBFloat16, at::kLong}[random() % 4];
      std::vector<int64_t> sizes(random() % 8);  // none: a number; more than a ring keeps
      for (int64_t& size : sizes) size = 1 + random() % 3;
      const at::Tensor tensor = at::full(sizes, 1, at::TensorOptions().dtype(dtype));
      const std::string path = TempPath("bytes_ring");
      auto recorder = MakeRecorder(path, {}, 4);
      const auto runtime = Alone(recorder.get());
      RuntimeScope scope(runtime.get());
      CallOperator(op, tensor);
      SCOPED_TRACE(::testing::Message() << op.operator_name().name << " " << tensor.toString() << " " << tensor.sizes());
      const auto dump = ReadFlightRing(path, "request");
      ASSERT_TRUE(dump.ok()) << dump.status();
      ASSERT_EQ(dump->entries_size(), 1);
      const auto bytes = static_cast<int64_t>(tensor.nbytes());
      EXPECT_EQ(dump->entries(0).bytes(), bytes);
      // As the launcher keeps it, and as PyTorch would have written it.
      std::string json = FlightDumpToJson(*dump);
      EXPECT_EQ(FlightDumpFromJson(json)->entries(0).bytes(), bytes);
      const size_t key = json.find("\"bytes\"");
      ASSERT_NE(key, std::string::npos);
      json.replace(key, 7, "\"other\"");
      if (sizes.size() <= 6) {
        EXPECT_EQ(FlightDumpFromJson(json)->entries(0).bytes(), bytes);
      }
    }
  }
}

// As CUDA's: a call returns when it is enqueued; a stream comes through it when the test says so.
class EnqueuingStreams : public Streams {
 public:
  absl::Status Post(int64_t, std::function<absl::Status()> work) override { return work(); }
  absl::Status Record(int64_t, int64_t) override { return absl::OkStatus(); }
  absl::Status Wait(int64_t, int64_t) override { return absl::OkStatus(); }
  absl::Status Drain() override { return absl::OkStatus(); }
  std::unique_ptr<StreamMark> Mark(int64_t stream) override {
    return std::make_unique<Passing>(progress_.at(stream), ++enqueued_.at(stream));
  }
  // The stream gets to its next marks: each call has one before it and one behind it.
  void Advance(int64_t stream, int marks) { progress_.at(stream) += marks; }

 private:
  struct Passing : StreamMark {
    Passing(const std::atomic<int>& progress, int number) : progress(progress), number(number) {}
    bool Passed() override { return progress >= number; }
    const std::atomic<int>& progress;
    const int number;
  };
  std::array<std::atomic<int>, kStreamCount> progress_{};
  std::array<int, kStreamCount> enqueued_{};
};

std::vector<std::string> States(const std::string& path) {
  std::vector<std::string> states;
  const auto dump = ReadFlightRing(path, "request");
  EXPECT_TRUE(dump.ok()) << dump.status();
  for (const auto& entry : dump->entries()) states.push_back(entry.state());
  return states;
}

// The recorder's own thread notes it.
void ExpectStates(const std::string& path, const std::vector<std::string>& states) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (States(path) != states && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_EQ(States(path), states);
}

TEST(FlightRecorder, WhatIsOnlyEnqueuedIsNotCompleted) {
  const std::string path = TempPath("enqueued_ring");
  auto recorder = MakeRecorder(path, {}, 8);
  auto owned = std::make_unique<EnqueuingStreams>();
  EnqueuingStreams& device = *owned;
  const auto runtime = Alone(recorder.get(), std::move(owned));
  RuntimeScope scope(runtime.get());
  const at::Tensor tensor = at::full({7}, 1.0);
  const int64_t shard = runtime->GroupId(mesh::Dim::kDpShard);
  AllReduce(tensor, shard);
  {
    StreamScope stream(kAllGather);
    AllReduce(tensor, shard);
  }
  AllReduce(tensor, shard);
  EXPECT_EQ(States(path), (std::vector<std::string>{"scheduled", "scheduled", "scheduled"}));
  device.Advance(kCompute, 1);  // hangs in the first
  device.Advance(kAllGather, 2);
  ExpectStates(path, {"started", "completed", "scheduled"});
  device.Advance(kCompute, 2);
  ExpectStates(path, {"completed", "completed", "started"});
  device.Advance(kCompute, 1);
  ExpectStates(path, {"completed", "completed", "completed"});
}

}  // namespace
}  // namespace legoai::comm

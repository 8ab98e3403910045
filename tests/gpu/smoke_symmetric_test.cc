// Rotations through symmetric memory, and what asynchronous tensor parallel makes of products with them: two processes on a card
// each, or both on the only one, as PyTorch lets its own tests do. What they give is compared with plain copies and whole
// products of the same numbers, while both sides come late by turns, on the host and on the device.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "core/trace/instances.h"
#include "core/trace/passes/pass_check.h"
#include "core/trace/passes/passes.h"
#include "tests/gpu/gpu_test.h"
#include "worker/comm/gloo_communicator.h"
#include "worker/comm/ops.h"
#include "worker/comm/symmetric_slots.h"
#include "worker/comm/testing/process_group_test_util.h"
#include "worker/graph/executor.h"
#include "worker/graph/recorder.h"
#include "worker/parallel/tensor_parallel.h"
#include "worker/train/step_program.h"

namespace legoai::gpu {
namespace {

using at::Tensor;
using integration::Must;
using mesh::Mesh;
using ::testing::IsEmpty;

constexpr int kRanks = 2, kRounds = 20, kLimitSeconds = 50;  // below what the check allows a test
constexpr int kCpuLimitSeconds = 300;                        // of ranks on the CPU, which other tests load meanwhile

class SmokeSymmetric : public GpuTest {
 protected:
  void RunRanks(const std::string& name) {
    outcomes_ = RunSelf("SymmetricRank.DISABLED_" + name, kRanks, kLimitSeconds);
    for (size_t rank = 0; rank < outcomes_.size(); ++rank) {
      EXPECT_EQ(outcomes_[rank].exit_code, 0) << "rank " << rank;
      std::printf("rank %zu: %s\n", rank, outcomes_[rank].told.c_str());
    }
  }
  std::vector<RankOutcome> outcomes_;
};

// What follows is of a rank's process, which RunSelf alone starts.

comm::RendezvousOptions Options(std::chrono::seconds timeout) {
  comm::RendezvousOptions options = RendezvousOfSelf();
  options.timeout = timeout;
  options.connect_timeout = std::chrono::seconds(30);
  return options;
}

// What makes one rank late, or the other one.
class Delays {
 public:
  explicit Delays(c10::Device device)
      : seed_(std::random_device{}()),
        random_(seed_),
        busy_(at::zeros({int64_t{16} << 20}, at::TensorOptions().dtype(at::kFloat).device(device))) {
    Tell("seed " + std::to_string(seed_) + "; ");
  }
  void OfHost() { std::this_thread::sleep_for(std::chrono::microseconds(Below(8000))); }
  // On the current stream.
  void OfDevice() {
    for (int64_t i = Below(20); i > 0; --i) busy_.fill_(static_cast<double>(i));
  }

 private:
  int64_t Below(int64_t limit) { return std::uniform_int_distribution<int64_t>(0, limit - 1)(random_); }
  const unsigned seed_;
  std::mt19937 random_;
  Tensor busy_;
};

void Order(comm::Streams& streams, int64_t first, int64_t then, int64_t event) {
  Must(streams.Record(first, event));
  Must(streams.Wait(then, event));
}

Tensor Message(int64_t bytes, int64_t tag, c10::Device device) {
  const Tensor place = at::arange(bytes, at::TensorOptions().dtype(at::kInt).device(device));
  return at::remainder(place * 7 + tag * 31, 251).to(at::kByte);
}

// A message goes to the other rank and, as soon as it is there, back.
TEST(SymmetricRank, DISABLED_Rotates) {
  using comm::kCompute, comm::kRotate, comm::kSymmetricSlotBytes;
  const comm::CudaPlugin& plugin = PluginOfSelf();
  const c10::Device device = DeviceOfSelf(plugin);
  const int64_t rank = RankOfSelf();
  const auto factory = Must(plugin.make_symmetric_factory(Options(std::chrono::seconds(20))));
  const auto ring = Must(factory({mesh::Dim::kTp, {0, 1, kRanks}}, rank, kCompute));
  const auto streams = plugin.make_streams();
  streams->SetHealth([&] { return ring->Health(); });
  Delays delays(device);
  for (const int64_t bytes : {int64_t{1}, int64_t{3}, int64_t{4097}, kSymmetricSlotBytes - 1, kSymmetricSlotBytes,
                              kSymmetricSlotBytes + 1, 2 * kSymmetricSlotBytes + 5, 5 * kSymmetricSlotBytes + 3}) {
    const auto options = at::TensorOptions().dtype(at::kByte).device(device);
    const Tensor in = at::empty({bytes}, options), there = at::empty({bytes}, options), back = at::empty({bytes}, options);
    Tensor wrong = at::zeros({}, options.dtype(at::kLong));
    for (int64_t round = 1; round <= kRounds; ++round) {
      delays.OfHost();
      delays.OfDevice();
      in.copy_(Message(bytes, 2 * round + rank, device));
      Order(*streams, kCompute, kRotate, 1);
      const auto rotate = [&](const Tensor& out, const Tensor& from) {
        Must(streams->Post(kRotate, [&] {
          delays.OfDevice();
          return ring->Rotate(out.mutable_data_ptr(), from.const_data_ptr(), bytes);
        }));
      };
      rotate(there, in);
      rotate(back, there);
      Order(*streams, kRotate, kCompute, 2);
      wrong += (there != Message(bytes, 2 * round + 1 - rank, device)).sum() +
               (back != Message(bytes, 2 * round + rank, device)).sum();
    }
    Must(streams->Drain());
    EXPECT_EQ(wrong.item<int64_t>(), 0) << "wrong bytes in messages of " << bytes;
  }
}

TEST_F(SmokeSymmetric, RotationsBringWhatTheRankBeforeSent) { RunRanks("Rotates"); }

// Tokens of a rank, [batch, tokens, width], and its part of two weights.
struct Sizes {
  int64_t batch, tokens, width, inner;
};

// A region of sequence parallelism, as worker/parallel/tensor_parallel.cc makes it: what is gathered is read later, too.
graph::Trace RegionOf(const Sizes& sizes, at::ScalarType dtype, int64_t rank) {
  const auto runtime = Must(comm::Runtime::Create(rank, Mesh{.tp = kRanks}.Groups(rank), comm::MakeFakeStreams(), nullptr));
  const comm::RuntimeScope scope(runtime.get());
  const at::NoGradGuard no_gradients;
  const int64_t group = runtime->GroupId(mesh::Dim::kTp);
  const Tensor local = at::zeros({sizes.batch, sizes.tokens, sizes.width}, dtype);
  const Tensor up = at::zeros({sizes.width, sizes.inner}, dtype), down = at::zeros({sizes.inner, sizes.width}, dtype);
  graph::Recorder recorder;
  recorder.SetRecording(false);
  recorder.Input("local", local, graph::Category::kInput);
  recorder.Input("up", up, graph::Category::kUnshardedParameter);
  recorder.Input("down", down, graph::Category::kUnshardedParameter);
  recorder.SetRecording(true);
  Tensor gathered, scattered;
  {
    const Tensor tokens = parallel::GatherSequence(local, group);
    const Tensor inner = tokens.view({-1, sizes.width}).mm(up);
    gathered = tokens.clone();
    scattered = parallel::ReduceScatterSequence(inner.mm(down).view({sizes.batch, kRanks * sizes.tokens, sizes.width}), group);
  }
  recorder.SetRecording(false);
  recorder.Output("gathered", gathered);
  recorder.Output("scattered", scattered);
  graph::Trace trace = recorder.Finish();
  trace.groups = runtime->groups();
  return trace;
}

graph::Trace AsyncRegionOf(const Sizes& sizes, at::ScalarType dtype, int64_t rank) {
  const graph::Trace before = RegionOf(sizes, dtype, rank);
  graph::Trace after = Must(graph::AsyncTensorParallel(before));
  EXPECT_THAT(graph::TraceFindings(after), IsEmpty());
  EXPECT_THAT(graph::PassFindings(before, after), IsEmpty());
  int64_t rotations = 0;
  for (const graph::Instruction& instruction : after.instructions) {
    if (instruction.kind != graph::Instruction::Kind::kOperator) continue;
    const std::string& name = after.OperatorName(instruction);
    rotations += name == "lego::rotate_into";
    EXPECT_NE(name, "lego::all_gather_into");
    EXPECT_NE(name, "lego::reduce_scatter_into");
  }
  EXPECT_EQ(rotations, 2) << "a hop for the gather, and one for the scatter";
  return graph::Flatten(after, graph::WholeOf(after));
}

// Drawn on the CPU, so that both ranks have the numbers of both.
struct Numbers {
  Numbers(const Sizes& sizes, at::ScalarType dtype, int64_t rank, int64_t set, c10::Device device) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(10 * set + rank + 1));
    const auto draw = [&](at::IntArrayRef shape, int64_t summed) {
      return (at::randn(shape, generator) / std::sqrt(static_cast<double>(summed))).to(dtype).to(device);
    };
    local = draw({sizes.batch, sizes.tokens, sizes.width}, 1);
    up = draw({sizes.width, sizes.inner}, sizes.width);
    down = draw({sizes.inner, sizes.width}, sizes.inner);
  }
  Tensor local, up, down;
};

// Without cutting anything.
struct Whole {
  Whole(const std::vector<Numbers>& ranks, int64_t rank) {
    std::vector<Tensor> locals;
    for (const Numbers& of : ranks) locals.push_back(of.local);
    gathered = at::cat(locals, 1);
    Tensor sum;
    for (const Numbers& of : ranks) {
      const Tensor partial = at::matmul(at::matmul(gathered, of.up), of.down);
      sum = sum.defined() ? sum + partial : partial;
    }
    const int64_t tokens = locals[rank].size(1);
    scattered = sum.narrow(1, rank * tokens, tokens).contiguous();
  }
  Tensor gathered, scattered;
};

constexpr Sizes kSizes[] = {{1, 37, 65, 33}, {3, 5, 96, 7}};  // odd everywhere; and a batch, whose rows are cut one by one
constexpr int kSets = 2;  // of numbers, by turns: what a rank wrongly keeps of the round before is another set's

// Of the current runtime's ranks. `delay` comes before each round.
void CheckRegion(c10::Device device, int64_t rank, const Sizes& sizes, at::ScalarType dtype, const std::function<void()>& delay) {
  SCOPED_TRACE(c10::toString(dtype) + std::string(", [") + std::to_string(sizes.batch) + ", " + std::to_string(sizes.tokens) +
               ", " + std::to_string(sizes.width) + "]");
  const graph::Trace trace = AsyncRegionOf(sizes, dtype, rank);
  const auto executor = Must(graph::Executor::Create(trace, device));
  std::vector<Numbers> own;
  std::vector<Whole> expected;
  for (int64_t set = 0; set < kSets; ++set) {
    std::vector<Numbers> ranks;
    for (int64_t other = 0; other < kRanks; ++other) ranks.emplace_back(sizes, dtype, other, set, device);
    own.push_back(ranks[rank]);
    expected.emplace_back(ranks, rank);
  }
  const Numbers bound(sizes, dtype, rank, kSets, device);
  Must(executor->Bind("local", bound.local));
  Must(executor->Bind("up", bound.up));
  Must(executor->Bind("down", bound.down));
  // A bfloat16 has eight bits: what is left of rows that are cut otherwise, and of a sum of two.
  const double tolerance = dtype == at::kBFloat16 ? 2e-2 : 2e-5;
  Tensor first[kSets];
  for (int64_t round = 0; round < kRounds; ++round) {
    const int64_t set = round % kSets;
    delay();
    bound.local.copy_(own[set].local);
    bound.up.copy_(own[set].up);
    bound.down.copy_(own[set].down);
    Must(executor->Run());
    const Tensor gathered = Must(executor->Output("gathered")), scattered = Must(executor->Output("scattered"));
    ASSERT_TRUE(at::equal(gathered, expected[set].gathered)) << "tokens of round " << round;
    ASSERT_LE(Difference(scattered, expected[set].scattered), tolerance) << "sums of round " << round;
    if (!first[set].defined()) first[set] = scattered.clone();
    ASSERT_TRUE(at::equal(scattered, first[set])) << "round " << round << " rounds otherwise than the first of its numbers";
  }
}

TEST(SymmetricRank, DISABLED_MultipliesWhatComes) {
  const comm::CudaPlugin& plugin = PluginOfSelf();
  const int64_t rank = RankOfSelf();
  const auto symmetric = Must(plugin.make_symmetric_factory(Options(std::chrono::seconds(20))));
  const comm::CommunicatorFactory factory =
      [&](const mesh::Group& group, int64_t index, int64_t channel) -> absl::StatusOr<std::unique_ptr<comm::Communicator>> {
    if (group.dim == mesh::Dim::kTp) return symmetric(group, index, channel);
    return comm::MakeLocalCommunicator();  // of groups in which the program does nothing
  };
  const auto runtime =
      Must(comm::Runtime::Create(rank, Mesh{.tp = kRanks}.Groups(rank), plugin.make_streams(), factory));
  const comm::RuntimeScope scope(runtime.get());
  Delays delays(DeviceOfSelf(plugin));
  const auto delay = [&] {
    delays.OfHost();
    delays.OfDevice();
  };
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const Sizes& sizes : kSizes) CheckRegion(DeviceOfSelf(plugin), rank, sizes, dtype, delay);
    CheckRegion(DeviceOfSelf(plugin), rank, {1, 8209, 1031, 64}, dtype, delay);  // messages of more than a slot
  }
}

// The comparison itself, with Gloo's rings.
TEST(SymmetricRegion, IsThatOfTheWholeOnTheCpu) {
  comm::testing::RunRanks(Mesh{.tp = kRanks}, [](int64_t rank, comm::Runtime&) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      for (const Sizes& sizes : kSizes) CheckRegion(at::kCPU, rank, sizes, dtype, [] {});
    }
  });
}

TEST_F(SmokeSymmetric, ProductsOfWhatComesAreThoseOfTheWhole) { RunRanks("MultipliesWhatComes"); }

// Everything else of two ranks by rotations: a rotation brings what the other rank has.
class ByRotations : public comm::Communicator {
 public:
  ByRotations(std::unique_ptr<comm::Communicator> ring, c10::Device device) : ring_(std::move(ring)), device_(device) {}
  int64_t rank() const override { return ring_->rank(); }
  int64_t size() const override { return kRanks; }

  absl::Status AllGather(void* out, const void* in, int64_t bytes) override {
    const Tensor whole = Of(out, kRanks * bytes, at::kByte), own = Of(in, bytes, at::kByte).clone();
    whole.narrow(0, rank() * bytes, bytes).copy_(own);
    return ring_->Rotate(whole.narrow(0, (1 - rank()) * bytes, bytes).mutable_data_ptr(), own.const_data_ptr(), bytes);
  }
  absl::Status ReduceScatter(void* out, const void* in, int64_t count, at::ScalarType dtype, comm::ReduceOp op) override {
    const Tensor parts = Of(in, kRanks * count, dtype), own = parts.narrow(0, rank() * count, count);
    const Tensor others = at::empty_like(own);
    const absl::Status status = Exchange(others, parts.narrow(0, (1 - rank()) * count, count));
    if (status.ok()) Of(out, count, dtype).copy_(Reduced(own, others, op));
    return status;
  }
  absl::Status AllReduce(void* data, int64_t count, at::ScalarType dtype, comm::ReduceOp op) override {
    const Tensor own = Of(data, count, dtype), others = at::empty_like(own);
    const absl::Status status = Exchange(others, own);
    if (status.ok()) own.copy_(Reduced(own, others, op));
    return status;
  }
  absl::Status AllToAll(void* out, const void* in, int64_t bytes) override {
    const Tensor to = Of(out, kRanks * bytes, at::kByte), from = Of(in, kRanks * bytes, at::kByte);
    to.narrow(0, rank() * bytes, bytes).copy_(from.narrow(0, rank() * bytes, bytes));
    return Exchange(to.narrow(0, (1 - rank()) * bytes, bytes), from.narrow(0, (1 - rank()) * bytes, bytes));
  }
  absl::Status Rotate(void* out, const void* in, int64_t bytes) override { return ring_->Rotate(out, in, bytes); }
  absl::Status Broadcast(void* data, int64_t bytes, int64_t root) override {
    const Tensor own = Of(data, bytes, at::kByte), others = at::empty_like(own);
    const absl::Status status = Exchange(others, own);
    if (status.ok() && rank() != root) own.copy_(others);
    return status;
  }
  absl::Status Send(const void*, int64_t, int64_t) override { return absl::UnimplementedError("no messages"); }
  absl::Status Recv(void*, int64_t, int64_t) override { return absl::UnimplementedError("no messages"); }
  absl::Status Health() override { return ring_->Health(); }
  void Abort() override { ring_->Abort(); }

 private:
  Tensor Of(const void* data, int64_t count, at::ScalarType dtype) const {
    return at::from_blob(const_cast<void*>(data), {count}, at::TensorOptions().dtype(dtype).device(device_));
  }
  absl::Status Exchange(const Tensor& out, const Tensor& in) {
    return ring_->Rotate(out.mutable_data_ptr(), in.const_data_ptr(), static_cast<int64_t>(in.nbytes()));
  }
  // In the order of ranks, so that both have the same.
  Tensor Reduced(const Tensor& own, const Tensor& others, comm::ReduceOp op) const {
    const Tensor &first = rank() == 0 ? own : others, &second = rank() == 0 ? others : own;
    return op == comm::ReduceOp::kMax ? at::maximum(first, second) : first + second;
  }
  const std::unique_ptr<comm::Communicator> ring_;
  const c10::Device device_;
};

constexpr int kSteps = 3;

integration::Case TensorParallelCase() {
  for (integration::Case test_case : integration::ParityCases()) {
    if (test_case.name == "tp2") return test_case;
  }
  throw std::runtime_error("the parity tests have no case tp2");
}

void TellLosses(const std::vector<float>& losses) {
  for (float loss : losses) Tell(std::to_string(loss) + " ");
}

// The program of a step, cut by asynchronous tensor parallel.
void TrainByRotations(c10::Device device, const comm::CommunicatorFactory& rings, std::unique_ptr<comm::Streams> streams) {
  const int64_t rank = RankOfSelf();
  integration::Case test_case = TensorParallelCase();
  test_case.recipe.mutable_compile()->set_enable(true);
  test_case.recipe.mutable_parallelism()->set_enable_async_tensor_parallel(true);
  const auto resolved = Must(parallel::ResolvedRecipe::Create(test_case.recipe, test_case.model, kRanks));
  const comm::CommunicatorFactory factory =
      [&](const mesh::Group& group, int64_t index, int64_t channel) -> absl::StatusOr<std::unique_ptr<comm::Communicator>> {
    auto ring = rings(group, index, channel);
    if (!ring.ok()) return ring;
    return std::unique_ptr<comm::Communicator>(new ByRotations(*std::move(ring), device));
  };
  const auto runtime = Must(comm::Runtime::Create(rank, resolved.mesh().Groups(rank), std::move(streams), factory));
  const comm::RuntimeScope scope(runtime.get());
  auto step = Must(train::TrainStep::Build(resolved, device, /*materialize=*/true));
  std::string warning;
  const auto programs =
      Must(train::AdoptPrograms(train::CapturePrograms(resolved, device), resolved.recipe().compile(), *step, device, &warning));
  ASSERT_NE(programs.step, nullptr) << warning;
  std::vector<float> losses;
  for (int i = 0; i < kSteps; ++i) {
    FillDeviceInputs(step->inputs(), test_case, resolved, rank, i);
    losses.push_back(Must(programs.step->Run()).loss.item<float>());
  }
  TellLosses(losses);
}

TEST(SymmetricRank, DISABLED_Trains) {
  const comm::CudaPlugin& plugin = PluginOfSelf();
  TrainByRotations(DeviceOfSelf(plugin), Must(plugin.make_symmetric_factory(Options(std::chrono::seconds(20)))),
                   plugin.make_streams());
}
TEST(SymmetricRank, DISABLED_TrainsByRotationsOfGloo) {
  comm::RendezvousOptions options = Options(std::chrono::seconds(kCpuLimitSeconds));
  options.connect_timeout = options.timeout;
  TrainByRotations(at::kCPU, Must(comm::MakeGlooFactory(options)), comm::MakeThreadStreams());
}

// In a process that has no GPU open: its ranks are forked.
TEST(SymmetricRank, DISABLED_TrainsOnTheCpu) { TellLosses(integration::Train(TensorParallelCase(), kSteps).losses); }

void ExpectLossesOfTheCpu(const std::vector<RankOutcome>& outcomes) {
  const auto on_cpu = RunSelf("SymmetricRank.DISABLED_TrainsOnTheCpu", 1, kCpuLimitSeconds);
  const auto read = [](const std::string& text) {
    std::istringstream in(text);
    return std::vector<float>(std::istream_iterator<float>(in), {});
  };
  const std::vector<float> expected = read(on_cpu.front().told);
  ASSERT_EQ(expected.size(), size_t{kSteps});
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.exit_code, 0);
    const std::vector<float> losses = read(outcome.told);
    ASSERT_EQ(losses.size(), expected.size()) << outcome.told;
    for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-3) << "step " << i;
  }
}

TEST_F(SmokeSymmetric, AsynchronousTensorParallelTrainsAsTheCpuDoes) {
  RunRanks("Trains");
  ExpectLossesOfTheCpu(outcomes_);
}

TEST(SymmetricRegion, TrainsByRotationsOnTheCpu) {
  ExpectLossesOfTheCpu(RunSelf("SymmetricRank.DISABLED_TrainsByRotationsOfGloo", kRanks, kCpuLimitSeconds));
}

// Rank 1 ends after one rotation; rank 0 hears of it by the time-out, lets its device go on, and ends.
TEST(SymmetricRank, DISABLED_LosesItsPeer) {
  const comm::CudaPlugin& plugin = PluginOfSelf();
  const auto options = at::TensorOptions().dtype(at::kFloat).device(DeviceOfSelf(plugin));
  const auto factory = Must(plugin.make_symmetric_factory(Options(std::chrono::seconds(3))));
  auto ring = Must(factory({mesh::Dim::kTp, {0, 1, kRanks}}, RankOfSelf(), comm::kCompute));
  const auto streams = plugin.make_streams();
  streams->SetHealth([&] { return ring->Health(); });
  const Tensor in = at::full({1000}, RankOfSelf() + 1.0, options), out = at::zeros({1000}, options);
  const auto rotate = [&] {
    return streams->Post(comm::kRotate, [&] { return ring->Rotate(out.mutable_data_ptr(), in.const_data_ptr(), out.nbytes()); });
  };
  Order(*streams, comm::kCompute, comm::kRotate, 1);
  Must(rotate());
  Must(streams->Drain());
  EXPECT_EQ(out.sum().item<float>(), 1000 * (2 - RankOfSelf()));
  if (RankOfSelf() == 1) {
    std::this_thread::sleep_for(std::chrono::seconds(1));  // rank 0 has what was sent
    _exit(0);
  }
  Must(rotate());
  const absl::Status lost = streams->Drain();
  EXPECT_EQ(lost.code(), absl::StatusCode::kDeadlineExceeded) << lost;
  Tell(lost.ToString());
  ring->Abort();
  EXPECT_EQ(rotate().code(), absl::StatusCode::kUnavailable);
  ring.reset();
  EXPECT_EQ(in.sum().item<float>(), 1000) << "the device goes on";
}

TEST_F(SmokeSymmetric, ALostPeerIsAStatusAndTheDeviceGoesOn) {
  RunRanks("LosesItsPeer");
  EXPECT_NE(outcomes_[0].told.find("rotate of group tp of ranks 0 to 1 did not end"), std::string::npos) << outcomes_[0].told;
}

TEST(SymmetricRank, DISABLED_SharesACard) {
  const comm::CudaPlugin& plugin = PluginOfSelf();
  unsetenv("TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES");
  const auto factory = Must(plugin.make_symmetric_factory(Options(std::chrono::seconds(20))));
  const auto ring = factory({mesh::Dim::kTp, {0, 1, kRanks}}, RankOfSelf(), comm::kCompute);
  EXPECT_EQ(ring.status().code(), absl::StatusCode::kFailedPrecondition);
  Tell(std::string(ring.status().message()));
  // Rank 0 holds the store in which the other may still be reading.
  if (RankOfSelf() == 0) std::this_thread::sleep_for(std::chrono::seconds(2));
}

TEST_F(SmokeSymmetric, AGroupThatCannotAgreesOnTheReason) {
  if (plugin_->devices >= kRanks) GTEST_SKIP() << "each rank has a GPU of its own here";
  RunRanks("SharesACard");
  EXPECT_EQ(outcomes_[0].told, outcomes_[1].told);
  EXPECT_NE(outcomes_[0].told.find("overlapping devices"), std::string::npos) << outcomes_[0].told;
}

}  // namespace
}  // namespace legoai::gpu

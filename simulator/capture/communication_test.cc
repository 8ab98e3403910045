// A step with everything that is no ATen operator: side streams, events, collectives, storages resized away, gradients dropped.
// Captured without data for a rank of two, recorded on that rank over Gloo, and executed.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/trace/effects.h"
#include "core/trace/verify.h"
#include "worker/comm/ops.h"
#include "worker/comm/testing/process_group_test_util.h"
#include "worker/graph/executor.h"
#include "worker/graph/fake/fake_device.h"
#include "worker/graph/fake/testing/capture_recorder.h"
#include "worker/graph/recorder.h"

namespace legoai::sim {
namespace {

using at::Tensor;
using graph::Category;
using graph::CategoryScope;
using graph::Phase;
using graph::Trace;
using ::testing::IsEmpty;
using testing::SameBits;

constexpr int64_t kRows = 6, kColumns = 4;

// One weight, sharded over two ranks: gathered before its use, its gradient scattered after.
struct Step {
  comm::Runtime& runtime;
  int64_t group = runtime.GroupId(mesh::Dim::kDpShard);
  int64_t fork = runtime.NewEvent(), gathered = runtime.NewEvent(), reduced = runtime.NewEvent();
  Tensor shard = at::zeros({kRows / 2, kColumns}), flat = at::zeros({kRows, kColumns}), gradient = at::zeros_like(shard);
  Tensor input = at::zeros({5, kRows}), rate = at::zeros({});
  Tensor weight = flat.detach().set_requires_grad(true);

  explicit Step(comm::Runtime& runtime) : runtime(runtime) { comm::ResizeStorage(flat, 0); }
  void Fill(int64_t step) {
    shard.copy_(at::arange(shard.numel()).view(shard.sizes()) * 0.01 * (runtime.rank() + 1));
    input.fill_(0.1 * (runtime.rank() + 1) + 0.01 * step);
    rate.fill_(0.5);
  }
  std::vector<std::pair<std::string, Tensor>> State() {
    return {{"shard", shard}, {"flat", flat}, {"gradient", gradient}, {"input", input}, {"rate", rate}};
  }

  void OnStream(int64_t stream, int64_t done, const std::function<void()>& work) {
    comm::RecordEvent(comm::kCompute, fork);
    comm::WaitEvent(stream, fork);
    comm::StreamScope scope(stream);
    work();
    comm::RecordEvent(stream, done);
  }
  Tensor Forward() {
    graph::PhaseScope phase(Phase::kForward);
    {
      at::NoGradGuard no_grad;
      comm::ResizeStorage(flat, kRows * kColumns * 4);
      OnStream(comm::kAllGather, gathered, [&] { comm::AllGatherInto(flat, shard, group); });
      comm::WaitEvent(comm::kCompute, gathered);
    }
    static const std::string kLayer = "layer", kHead = "head";
    Tensor hidden;
    {
      graph::AnnotationScope<const std::string*> module(&graph::Annotation::module, &kLayer);
      hidden = at::matmul(input, weight).tanh();
    }
    graph::AnnotationScope<const std::string*> module(&graph::Annotation::module, &kHead);
    return hidden.pow(2).sum();
  }
  void Backward(const Tensor& loss) {
    graph::PhaseScope phase(Phase::kBackward);
    loss.backward();
    at::NoGradGuard no_grad;
    graph::TagStorage(weight.grad(), Category::kUnshardedGradient);
    OnStream(comm::kReduceScatter, reduced, [&] { comm::ReduceScatterInto(gradient, weight.grad(), group); });
    weight.mutable_grad() = Tensor();  // the runtime holds it until the wait below
    comm::WaitEvent(comm::kCompute, reduced);
    comm::ResizeStorage(flat, 0);
  }
  Tensor Run() {
    Tensor loss = Forward();
    Backward(loss);
    at::NoGradGuard no_grad;
    graph::PhaseScope phase(Phase::kOptimizer);
    shard.sub_(gradient * rate);
    return loss.detach();
  }
};

// Records one step of `step`; the recorder must not be recording yet.
Trace Record(graph::Recorder& recorder, Step& step, Tensor* loss = nullptr) {
  for (const auto& [name, tensor] : step.State()) recorder.Input(name, tensor, Category::kOther);
  recorder.SetRecording(true);
  const Tensor result = step.Run();
  recorder.SetRecording(false);
  recorder.Output("loss", result);
  if (loss != nullptr) *loss = result;
  return recorder.Finish();
}

Trace CaptureFake(int64_t rank) {
  const mesh::Mesh mesh{.dp_shard = 2};
  auto runtime = comm::Runtime::Create(rank, mesh.Groups(rank), comm::MakeFakeStreams(), nullptr).value();
  comm::RuntimeScope scope(runtime.get());
  FakeDevice device;
  graph::Recorder recorder(&device);
  recorder.SetRecording(false);
  Step step(*runtime);
  return Record(recorder, step);
}

TEST(CommunicationTest, FakeCaptureEqualsGlooAndExecutes) {
  comm::testing::RunRanks({.dp_shard = 2}, [](int64_t rank, comm::Runtime& runtime) {
    Step eager(runtime), executed(runtime);
    const Trace fake = CaptureFake(rank);
    EXPECT_THAT(fake.warnings, IsEmpty());
    auto executor = graph::Executor::Create(fake, c10::kCPU).value();
    executed.Fill(0);
    for (const auto& [name, tensor] : executed.State()) EXPECT_TRUE(executor->Bind(name, tensor).ok()) << name;
    eager.Fill(0);
    for (int64_t step = 0; step < 3; ++step) {
      eager.input.fill_(0.1 * rank + step);
      executed.input.fill_(0.1 * rank + step);
      Tensor loss;
      if (step == 1) {
        graph::Recorder recorder;
        recorder.SetRecording(false);
        EXPECT_THAT(graph::Differences(fake, Record(recorder, eager, &loss)), IsEmpty());
      } else {
        loss = eager.Run();
      }
      const absl::Status status = executor->Run();
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_TRUE(SameBits(*executor->Output("loss"), loss)) << "loss of step " << step;
      EXPECT_TRUE(SameBits(eager.shard, executed.shard)) << "weights after step " << step;
    }
  });
}

TEST(CommunicationTest, EveryWaitIsNeeded) {
  const Trace trace = CaptureFake(1);
  EXPECT_THAT(graph::Races(trace), IsEmpty());
  EXPECT_THAT(graph::BadReads(trace), IsEmpty());
  int waits = 0;
  for (size_t i = 0; i < trace.instructions.size(); ++i) {
    const auto event = graph::EventOf(trace, trace.instructions[i]);
    if (!event || event->is_record) continue;
    Trace dropped = trace;
    dropped.instructions.erase(dropped.instructions.begin() + i);
    EXPECT_FALSE(graph::Races(dropped).empty()) << "wait " << waits;
    ++waits;
  }
  EXPECT_EQ(waits, 4);
}

std::string ModuleOf(const Trace& trace, const std::string& name, Phase phase) {
  for (const auto& instruction : trace.instructions) {
    if (instruction.kind == graph::Instruction::Kind::kOperator && instruction.phase == phase &&
        trace.OperatorName(instruction) == name) {
      return trace.modules[instruction.module];
    }
  }
  return "no such operator";
}

TEST(CommunicationTest, BackwardBelongsToTheModuleOfItsForward) {
  const Trace trace = CaptureFake(0);
  EXPECT_EQ(ModuleOf(trace, "aten::mm", Phase::kForward), "layer");
  EXPECT_EQ(ModuleOf(trace, "aten::mm", Phase::kBackward), "layer");
  EXPECT_EQ(ModuleOf(trace, "aten::tanh_backward", Phase::kBackward), "layer");
  EXPECT_EQ(ModuleOf(trace, "aten::pow.Tensor_Scalar", Phase::kBackward), "head");
  EXPECT_EQ(ModuleOf(trace, "aten::sub_.Tensor", Phase::kOptimizer), "");
}

TEST(CommunicationTest, CategoriesAndLifetimes) {
  const Trace trace = CaptureFake(0);
  int activations = 0, gradients = 0, unsharded = 0;
  for (const auto& storage : trace.storages) {
    activations += storage.category == Category::kActivation;
    gradients += storage.category == Category::kActivationGradient;
    unsharded += storage.category == Category::kUnshardedGradient;
  }
  EXPECT_GE(activations, 3);  // matmul, tanh, pow, sum
  EXPECT_GE(gradients, 3);
  EXPECT_EQ(unsharded, 1);
  // The gradient is dropped before the wait, but dies with it.
  bool waited = false;
  for (const auto& instruction : trace.instructions) {
    const auto event = graph::EventOf(trace, instruction);
    if (event && !event->is_record && event->stream == comm::kCompute) waited = instruction.phase == Phase::kBackward;
    if (instruction.kind == graph::Instruction::Kind::kFree &&
        trace.storages[instruction.immediate].category == Category::kUnshardedGradient) {
      EXPECT_TRUE(waited);
      --unsharded;
    }
  }
  EXPECT_EQ(unsharded, 0);
}

TEST(CommunicationTest, AWorldOfAnySizeIsCapturedByOneProcess) {
  EXPECT_THAT(graph::Differences(CaptureFake(0), CaptureFake(1)), IsEmpty());
}

}  // namespace
}  // namespace legoai::sim

// Steps with data parallelism of every kind, rank by rank over real processes: the capture on the fake device, made by one
// process without communication, is the program of the real run, and executing it gives the real run's weights bit by bit.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/trace/verify.h"
#include "worker/comm/runtime.h"
#include "worker/comm/streams.h"
#include "worker/graph/executor.h"
#include "worker/graph/fake/fake_device.h"
#include "worker/graph/recorder.h"
#include "worker/parallel/testing/tiny_job.h"
#include "worker/train/loss.h"

namespace legoai::sim {
namespace {

using at::Tensor;
using mesh::Mesh;
using parallel::testing::TinyJob;
using ::testing::IsEmpty;

constexpr int64_t kGlobalBatch = parallel::testing::kGlobalBatch, kSeq = parallel::testing::kSequence;

// A rank's part of the model, and a step with a plain update. Every tensor that lives across steps has a name.
class Step {
 public:
  Step(const TinyJob& test, int64_t rank, bool real) : resolved_(DimsOf(test)) {
    parallelized_ = parallel::Parallelize(model::BuildModel(test.model).value(), resolved_).value();
    parallel::Materialize(parallelized_, at::kCPU, 7, /*initialize=*/real);
    parallel::DataParallel* data_parallel = parallelized_.data_parallel.get();
    runner_ = std::make_unique<parallel::StageRunner>(
        parallelized_.model.get(), train::MakeCrossEntropy(1.0 / (kGlobalBatch * kSeq)),
        parallel::testing::StageOptionsOf(resolved_, parallelized_, rank),
        parallel::StageHooks{
            [data_parallel](size_t chunk, bool last, auto part) { data_parallel->BeginBackward(last, chunk, part); },
            [data_parallel](size_t chunk, bool last, auto part) { data_parallel->EndBackward(last, chunk, part); }});
    const int64_t rows = kGlobalBatch / resolved_.mesh().dp();
    const auto integers = at::TensorOptions().dtype(at::kLong);
    inputs_ = {at::zeros({rows, kSeq}, integers), at::zeros({rows, kSeq}, integers), at::zeros({rows}, integers),
               at::zeros({2}, integers)};
  }

  std::vector<parallel::StateTensor> State() const {
    std::vector<parallel::StateTensor> state = parallelized_.data_parallel->State();
    for (const auto& [name, buffer] : parallelized_.model->Buffers()) state.push_back({name, buffer, graph::Category::kBuffer});
    state.push_back({"tokens", inputs_.tokens, graph::Category::kInput});
    state.push_back({"targets", inputs_.targets, graph::Category::kInput});
    state.push_back({"samples", inputs_.samples, graph::Category::kInput});
    state.push_back({"rng", inputs_.rng, graph::Category::kInput});
    return state;
  }

  // Only with memory.
  void FillInputs(int64_t rank, int64_t step) {
    const int64_t rows = inputs_.samples.size(0);
    inputs_.samples.copy_(at::arange(rows) + rows * resolved_.mesh().IndexOf(mesh::Dim::kDp, rank));
    inputs_.tokens.copy_((inputs_.samples.view({-1, 1}) * 7 + at::arange(kSeq) * 5 + step) % 12);
    inputs_.targets.copy_((inputs_.tokens * 5 + step) % 12);
    inputs_.rng.copy_(at::arange(2) + step);
  }

  void Run() {
    runner_->Run(inputs_);
    parallelized_.data_parallel->FinishBackward();
    {
      at::NoGradGuard no_grad;
      for (model::Parameter* p : parallelized_.model->Parameters()) p->master.sub_(p->grad, 0.1);
    }
    parallelized_.data_parallel->ReleaseGradients();
    EXPECT_EQ(comm::CurrentRuntime().Drain(), absl::OkStatus());
  }

  std::vector<Tensor> Masters() const {
    std::vector<Tensor> masters;
    for (const model::Parameter* p : parallelized_.model->Parameters()) masters.push_back(p->master);
    return masters;
  }

 private:
  static parallel::ResolvedRecipe DimsOf(const TinyJob& test) {
    return parallel::ResolvedRecipe::Create(parallel::testing::RecipeOf(test), test.model, test.mesh.world()).value();
  }

  parallel::ResolvedRecipe resolved_;
  parallel::ParallelizedModel parallelized_;
  std::unique_ptr<parallel::StageRunner> runner_;
  parallel::StageInputs inputs_;
};

graph::Trace Record(Step& step, graph::Recorder& recorder) {
  for (const auto& state : step.State()) recorder.Input(state.name, state.tensor, state.category);
  recorder.SetRecording(true);
  step.Run();
  recorder.SetRecording(false);
  return recorder.Finish();
}

graph::Trace RecordReal(Step& step) {
  graph::Recorder recorder;
  recorder.SetRecording(false);
  return Record(step, recorder);
}

graph::Trace RecordFake(const TinyJob& test, int64_t rank) {
  const auto nowhere = comm::Runtime::Create(rank, test.mesh.Groups(rank), comm::MakeFakeStreams(), nullptr).value();
  comm::RuntimeScope scope(nowhere.get());
  FakeDevice device;
  graph::Recorder recorder(&device);
  recorder.SetRecording(false);
  Step step(test, rank, /*real=*/false);
  return Record(step, recorder);
}

// Three eager steps, the second one recorded, against three executed ones.
void CheckRank(const TinyJob& test, int64_t rank) {
  const graph::Trace fake = RecordFake(test, rank);
  EXPECT_GT(fake.OperatorCount(), 100);
  EXPECT_THAT(graph::BadReads(fake), IsEmpty());
  EXPECT_THAT(graph::Races(fake), IsEmpty());
  EXPECT_THAT(fake.warnings, IsEmpty());

  Step eager(test, rank, true), executed(test, rank, true);
  auto executor = graph::Executor::Create(fake, c10::kCPU);
  ASSERT_TRUE(executor.ok()) << executor.status();
  for (const auto& state : executed.State()) ASSERT_EQ((*executor)->Bind(state.name, state.tensor), absl::OkStatus());
  for (int64_t step = 0; step < 3; ++step) {
    eager.FillInputs(rank, step);
    if (step == 1) {
      EXPECT_THAT(graph::Differences(RecordReal(eager), fake), IsEmpty());
    } else {
      eager.Run();
    }
    executed.FillInputs(rank, step);
    ASSERT_EQ((*executor)->Run(), absl::OkStatus());
    ASSERT_EQ(comm::CurrentRuntime().Drain(), absl::OkStatus());
    for (size_t i = 0; i < eager.Masters().size(); ++i) {
      EXPECT_TRUE(at::equal(eager.Masters()[i], executed.Masters()[i])) << "parameter " << i << " after step " << step;
    }
  }
}

class DataParallelCaptureTest : public ::testing::TestWithParam<TinyJob> {};

TEST_P(DataParallelCaptureTest, IsTheProgramOfEveryRank) {
  comm::testing::RunRanks(GetParam().mesh, [](int64_t rank, comm::Runtime&) { CheckRank(GetParam(), rank); });
}

std::vector<TinyJob> Cases() {
  const v1::Model gpt2 = parallel::testing::TinyGpt2();
  std::vector<TinyJob> cases;
  for (bool checkpoint : {false, true}) {
    for (const Mesh& mesh : {Mesh{}, Mesh{.dp_replicate = 2}, Mesh{.dp_shard = 3}, Mesh{.dp_replicate = 2, .dp_shard = 2},
                             Mesh{.pp = 2, .dp_shard = 2}}) {
      cases.push_back({.mesh = mesh, .checkpoint = checkpoint});
    }
    cases.push_back({.mesh = {.dp_shard = 2}, .checkpoint = checkpoint, .param = v1::BFLOAT16});
    cases.push_back({.mesh = {.dp_shard = 2}, .model = gpt2, .checkpoint = checkpoint, .accumulation = 3});
    cases.push_back(
        {.mesh = {.dp_replicate = 2}, .model = gpt2, .checkpoint = checkpoint, .accumulation = 2, .param = v1::BFLOAT16});
    cases.push_back({.mesh = {.dp_shard = 2}, .checkpoint = checkpoint, .reshard = v1::RESHARD_NEVER});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Recipes, DataParallelCaptureTest, ::testing::ValuesIn(Cases()), [](const auto& info) {
  const TinyJob& c = info.param;
  return std::to_string(info.index) + "pp" + std::to_string(c.mesh.pp) + "replicate" + std::to_string(c.mesh.dp_replicate) +
         "shard" + std::to_string(c.mesh.dp_shard) + (c.model.architecture() == v1::GPT2 ? "gpt2" : "llama") +
         (c.checkpoint ? "checkpoint" : "") + (c.param == v1::BFLOAT16 ? "bf16" : "");
});

}  // namespace
}  // namespace legoai::sim

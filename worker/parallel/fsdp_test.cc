#include "worker/parallel/fsdp.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "worker/comm/cpu_tensors.h"
#include "worker/comm/testing/process_group_test_util.h"
#include "worker/parallel/activation_checkpoint.h"
#include "worker/parallel/testing/tiny_model.h"

namespace legoai::parallel {
namespace {

using at::Tensor;
using comm::testing::RunRanks;
using mesh::Mesh;
using testing::MakeTinyModel;
using testing::TinyLoss;
using testing::TinyOptions;

constexpr int64_t kGlobalBatch = 36, kSeq = 5, kSteps = 3, kVocab = 11;

struct Case {
  int64_t microbatches = 1;
  TinyOptions model = {};
  bool checkpoint = false;
  bool partial_over_tp = false;  // ranks of tp work on different sequences
  DataParallelOptions options = {};
};

// Everything a rank holds, by name: its part of each gradient of the first step, and of each weight after the last.
struct Part {
  std::vector<int64_t> offsets, sizes;
  std::vector<float> gradient, weight;
};
using Parts = std::map<std::string, Part>;

std::vector<float> Floats(const Tensor& tensor) {
  const Tensor flat = tensor.detach().contiguous();
  return {flat.const_data_ptr<float>(), flat.const_data_ptr<float>() + flat.numel()};
}

class Trainer {
 public:
  Trainer(const Case& test, const Mesh& mesh, int64_t rank)
      : test_(test), data_rank_(rank), data_ranks_(mesh.world()), model_(MakeTinyModel(test.model)) {
    v1::ActivationCheckpoint checkpoint;
    checkpoint.set_mode(test.checkpoint ? v1::AC_FULL : v1::AC_NONE);
    ApplyActivationCheckpoint(*model_, checkpoint);
    for (model::Parameter* p : model_->Parameters()) {
      if (test.partial_over_tp) p->spec.gradient_partial_over = {mesh::Dim::kTp};
    }
    data_parallel_ = std::make_unique<DataParallel>(*model_, test.options);
    testing::FillMasters(*model_);
    data_parallel_->AllocateValues(at::kCPU);
  }

  model::LanguageModel& model() { return *model_; }
  DataParallel& data_parallel() { return *data_parallel_; }

  // The part of the loss of one microbatch of this rank.
  Tensor Forward(int64_t step, int64_t microbatch) {
    const int64_t per_rank = kGlobalBatch / data_ranks_, per_microbatch = per_rank / test_.microbatches;
    const int64_t first = data_rank_ * per_rank + microbatch * per_microbatch;
    model::StepContext& context = model_->context();
    context.rng = at::arange(2, at::kLong) * (step + 1);
    context.samples = at::arange(per_microbatch, at::kLong) + first;
    const Tensor tokens = (context.samples.view({-1, 1}) * 7 + at::arange(kSeq, at::kLong) * 3 + step) % kVocab;
    return TinyLoss((*model_)(tokens), (tokens * 5 + 2) % kVocab, 1.0 / (kGlobalBatch * kSeq));
  }

  void Backward(const Tensor& loss, bool last) {
    data_parallel_->BeginBackward(last);
    loss.backward();
  }

  void ForwardBackward(int64_t step) {
    for (int64_t m = 0; m < test_.microbatches; ++m) Backward(Forward(step, m), m + 1 == test_.microbatches);
    data_parallel_->FinishBackward();
  }

  void Update() {
    c10::AutoGradMode off(false);
    for (model::Parameter* p : model_->Parameters()) p->master.sub_(p->grad, 0.5);
    data_parallel_->ReleaseGradients();
    data_parallel_->GatherUpdated();
  }

 private:
  const Case& test_;
  int64_t data_rank_, data_ranks_;
  std::unique_ptr<model::LanguageModel> model_;
  std::unique_ptr<DataParallel> data_parallel_;
};

// A text of words; floats in hexadecimal, so that nothing is lost.
std::string Write(model::LanguageModel& model, const std::map<std::string, std::vector<float>>& gradients) {
  std::ostringstream out;
  out << std::hexfloat;
  for (model::Parameter* p : model.Parameters()) {
    out << p->name() << ' ' << p->spec.sizes.size();
    for (int64_t x : p->spec.offsets) out << ' ' << x;
    for (int64_t x : p->spec.sizes) out << ' ' << x;
    for (float x : gradients.at(p->name())) out << ' ' << x;
    for (float x : Floats(p->master)) out << ' ' << x;
    out << '\n';
  }
  return out.str();
}

Parts Read(std::istream& in) {
  Parts parts;
  std::string name;
  size_t dims;
  while (in >> name && name != "end" && in >> dims) {
    Part& part = parts[name];
    part.offsets.resize(dims);
    part.sizes.resize(dims);
    int64_t elements = 1;
    for (int64_t& x : part.offsets) in >> x;
    for (int64_t& x : part.sizes) in >> x, elements *= x;
    std::string word;
    for (auto* list : {&part.gradient, &part.weight}) {
      for (int64_t i = 0; i < elements; ++i) in >> word, list->push_back(std::strtof(word.c_str(), nullptr));
    }
  }
  return parts;
}

std::string TrainRank(const Case& test, const Mesh& mesh, int64_t rank) {
  Trainer trainer(test, mesh, rank);
  std::map<std::string, std::vector<float>> gradients;
  for (int64_t step = 0; step < kSteps; ++step) {
    trainer.ForwardBackward(step);
    if (step == 0) {
      for (model::Parameter* p : trainer.model().Parameters()) gradients[p->name()] = Floats(p->grad);
    }
    trainer.Update();
  }
  return Write(trainer.model(), gradients) + "end\n";
}

// What each rank ends with, by case. The cases share one set of processes.
std::vector<std::vector<Parts>> Train(const Mesh& mesh, const std::vector<Case>& cases) {
  std::vector<std::vector<Parts>> results(cases.size());
  for (const std::string& text : RunRanks(mesh, [&](int64_t rank, comm::Runtime&) {
         std::string all;
         for (const Case& test : cases) all += TrainRank(test, mesh, rank);
         return all;
       })) {
    std::istringstream in(text);
    for (auto& ranks : results) ranks.push_back(Read(in));
  }
  return results;
}

double Norm(const std::vector<float>& values) {
  double sum = 0;
  for (float x : values) sum += double(x) * x;
  return std::sqrt(sum);
}

// Each rank's part against the whole of one process, and every element of the whole held by exactly replicate x tp ranks.
void ExpectSame(const Mesh& mesh, const std::vector<Parts>& ranks, const Parts& whole, double tolerance) {
  ASSERT_EQ(ranks.size(), mesh.world());
  for (const auto& [name, expected] : whole) {
    const double scale = std::max(Norm(expected.gradient) / std::sqrt(double(expected.gradient.size())), 1e-4);
    std::vector<int> held(expected.weight.size());
    for (const Parts& rank : ranks) {
      ASSERT_TRUE(rank.count(name)) << name;
      const Part& part = rank.at(name);
      const int64_t columns = expected.sizes.size() > 1 ? expected.sizes[1] : 1;
      for (size_t i = 0; i < part.weight.size(); ++i) {
        const int64_t at = part.offsets[0] * columns + i;
        ++held.at(at);
        ASSERT_NEAR(part.gradient[i], expected.gradient[at], tolerance * scale) << name << " " << at;
        ASSERT_NEAR(part.weight[i], expected.weight[at], tolerance * (scale + std::abs(expected.weight[at])))
            << name << " " << at;
      }
    }
    for (int count : held) EXPECT_EQ(count, mesh.dp_replicate * mesh.tp) << name;
  }
}

Parts OneProcess(bool tied = false) { return Train({}, {{.model = {.tied = tied}}})[0][0]; }

// All of `cases` on `mesh` against one process.
void ExpectLikeOneProcess(const Mesh& mesh, const std::vector<Case>& cases, double tolerance) {
  const Parts untied = OneProcess(false), tied = OneProcess(true);
  const auto results = Train(mesh, cases);
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(::testing::Message() << "tied " << cases[i].model.tied << ", checkpoint " << cases[i].checkpoint
                                      << ", microbatches " << cases[i].microbatches << ", reshard "
                                      << cases[i].options.reshard_after_forward << ", reduce each "
                                      << cases[i].options.reduce_each_microbatch);
    ExpectSame(mesh, results[i], cases[i].model.tied ? tied : untied, tolerance);
  }
}

TEST(DataParallel, OneProcessGivesAutogradsOwnGradients) {
  const Parts found = Train({}, {{.microbatches = 3}})[0][0];
  auto model = MakeTinyModel({});
  testing::FillMasters(*model);
  for (model::Parameter* p : model->Parameters()) p->value = p->master.set_requires_grad(true);
  model->context().rng = at::arange(2, at::kLong);
  model->context().samples = at::arange(kGlobalBatch, at::kLong);
  const Tensor tokens = (model->context().samples.view({-1, 1}) * 7 + at::arange(kSeq, at::kLong) * 3) % kVocab;
  TinyLoss((*model)(tokens), (tokens * 5 + 2) % kVocab, 1.0 / (kGlobalBatch * kSeq)).backward();
  for (model::Parameter* p : model->Parameters()) {
    const auto expected = Floats(p->value.grad());
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found.at(p->name()).gradient[i], expected[i], 1e-6) << p->name();
  }
}

class Layouts : public ::testing::TestWithParam<Mesh> {};

TEST_P(Layouts, TrainLikeOneProcess) {
  std::vector<Case> cases;
  for (bool tied : {false, true}) {
    for (bool checkpoint : {false, true}) {
      for (bool reshard : {false, true}) {
        cases.push_back({.model = {.tied = tied}, .checkpoint = checkpoint, .options = {.reshard_after_forward = reshard}});
      }
    }
  }
  for (bool reshard : {false, true}) {
    for (bool each : {false, true}) {
      cases.push_back({.microbatches = 3,
                       .checkpoint = reshard != each,
                       .options = {.reshard_after_forward = reshard, .reduce_each_microbatch = each}});
    }
  }
  for (int64_t depth : {0, 2}) cases.push_back({.options = {.prefetch_depth = depth}});
  for (bool each : {false, true}) {
    cases.push_back({.microbatches = 3,
                     .checkpoint = each,
                     .options = {.reshard_after_forward = false,
                                 .values_stay = GetParam().dp_shard > 1,
                                 .prefetch_depth = each ? 1 : 2,
                                 .reduce_each_microbatch = each}});
  }
  ExpectLikeOneProcess(GetParam(), cases, 1e-4);
}

TEST_P(Layouts, MixedPrecisionStaysNear) {
  std::vector<Case> cases;
  for (c10::ScalarType reduce : {at::kFloat, at::kBFloat16}) {
    for (int64_t microbatches : {1, 3}) {
      cases.push_back({.microbatches = microbatches,
                       .checkpoint = microbatches == 1,
                       .options = {.precision = {at::kBFloat16, reduce}, .reduce_each_microbatch = reduce == at::kFloat}});
    }
  }
  ExpectLikeOneProcess(GetParam(), cases, 0.15);
}

INSTANTIATE_TEST_SUITE_P(All, Layouts,
                         ::testing::Values(Mesh{}, Mesh{.dp_replicate = 2}, Mesh{.dp_shard = 2}, Mesh{.dp_shard = 3},
                                           Mesh{.dp_shard = 4}, Mesh{.dp_replicate = 2, .dp_shard = 2},
                                           Mesh{.dp_shard = 4, .reshard = 2}, Mesh{.dp_shard = 6, .reshard = 3}),
                         [](const auto& info) {
                           return "replicate" + std::to_string(info.param.dp_replicate) + "shard" +
                                  std::to_string(info.param.dp_shard) +
                                  (info.param.reshard > 1 ? "reshard" + std::to_string(info.param.reshard) : "");
                         });

TEST(DataParallel, PartialGradientsAreSummedFirst) {
  for (const Mesh& mesh : {Mesh{.tp = 2}, Mesh{.dp_shard = 2, .tp = 2}}) {
    ExpectLikeOneProcess(mesh, {{.partial_over_tp = true}, {.microbatches = 3, .partial_over_tp = true}}, 1e-4);
  }
}

int64_t GatheredBytes(const DataParallel& data_parallel) {
  int64_t bytes = 0;
  for (const StateTensor& state : data_parallel.State()) {
    if (state.category == graph::Category::kUnshardedParameter) bytes += state.tensor.storage().nbytes();
  }
  return bytes;
}

TEST(DataParallel, ValuesGoWhenThePolicySays) {
  for (bool reshard : {false, true}) {
    const Case test{.microbatches = 2, .options = {.reshard_after_forward = reshard}};
    const Mesh mesh{.dp_shard = 3};
    RunRanks(mesh, [&](int64_t rank, comm::Runtime&) {
      Trainer trainer(test, mesh, rank);
      DataParallel& dp = trainer.data_parallel();
      // Rows are padded to thirds: head [11 -> 12, 6] and its norm [6]; the embedding, and three blocks of
      // norm 6, up [7 -> 9, 6], bias 7 -> 9, down [6, 7].
      const int64_t head = (12 * 6 + 6) * 4, all = head + 12 * 6 * 4 + 3 * (6 + 9 * 6 + 9 + 42) * 4;
      EXPECT_EQ(GatheredBytes(dp), 0);
      const Tensor loss = trainer.Forward(0, 0);
      EXPECT_EQ(GatheredBytes(dp), reshard ? head : all);
      trainer.Backward(loss, false);
      EXPECT_EQ(GatheredBytes(dp), reshard ? 0 : all);
      trainer.Backward(trainer.Forward(0, 1), true);
      EXPECT_EQ(GatheredBytes(dp), 0);
      dp.FinishBackward();
      trainer.Update();
      c10::AutoGradMode off(false);
      trainer.Forward(1, 0);
      EXPECT_EQ(GatheredBytes(dp), 0) << "after an evaluation";
    });
  }
}

TEST(DataParallel, NothingIsLeftBehindByAStep) {
  for (bool checkpoint : {false, true}) {
    const Case test{.microbatches = 2, .checkpoint = checkpoint};
    const Mesh mesh{.dp_shard = 2};
    RunRanks(mesh, [&](int64_t rank, comm::Runtime& runtime) {
      comm::InstallCpuMemoryCounter();
      Trainer trainer(test, mesh, rank);
      std::vector<int64_t> live, peak;
      for (int64_t step = 0; step < 4; ++step) {
        comm::ResetCpuPeakBytes();
        trainer.ForwardBackward(step);
        trainer.Update();
        EXPECT_TRUE(runtime.Drain().ok());
        live.push_back(comm::CpuLiveBytes());
        peak.push_back(comm::CpuPeakBytes());
      }
      EXPECT_EQ(live[1], live[3]);
      EXPECT_EQ(peak[1], peak[2]);
      EXPECT_EQ(peak[1], peak[3]) << "memory is released by waits, so each step's peak is the same";
    });
  }
}

TEST(DataParallel, StateHasMastersAndValuesOfTheirOwn) {
  const Case test;
  const Mesh sharded{.dp_shard = 2}, alone;
  RunRanks(sharded, [&](int64_t rank, comm::Runtime&) {
    Trainer trainer(test, sharded, rank);
    EXPECT_EQ(trainer.data_parallel().State().size(), 2 * trainer.model().Parameters().size());
  });
  RunRanks(alone, [&](int64_t rank, comm::Runtime&) {
    Trainer trainer(test, alone, rank);
    EXPECT_EQ(trainer.data_parallel().State().size(), trainer.model().Parameters().size());
    for (model::Parameter* p : trainer.model().Parameters()) EXPECT_TRUE(p->value.is_alias_of(p->master));
  });
}

TEST(DataParallel, AParameterWithoutGradientIsNamed) {
  const Case test;
  const Mesh mesh;
  RunRanks(mesh, [&](int64_t rank, comm::Runtime&) {
    Trainer trainer(test, mesh, rank);
    trainer.data_parallel().BeginBackward(true);
    trainer.model().context().rng = at::arange(2, at::kLong);
    trainer.model().context().samples = at::arange(1, at::kLong);
    (*trainer.model().layers()[0].module)(at::arange(kSeq, at::kLong).view({1, kSeq})).sum().backward();
    try {
      trainer.data_parallel().FinishBackward();
      ADD_FAILURE() << "not noticed";
    } catch (const c10::Error& error) {
      EXPECT_NE(std::string(error.what()).find("blocks.0.up"), std::string::npos) << error.what();
    }
    trainer.data_parallel().ReleaseGradients();
  });
}

}  // namespace
}  // namespace legoai::parallel

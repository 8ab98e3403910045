// Gradients of 16-bit compute are added up in fp32, over microbatches and over ranks: many contributions that are small beside
// the first, against their sum in double precision. Added up or reduced in 16 bits, most of what they add is lost.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "worker/comm/testing/process_group_test_util.h"
#include "worker/parallel/fsdp.h"
#include "worker/parallel/testing/tiny_model.h"

namespace legoai::parallel {
namespace {

using at::Tensor;
using comm::testing::RunRanks;
using mesh::Mesh;

constexpr int64_t kMicrobatches = 48, kSeq = 5, kVocab = 11;

// A loss of which each later contribution is as much smaller as half a unit of the type's last place; times what keeps
// float16's gradients in its range.
double WeightOf(int64_t contribution, at::ScalarType param) {
  const double smaller = param == at::kHalf ? 0x1p-12 : 0x1p-9;
  return contribution == 0 ? 64 : 64 * smaller;
}

// This rank's part of a parameter's gradient.
struct Part {
  ShardSpec spec;
  Tensor gradient;  // fp32
};

// Of contributions `first` to `first` + `count`, one a microbatch; in the order of the model's parameters.
std::vector<Part> Accumulate(const DataParallelOptions& options, int64_t first, int64_t count) {
  const auto model = testing::MakeTinyModel({});
  DataParallel data_parallel(*model, options);
  testing::FillMasters(*model);
  data_parallel.AllocateValues(at::kCPU);
  for (int64_t i = first; i < first + count; ++i) {
    model->context().rng = at::arange(2, at::kLong);
    model->context().samples = at::arange(2, at::kLong) + 2 * i;
    const Tensor tokens = (model->context().samples.view({-1, 1}) * 7 + at::arange(kSeq, at::kLong) * 3) % kVocab;
    const Tensor loss = testing::TinyLoss((*model)(tokens), (tokens * 5 + 2) % kVocab, WeightOf(i, options.precision.param));
    data_parallel.BeginBackward(i + 1 == first + count);
    loss.backward();
  }
  data_parallel.FinishBackward();
  std::vector<Part> parts;
  for (const model::Parameter* p : model->Parameters()) parts.push_back({p->spec, p->grad.clone()});
  return parts;
}

// Whole gradients in double precision, in the order of the model's parameters.
struct Sums {
  std::vector<Tensor> exact, in_16_bits;  // the latter as if each contribution had been added in 16 bits
};

// On one process, where each contribution is a step of its own, so that its gradients are those of its one 16-bit backward.
std::string AddUp(at::ScalarType param, int64_t count) {
  std::vector<Tensor> exact, rounded;
  for (int64_t i = 0; i < count; ++i) {
    const std::vector<Part> parts = Accumulate({.precision = {param, at::kFloat}}, i, 1);
    for (size_t k = 0; k < parts.size(); ++k) {
      const Tensor& gradient = parts[k].gradient;
      EXPECT_TRUE(at::equal(gradient.to(param).to(at::kFloat), gradient)) << parts[k].spec.name << " is not of 16-bit compute";
      if (i == 0) exact.push_back(at::zeros(gradient.sizes(), at::kDouble));
      if (i == 0) rounded.push_back(at::zeros(gradient.sizes(), param));
      exact[k].add_(gradient);
      rounded[k].add_(gradient.to(param));
    }
  }
  std::string bytes;
  for (const auto& list : {exact, rounded}) {
    for (const Tensor& sum : list) {
      const Tensor wide = sum.to(at::kDouble);
      bytes.append(reinterpret_cast<const char*>(wide.const_data_ptr<double>()), wide.nbytes());
    }
  }
  return bytes;
}

Sums SumsOfContributions(at::ScalarType param, int64_t count) {
  const std::string bytes = RunRanks({}, [&](int64_t, comm::Runtime&) { return AddUp(param, count); }).at(0);
  const char* next = bytes.data();
  Sums sums;
  const auto model = testing::MakeTinyModel({});
  for (std::vector<Tensor>* list : {&sums.exact, &sums.in_16_bits}) {
    for (const model::Parameter* p : model->Parameters()) {
      list->push_back(at::zeros(p->spec.global_shape, at::kDouble));
      std::memcpy(list->back().mutable_data_ptr<double>(), next, list->back().nbytes());
      next += list->back().nbytes();
    }
  }
  return sums;
}

// Norm of the difference, relative to that of what is expected; of this rank's parts.
double Error(const std::vector<Tensor>& expected, const std::vector<Part>& actual) {
  double off = 0, all = 0;
  for (size_t k = 0; k < expected.size(); ++k) {
    const ShardSpec& spec = actual[k].spec;
    Tensor part = expected[k];
    for (size_t dim = 0; dim < spec.sizes.size(); ++dim) {
      part = part.narrow(static_cast<int64_t>(dim), spec.offsets[dim], spec.sizes[dim]);
    }
    off += (actual[k].gradient.to(at::kDouble) - part).square().sum().item<double>();
    all += part.square().sum().item<double>();
  }
  return std::sqrt(off / all);
}

class AccumulationTest : public ::testing::TestWithParam<std::tuple<at::ScalarType, Mesh>> {};

TEST_P(AccumulationTest, IsInFp32OverMicrobatchesAndRanks) {
  const auto& [param, mesh] = GetParam();
  const bool one_rank = mesh.world() == 1;
  const Sums sums = SumsOfContributions(param, kMicrobatches * mesh.world());
  RunRanks(mesh, [&, param = param](int64_t rank, comm::Runtime&) {
    const auto error = [&](at::ScalarType reduce, bool each) {
      return Error(sums.exact, Accumulate({.precision = {param, reduce}, .reduce_each_microbatch = each}, rank * kMicrobatches,
                                          kMicrobatches));
    };
    for (const bool each : {true, false}) {
      const double found = error(at::kFloat, each);
      EXPECT_LT(found, 1e-6) << "reduced " << (each ? "each microbatch" : "once");
      // The control: the same test finds sums over ranks in 16 bits.
      if (one_rank) continue;
      EXPECT_GT(error(param, each), 30 * found) << "reduced " << (each ? "each microbatch" : "once");
    }
  });
  if (!one_rank) return;
  // The control: it would find sums over microbatches in 16 bits, which lose most of the later contributions.
  std::vector<Part> rounded;
  const auto model = testing::MakeTinyModel({});
  for (const model::Parameter* p : model->Parameters()) rounded.push_back({p->spec, sums.in_16_bits[rounded.size()]});
  EXPECT_GT(Error(sums.exact, rounded), 5e-3);
}

INSTANTIATE_TEST_SUITE_P(All, AccumulationTest,
                         ::testing::Combine(::testing::Values(at::kBFloat16, at::kHalf),
                                            ::testing::Values(Mesh{}, Mesh{.dp_replicate = 2}, Mesh{.dp_shard = 2},
                                                              Mesh{.dp_replicate = 2, .dp_shard = 2})),
                         [](const auto& info) {
                           const Mesh& mesh = std::get<1>(info.param);
                           return std::string(std::get<0>(info.param) == at::kHalf ? "float16" : "bfloat16") + "_replicate" +
                                  std::to_string(mesh.dp_replicate) + "_shard" + std::to_string(mesh.dp_shard);
                         });

}  // namespace
}  // namespace legoai::parallel

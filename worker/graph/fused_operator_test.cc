// Fused operators against the operators one by one: random programs are run by the executor as they are and fused, and every
// kernel that the pass makes of them is compiled and gives what its members gave, but for roundings.
#include "worker/graph/fused_operator.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/trace/fused_kernel.h"
#include "core/trace/passes/pass_check.h"
#include "core/trace/passes/passes.h"
#include "core/trace/testing/trace_builder.h"
#include "worker/graph/executor.h"
#include "worker/graph/testing/random_program.h"

namespace legoai::graph {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace testing_programs;  // NOLINT: what this test runs

class FusedOperatorTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { setenv("LEGOAI_KERNEL_CACHE", (testing::TempDir() + "/kernels").c_str(), 1); }
};

// Runs random programs as they are and fused, and has `check` compare.
template <class Check>
void ForRandomPrograms(v1::DType dtype, Check check) {
  const unsigned first = std::random_device()();
  std::printf("seed %u\n", first);
  int64_t fused_operators = 0;
  for (unsigned i = 0; i < 24 || (fused_operators <= 24 && i < 200); ++i) {  // some have no kernel
    const unsigned seed = first + i;
    const RandomProgram program(seed, dtype);
    const Trace fused = FuseElementwise(program.trace).value();
    ASSERT_THAT(TraceFindings(fused), IsEmpty()) << "seed " << seed;
    ASSERT_THAT(PassFindings(program.trace, fused), IsEmpty()) << "seed " << seed;
    fused_operators += FusedCount(fused);
    const Tensors one_by_one = RunOn(program.trace, seed), together = RunOn(fused, seed);
    ASSERT_EQ(one_by_one.size(), together.size());
    SCOPED_TRACE(absl::StrCat("seed ", seed, "\n", fused.Dump(true)));
    check(seed, one_by_one, together);
  }
  EXPECT_GT(fused_operators, 24);
}

// By the largest number of the program, for what is subtracted may be larger than what is left.
TEST_F(FusedOperatorTest, ComputesWhatItsMembersDidInFloat32) {
  ForRandomPrograms(v1::FLOAT32, [](unsigned, const Tensors& one_by_one, const Tensors& together) {
    double scale = 1;
    for (const auto& [_, tensor] : one_by_one) scale = std::max(scale, Largest(tensor));
    for (const auto& [name, tensor] : one_by_one) EXPECT_LE(Difference(tensor, together.at(name)), 1e-4 * scale) << name;
  });
}

// Of the same program in float32 it is not much further off than its members, which round more often.
TEST_F(FusedOperatorTest, ComputesWhatItsMembersDidInBfloat16) {
  ForRandomPrograms(v1::BFLOAT16, [](unsigned seed, const Tensors& one_by_one, const Tensors& together) {
    const Tensors exact = RunOn(RandomProgram(seed, v1::FLOAT32).trace, seed);
    for (const auto& [name, tensor] : exact) {
      const double members = Difference(tensor, one_by_one.at(name)), fused = Difference(tensor, together.at(name));
      EXPECT_LE(fused, 4 * members + std::max(1.0, Largest(tensor)) / 128) << name;
    }
  });
}

TEST_F(FusedOperatorTest, TakesTheGradientOfANormBetweenSums) {
  const std::string names[] = {"lego::rms_norm_backward", "aten::native_layer_norm_backward"};
  for (const bool is_layer_norm : {false, true}) {
    for (const v1::DType dtype : {v1::FLOAT32, v1::BFLOAT16}) {
      for (const std::vector<int64_t>& shape : {std::vector<int64_t>{2, 3, 8}, {3, 40, 100}, {8, 8, 8}, {5, 16}}) {
        SCOPED_TRACE(absl::StrCat(names[is_layer_norm], " ", v1::DType_Name(dtype), " ", shape.back()));
        const Trace trace = Residual(is_layer_norm, dtype, shape), fused = FuseElementwise(trace).value();
        ASSERT_THAT(TraceFindings(fused), IsEmpty());
        ASSERT_THAT(PassFindings(trace, fused), IsEmpty());
        ASSERT_EQ(FusedCount(fused), 1);
        EXPECT_EQ(fused.OperatorName(fused.instructions.back()), is_layer_norm ? names[1] : names[0] + ".weight");
        const Tensors one_by_one = RunOn(trace, 7), together = RunOn(fused, 7);
        const Tensors exact = RunOn(Residual(is_layer_norm, v1::FLOAT32, shape), 7);
        for (const auto& [name, tensor] : one_by_one) {
          const double scale = std::max(1.0, Largest(tensor));
          if (dtype == v1::FLOAT32) {
            EXPECT_LE(Difference(tensor, together.at(name)), 2e-5 * scale) << name;
          } else {
            EXPECT_LE(Difference(exact.at(name), together.at(name)),
                      Difference(exact.at(name), tensor) + Largest(exact.at(name)) / 128)
                << name;
          }
          // What stays an operator reads the very sum that was written.
          const bool is_exact = name == "up" || name.rfind("of_", 0) == 0;
          EXPECT_TRUE(!is_exact || tensor.equal(together.at(name))) << name;
        }
      }
    }
  }
}

// silu(x) y + x of many elements, so that threads share it.
Trace Large() {
  TraceBuilder b;
  const std::vector<int64_t> shape = {3, 50000};
  const Tensor x = b.Input("x", shape), y = b.Input("y", shape);
  const Tensor open = b.New(v1::FLOAT32, shape), out = b.New(v1::FLOAT32, shape);
  b.Op("aten::silu", {x}, {open});
  b.Op("aten::addcmul", {x, open, y, int64_t{1}}, {out});
  b.Free(b.StorageOf(open));
  Trace trace = b.trace();
  trace.outputs["out"] = out.value;
  return trace;
}

TEST_F(FusedOperatorTest, DoesNotDependOnThreads) {
  const Trace fused = FuseElementwise(Large()).value();
  ASSERT_EQ(FusedCount(fused), 1);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor alone = RunOn(fused, 3).at("out");
  at::set_num_threads(2);
  const at::Tensor shared = RunOn(fused, 3).at("out");
  at::set_num_threads(threads);
  EXPECT_TRUE(alone.equal(shared));
}

// x sigmoid(x) beside double precision, from where it underflows to where it is x; and what is no number stays none.
TEST_F(FusedOperatorTest, IsAsExactAsItsExponential) {
  constexpr int64_t kCount = 40001;
  TraceBuilder b;
  const Tensor x = b.Input("x", {kCount}), open = b.New(v1::FLOAT32, {kCount}), out = b.New(v1::FLOAT32, {kCount});
  b.Op("aten::silu", {x}, {open});
  b.Op("aten::neg", {open}, {out});
  b.Free(b.StorageOf(open));
  Trace trace = b.trace();
  trace.outputs["out"] = out.value;
  const Trace fused = FuseElementwise(trace).value();
  ASSERT_EQ(FusedCount(fused), 1);
  auto executor = Executor::Create(fused, c10::kCPU).value();
  at::Tensor numbers = at::empty({kCount}, at::kFloat);
  float* const in = numbers.mutable_data_ptr<float>();
  for (int64_t i = 0; i + 1 < kCount; ++i) in[i] = -100 + 0.005f * static_cast<float>(i);
  in[kCount - 1] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(executor->Bind("x", numbers).ok());
  ASSERT_TRUE(executor->Run().ok());
  const at::Tensor result = executor->Output("out").value();
  const float* const got = result.const_data_ptr<float>();
  double worst = 0;
  for (int64_t i = 0; i + 1 < kCount; ++i) {
    const double exact = -in[i] / (1 + std::exp(-static_cast<double>(in[i])));
    if (std::abs(exact) < 1e-30) continue;
    worst = std::max(worst, std::abs(got[i] - exact) / std::abs(exact));
  }
  EXPECT_LE(worst, 4 * std::ldexp(1.0, -23));
  EXPECT_TRUE(std::isnan(got[kCount - 1]));
  EXPECT_EQ(got[0], 0) << "e^100 is no float";
}

TEST_F(FusedOperatorTest, RefusesTensorsAndKernelsThatAreNotItsOwn) {
  Trace fused = FuseElementwise(Large()).value();
  for (Constant& constant : fused.constants) {
    if (std::holds_alternative<std::string>(constant)) constant = std::string("loop 8\nin FLOAT32 {1}\ndo aten::mm r0 > r1\n");
  }
  EXPECT_THAT(Executor::Create(fused, c10::kCPU).status().message(), HasSubstr("aten::mm"));
  Trace other = FuseElementwise(Large()).value();
  for (Constant& constant : other.constants) {
    if (std::holds_alternative<std::string>(constant))
      constant = std::string("loop 8\nin FLOAT32 {1}\nmake r0 FLOAT32 {1}/[8]{1}\n");
  }
  auto executor = Executor::Create(other, c10::kCPU).value();
  ASSERT_TRUE(executor->Bind("x", at::empty({3, 50000}, at::kFloat)).ok());
  ASSERT_TRUE(executor->Bind("y", at::empty({3, 50000}, at::kFloat)).ok());
  EXPECT_THAT(executor->Run().message(), HasSubstr("is given 2"));
}

}  // namespace
}  // namespace legoai::graph

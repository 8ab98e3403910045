// The CUDA of kernels against their C++: emulated thread by thread on the same numbers, and compiled by NVRTC for a card.
#include "worker/graph/cuda_kernel_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/trace/device_results.h"
#include "core/trace/passes/passes.h"
#include "worker/graph/cuda_kernel_cache.h"
#include "worker/graph/testing/chains.h"
#include "worker/graph/testing/check_cuda_kernel.h"
#include "worker/graph/testing/nvrtc_library.h"
#include "worker/graph/testing/random_program.h"

namespace legoai::graph {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace testing_cuda;      // NOLINT
using namespace testing_programs;  // NOLINT

class CudaKernelSourceTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("LEGOAI_KERNEL_CACHE", (::testing::TempDir() + "/kernels").c_str(), 1);
    const absl::Status nvrtc = UseFetchedNvrtc();
    ASSERT_TRUE(nvrtc.ok()) << nvrtc;
  }
};

std::set<std::string> KernelsOf(const Trace& trace) {
  const Trace fused = FuseElementwise(trace).value();
  std::set<std::string> texts;
  for (const Instruction& instruction : fused.instructions) {
    if (const std::string* text = FusedKernelText(fused, instruction)) texts.insert(*text);
  }
  return texts;
}

TEST_F(CudaKernelSourceTest, RandomKernelsComputeWhatTheCpusDo) {
  const unsigned first = std::random_device()();
  std::printf("seed %u\n", first);
  std::set<std::string> texts;
  for (unsigned i = 0; i < 12 || (texts.size() <= 20 && i < 100); ++i) {  // some have no kernel, or one
    for (const v1::DType dtype : {v1::FLOAT32, v1::BFLOAT16}) {
      texts.merge(KernelsOf(ProgramFor(v1::CUDA, RandomProgram(first + i, dtype).trace)));
    }
  }
  EXPECT_GT(texts.size(), 20u);
  for (const std::string& text : texts) CheckCudaKernel(text, first);
}

// Rows that a warp has, that several warps have, and that take each thread several turns; with every width of a read.
TEST_F(CudaKernelSourceTest, RowsOfEveryLengthAreSummed) {
  for (const bool is_layer_norm : {false, true}) {
    for (const v1::DType dtype : {v1::FLOAT32, v1::BFLOAT16}) {
      for (const int64_t width : {7, 24, 100, 250, 256, 1000, 1001, 4096, 16384}) {
        const Trace trace = Residual(is_layer_norm, dtype, {3, 2, width}, v1::FLOAT32);
        const std::set<std::string> texts = KernelsOf(trace);
        ASSERT_EQ(texts.size(), 1u);
        CheckCudaKernel(*texts.begin(), static_cast<unsigned>(width));
      }
    }
  }
}

TEST_F(CudaKernelSourceTest, ChainsOfModelsAreOneKernelEach) {
  for (const Chain& chain : kChains) {
    for (const v1::DType dtype : {v1::FLOAT32, v1::BFLOAT16}) {
      for (const int64_t width : {128, 384, 4096}) {
        const std::set<std::string> texts = KernelsOf(chain.make(37, width, dtype));
        ASSERT_EQ(texts.size(), 1u) << chain.name;
        CheckCudaKernel(*texts.begin(), 3);
      }
    }
  }
}

// A sum, its norm, and the rotation of this, which reads what other threads have summed.
std::string NormAndRotation(int64_t width, int64_t shift) {
  const std::string row = absl::StrCat("{", width, ",1}");
  return absl::StrCat("loop 5,", width, "\nin BFLOAT16 ", row, "\nin BFLOAT16 {0,1}\nin FLOAT32 ", row, "\nin FLOAT32 ", row,
                      "\ndo aten::add.Tensor r0 r2 0.5 > r4\ndo lego::rms_norm r4 r1 0.001 > r5 r6\ndo aten::roll r5 ", shift,
                      " > r7\ndo aten::mul.Tensor r5 r2 > r8\ndo aten::addcmul r8 r7 r3 1 > r9\nmake r9 BFLOAT16 ", row, "/[5,",
                      width, "]", row, "\nmake r6 FLOAT32 {1,0}/[5]{1}\n");
}

TEST_F(CudaKernelSourceTest, WhatIsRolledBehindANormIsShared) {
  const std::vector<std::pair<int64_t, int64_t>> rolls = {{128, 64}, {64, 32}, {10, 5}, {2048, 3}, {100, 96}};
  for (const auto& [width, shift] : rolls) {
    const std::string text = NormAndRotation(width, shift);
    EXPECT_TRUE(absl::StrContains(CudaSourceOf(ParseFusedKernel(text).value()).value().text, "__shared__ float rows_of_4"));
    CheckCudaKernel(text, 11);
  }
  EXPECT_THAT(CudaSourceOf(ParseFusedKernel(NormAndRotation(16384, 3)).value()).status().message(),
              HasSubstr("rolls rows of 16384 elements behind a norm"));
}

// Tensors that do not lie as the loop does: columns, numbers of rows, every second element.
TEST_F(CudaKernelSourceTest, StridesOfEveryKindAreRead) {
  const std::string text =
      "loop 6,4,40\nin BFLOAT16 {160,40,1}\nin FLOAT32 {1,6,24}\nin BFLOAT16 {320,80,2}\nin FLOAT32 {0,0,0}\n"
      "in FLOAT32 {41,250,1}\n"
      "do aten::mul.Tensor r0 r1 > r5\ndo aten::add.Tensor r5 r2 0.5 > r6\ndo aten::sub.Tensor r6 r3 1 > r7\n"
      "do aten::div.Tensor r4 3 > r8\ndo aten::add.Tensor r8 r7 1 > r9\n"
      "make r9 BFLOAT16 {1,6,24}/[6,4,40]{1,6,24}\nmake r9 FLOAT32 {160,40,1}/[6,4,40]{160,40,1}\n";
  CheckCudaKernel(text, 5);
}

CudaSource Negation(const std::string& dtype, int64_t elements) {
  const std::string text = absl::StrCat("loop ", elements, "\nin ", dtype, " {1}\ndo aten::neg r0 > r1\nmake r1 ", dtype,
                                        " {1}/[", elements, "]{1}\n");
  return CudaSourceOf(ParseFusedKernel(text).value()).value();
}

// One that takes a grid several turns, and indices of 64 bits.
TEST_F(CudaKernelSourceTest, LargeKernelsAreCounted) {
  const CudaSource large = Negation("FLOAT32", int64_t{1} << 32), small = Negation("FLOAT32", 1000);
  EXPECT_THAT(large.text, HasSubstr("long long chunk"));
  EXPECT_EQ(large.functions.back().blocks, 65536);
  EXPECT_THAT(small.text, Not(HasSubstr("long long")));
  EXPECT_EQ(small.functions.back().blocks, 4);
}

TEST_F(CudaKernelSourceTest, ReadsAreAsWideAsShapesAllow) {
  const CudaSource halves = Negation("BFLOAT16", 64), floats = Negation("FLOAT32", 64), some = Negation("BFLOAT16", 66);
  ASSERT_EQ(halves.functions.size(), 2u);
  EXPECT_THAT(halves.text, HasSubstr("Vec<bf16, 8>"));
  EXPECT_THAT(floats.text, HasSubstr("Vec<float, 4>"));
  EXPECT_THAT(some.text, HasSubstr("Vec<bf16, 2>"));
  EXPECT_THAT(halves.functions[0].alignment, Each(16));
  EXPECT_THAT(some.functions[0].alignment, ElementsAre(4, 4));
  EXPECT_THAT(halves.functions[1].alignment, ElementsAre(2, 2));
  EXPECT_EQ(Negation("BFLOAT16", 33).functions.size(), 1u);
}

// The same kernel, the same text: files of the cache are found again.
TEST_F(CudaKernelSourceTest, IsTheSameForEqualKernels) {
  const FusedKernel kernel = ParseFusedKernel(NormAndRotation(128, 64)).value();
  EXPECT_EQ(CudaSourceOf(kernel).value().text, CudaSourceOf(ParseFusedKernel(TextOf(kernel)).value()).value().text);
}

}  // namespace
}  // namespace legoai::graph

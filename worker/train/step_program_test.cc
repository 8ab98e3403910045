// What ranks settle before they run programs. That programs train as eager steps do is tested in tests/integration.
#include "worker/train/step_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/recipe/recipe.h"
#include "proto/errors.h"
#include "worker/comm/testing/process_group_test_util.h"
#include "worker/graph/recorder.h"
#include "worker/launch/testing/tiny_run.h"
#include "worker/train/agreement.h"

namespace legoai::train {
namespace {

using ::testing::HasSubstr;

parallel::ResolvedRecipe Fsdp2(bool fall_back) {
  v1::Recipe recipe = parallel::DefaultRecipe();
  recipe.mutable_training()->set_local_batch_size(1);
  recipe.mutable_training()->set_seq_len(8);
  recipe.mutable_parallelism()->set_data_parallel_shard_degree(2);
  recipe.mutable_compile()->set_enable(true);
  recipe.mutable_compile()->set_fall_back_to_eager(fall_back);
  return parallel::ResolvedRecipe::Create(recipe, launch::testing::TinyLlama(), 2).value();
}

TEST(AgreeOnFault, IsTheSameOnAllRanks) {
  comm::testing::RunRanks({.dp_shard = 3}, [](int64_t rank, comm::Runtime&) {
    EXPECT_EQ(AgreeOnFault("", at::kCPU).value(), "");
    EXPECT_EQ(AgreeOnFault(rank == 0 ? "no disk" : "", at::kCPU).value(), "rank 0: no disk");
    EXPECT_EQ(AgreeOnFault(rank == 2 ? "" : "no memory", at::kCPU).value(), "rank 1: no memory");
    EXPECT_EQ(AgreeOnFault(std::string(5000, 'x'), at::kCPU).value(), "rank 2: " + std::string(1023, 'x'));
  });
}

TEST(CompareTexts, NamesOneThatDiffersAndTheFirst) {
  comm::testing::RunRanks({.dp_shard = 3}, [](int64_t rank, comm::Runtime&) {
    EXPECT_EQ(CompareTexts("gcc 12", at::kCPU).value(), "");
    EXPECT_EQ(CompareTexts(std::string(5000, 'x'), at::kCPU).value(), "");
    EXPECT_EQ(CompareTexts(rank == 1 ? "gcc 13" : "gcc 12", at::kCPU).value(), "rank 1: gcc 13; rank 0: gcc 12");
    EXPECT_EQ(CompareTexts(rank == 0 ? "gcc 13" : "gcc 12", at::kCPU).value(), "rank 2: gcc 12; rank 0: gcc 13");
  });
}

// A capture beside another recording fails: here on one of two ranks.
absl::StatusOr<StepPrograms> CaptureOnRank0(int64_t rank, const parallel::ResolvedRecipe& resolved) {
  std::optional<graph::Recorder> in_the_way;
  if (rank == 1) in_the_way.emplace();
  auto captured = CapturePrograms(resolved, at::kCPU);
  EXPECT_EQ(captured.ok(), rank == 0) << captured.status();
  return captured;
}

TEST(AdoptPrograms, FailOnAllRanksWhereOneCannotCapture) {
  const auto resolved = Fsdp2(/*fall_back=*/false);
  comm::testing::RunRanks(resolved.mesh(), [&](int64_t rank, comm::Runtime&) {
    absl::StatusOr<StepPrograms> captured = CaptureOnRank0(rank, resolved);
    const auto step = TrainStep::Build(resolved, at::kCPU, /*materialize=*/true).value();
    std::string warning;
    const auto adopted = AdoptPrograms(std::move(captured), resolved.recipe().compile(), *step, at::kCPU, &warning);
    const auto fault = GetFieldViolation(adopted.status());
    ASSERT_TRUE(fault) << adopted.status();
    EXPECT_EQ(fault->field(), "compile.enable");
    EXPECT_THAT(fault->remedy(), HasSubstr("rank 1: one recorder at a time"));
    EXPECT_THAT(fault->remedy(), HasSubstr("compile.fall_back_to_eager"));
    EXPECT_EQ(warning, "");
  });
}

TEST(AdoptPrograms, FallBackOnAllRanksWhereTheRecipeSaysSo) {
  const auto resolved = Fsdp2(/*fall_back=*/true);
  comm::testing::RunRanks(resolved.mesh(), [&](int64_t rank, comm::Runtime&) {
    absl::StatusOr<StepPrograms> captured = CaptureOnRank0(rank, resolved);
    const auto step = TrainStep::Build(resolved, at::kCPU, /*materialize=*/true).value();
    std::string warning;
    const auto adopted = AdoptPrograms(std::move(captured), resolved.recipe().compile(), *step, at::kCPU, &warning).value();
    EXPECT_EQ(adopted.step, nullptr);
    EXPECT_EQ(adopted.evaluation, nullptr);
    EXPECT_THAT(warning, HasSubstr("rank 1: one recorder at a time"));
    EXPECT_TRUE(step->Run().ok());
  });
}

// One rank's program leaves its first gather out.
TEST(CompareCollectives, NamesGroupAndRanks) {
  const auto resolved = Fsdp2(/*fall_back=*/false);
  comm::testing::RunRanks(resolved.mesh(), [&](int64_t rank, comm::Runtime&) {
    auto programs = CapturePrograms(resolved, at::kCPU).value();
    graph::Trace trace = programs.step->trace();
    EXPECT_EQ(CompareCollectives(trace, at::kCPU).value(), "");
    const auto is_gather = [&](const graph::Instruction& i) {
      return i.kind == graph::Instruction::Kind::kOperator && trace.OperatorName(i) == "lego::all_gather_into";
    };
    const auto gather = std::find_if(trace.instructions.begin(), trace.instructions.end(), is_gather);
    ASSERT_NE(gather, trace.instructions.end());
    if (rank == 1) trace.instructions.erase(gather);
    EXPECT_THAT(CompareCollectives(trace, at::kCPU).value(),
                HasSubstr("in group dp_shard other collectives than those of rank 0 are called by rank 1 (of ranks 0, 1)"));
  });
}

TEST(CapturePrograms, NeedNoDeviceAndAreNoneUnlessAskedFor) {
  const auto resolved = Fsdp2(/*fall_back=*/false);
  comm::testing::RunRanks(resolved.mesh(), [&](int64_t, comm::Runtime&) {
    EXPECT_NE(CapturePrograms(resolved, c10::Device(at::kCUDA, 0)).value().step, nullptr);
    v1::Recipe eager = resolved.recipe();
    eager.clear_compile();
    const auto plain = parallel::ResolvedRecipe::Create(eager, resolved.model(), 2).value();
    EXPECT_EQ(CapturePrograms(plain, at::kCPU).value().step, nullptr);
  });
}

parallel::ResolvedRecipe Fused(bool fall_back) {
  const auto plain = Fsdp2(fall_back);
  v1::Recipe recipe = plain.recipe();
  recipe.mutable_compile()->set_fuse(true);
  return parallel::ResolvedRecipe::Create(recipe, plain.model(), 2).value();
}

// Without a compiler there is an error that says so, or a program without fused operators.
TEST(FusedKernels, NeedACompiler) {
  setenv("LEGOAI_KERNEL_CACHE", (testing::TempDir() + "/no_compiler").c_str(), 1);
  setenv("LEGOAI_CXX", "/nowhere/c++", 1);
  for (const bool fall_back : {false, true}) {
    const auto resolved = Fused(fall_back);
    comm::testing::RunRanks(resolved.mesh(), [&](int64_t, comm::Runtime&) {
      auto captured = CapturePrograms(resolved, at::kCPU);
      EXPECT_EQ(captured.ok(), fall_back) << captured.status();
      EXPECT_THAT(fall_back ? captured->step->kernels_fault() : std::string(captured.status().message()),
                  HasSubstr("compile.fuse: LEGOAI_CXX"));
      const auto step = TrainStep::Build(resolved, at::kCPU, /*materialize=*/true).value();
      std::string warning;
      const auto adopted = AdoptPrograms(std::move(captured), resolved.recipe().compile(), *step, at::kCPU, &warning);
      EXPECT_EQ(adopted.ok(), fall_back) << adopted.status();
      const std::string said = fall_back ? warning : std::string(adopted.status().message());
      EXPECT_THAT(said, HasSubstr("name a C++ compiler"));
      if (!fall_back) return;
      ASSERT_NE(adopted->step, nullptr);
      v1::Recipe plain = resolved.recipe();
      plain.mutable_compile()->set_fuse(false);
      const auto unfused = parallel::ResolvedRecipe::Create(plain, resolved.model(), 2).value();
      EXPECT_EQ(adopted->step->trace().Dump(true), CapturePrograms(unfused, at::kCPU).value().step->trace().Dump(true));
    });
  }
  unsetenv("LEGOAI_CXX");
}

// The plugin, which is not among this test's files, compiles and runs them.
TEST(FusedKernels, OfGpusNeedTheirPlugin) {
  for (const bool fall_back : {false, true}) {
    const auto resolved = Fused(fall_back);
    comm::testing::RunRanks(resolved.mesh(), [&](int64_t, comm::Runtime&) {
      const auto captured = CapturePrograms(resolved, c10::Device(at::kCUDA, 0));
      EXPECT_EQ(captured.ok(), fall_back) << captured.status();
      EXPECT_THAT(fall_back ? captured->step->kernels_fault() : std::string(captured.status().message()),
                  HasSubstr("compile.fuse: device = cuda: no GPU can be used here"));
    });
  }
}

TEST(FusedKernels, SayWhoCompiledThem) {
  setenv("LEGOAI_KERNEL_CACHE", (testing::TempDir() + "/compiled").c_str(), 1);
  const auto resolved = Fused(/*fall_back=*/false);
  for (const bool first : {true, false}) {
    comm::testing::RunRanks(resolved.mesh(), [&](int64_t rank, comm::Runtime&) {
      if (rank == 1) return;
      const auto captured = CapturePrograms(resolved, at::kCPU).value();
      const std::vector<std::string>& notes = captured.step->notes();
      ASSERT_EQ(notes.size(), first ? 1u : 0u);
      if (first) {
        EXPECT_THAT(notes[0], HasSubstr("fused kernels were compiled in"));
      }
    });
  }
}

}  // namespace
}  // namespace legoai::train

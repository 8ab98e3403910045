#include "core/model/model_facts.h"

#include <gtest/gtest.h>

#include <string>

#include "core/model/catalog.h"
#include "proto/errors.h"

namespace legoai::model {
namespace {

v1::Model Named(const std::string& name) { return *ResolveModel(name); }

TEST(ParameterCount, OfReleasedModels) {
  EXPECT_EQ(ParameterCount(Named("llama3-1b")), 1235814400);
  EXPECT_EQ(ParameterCount(Named("llama3-3b")), 3212749824);
  EXPECT_EQ(ParameterCount(Named("llama3-8b")), 8030261248);
  EXPECT_EQ(ParameterCount(Named("llama3-70b")), 70553706496);
  EXPECT_EQ(ParameterCount(Named("llama3-405b")), 405853388800);
  EXPECT_EQ(ParameterCount(Named("mistral-7b-v0.1")), 7241732096);
  EXPECT_EQ(ParameterCount(Named("mistral-7b-v0.3")), 7248023552);
  EXPECT_EQ(ParameterCount(Named("qwen2.5-0.5b")), 494032768);
  EXPECT_EQ(ParameterCount(Named("qwen2.5-1.5b")), 1543714304);
  EXPECT_EQ(ParameterCount(Named("qwen2.5-3b")), 3085938688);
  EXPECT_EQ(ParameterCount(Named("qwen2.5-7b")), 7615616512);
  EXPECT_EQ(ParameterCount(Named("qwen2.5-14b")), 14770033664);
  EXPECT_EQ(ParameterCount(Named("qwen2.5-32b")), 32763876352);
  EXPECT_EQ(ParameterCount(Named("qwen2.5-72b")), 72706203648);
  EXPECT_EQ(ParameterCount(Named("qwen3-0.6b")), 596049920);
  EXPECT_EQ(ParameterCount(Named("qwen3-1.7b")), 1720574976);
  EXPECT_EQ(ParameterCount(Named("qwen3-4b")), 4022468096);
  EXPECT_EQ(ParameterCount(Named("qwen3-8b")), 8190735360);
  EXPECT_EQ(ParameterCount(Named("qwen3-14b")), 14768307200);
  EXPECT_EQ(ParameterCount(Named("qwen3-32b")), 32762123264);
  EXPECT_EQ(ParameterCount(Named("gemma-2b")), 2506172416);
  EXPECT_EQ(ParameterCount(Named("gemma-7b")), 8537680896);
  EXPECT_EQ(ParameterCount(Named("gemma2-2b")), 2614341888);
  EXPECT_EQ(ParameterCount(Named("gemma2-9b")), 9241705984);
  EXPECT_EQ(ParameterCount(Named("gemma2-27b")), 27227128320);
  EXPECT_EQ(ParameterCount(Named("gpt2")), 124439808);
  EXPECT_EQ(ParameterCount(Named("gpt2-medium")), 354823168);
  EXPECT_EQ(ParameterCount(Named("gpt2-large")), 774030080);
  EXPECT_EQ(ParameterCount(Named("gpt2-xl")), 1557611200);
}

TEST(ParameterCount, UntyingAddsATable) {
  v1::Model model = Named("gpt2");
  model.set_tie_word_embeddings(false);
  EXPECT_EQ(ParameterCount(model), 124439808 + 50257 * 768);
}

TEST(CountParameters, SumsTensorsOfABlock) {
  // Llama 3.1 8B: q and o 4096 x 4096, k and v 1024 x 4096, three matrices of 14336 x 4096, two norms of 4096.
  EXPECT_EQ(CountParameters(Named("llama3-8b")).block, 218112000);
  EXPECT_EQ(CountParameters(Named("llama3-8b")).head, 525336576);
  EXPECT_EQ(CountParameters(Named("llama3-1b")).head, 0);
  EXPECT_EQ(CountParameters(Named("gpt2")).position_embedding, 786432);
}

TEST(FlopsPerToken, IsTorchTitansNumber) {
  // 6 x (8030261248 - 525336576) + 12 x 32 layers x 32 heads x 128 x 8192 tokens.
  EXPECT_EQ(FlopsPerToken(Named("llama3-8b"), 8192), 57914449920.0);
}

TEST(FlopsPerToken, CountsATiedTableOnce) {
  // The head of Llama 3.2 1B multiplies by the table: 6 x 1235814400 + 12 x 16 x 32 x 64 x 2048.
  EXPECT_EQ(FlopsPerToken(Named("llama3-1b"), 2048), 6 * 1235814400.0 + 805306368.0);
  v1::Model untied = Named("llama3-1b");
  untied.set_tie_word_embeddings(false);
  EXPECT_EQ(FlopsPerToken(untied, 2048), FlopsPerToken(Named("llama3-1b"), 2048)) << "the same products";
}

TEST(FlopsPerToken, OfASlidingWindowCountsTheWindow) {
  const v1::Model windowed = Named("mistral-7b-v0.1");
  v1::Model whole = windowed;
  whole.clear_sliding_window();
  EXPECT_EQ(FlopsPerToken(windowed, 4096), FlopsPerToken(whole, 4096));
  EXPECT_EQ(FlopsPerToken(windowed, 16384), FlopsPerToken(whole, 4096));
}

TEST(FlopsPerToken, OfWindowsByTurnsCountsEither) {
  const v1::Model turns = Named("gemma2-2b");
  v1::Model windowed = turns, whole = turns;
  windowed.set_sliding_window_alternates(false);
  whole.clear_sliding_window();
  EXPECT_EQ(2 * FlopsPerToken(turns, 8192), FlopsPerToken(windowed, 8192) + FlopsPerToken(whole, 8192)) << "13 of 26 layers";
  EXPECT_EQ(WindowOf(turns, 0), 4096);
  EXPECT_EQ(WindowOf(turns, 25), 0);
}

TEST(CheckWindow, RefusesLongerSequencesOnCudaAlone) {
  const v1::Model model = Named("mistral-7b-v0.1");
  EXPECT_EQ(CheckWindow(model, 4096, v1::CUDA), absl::OkStatus());
  EXPECT_EQ(CheckWindow(model, 8192, v1::CPU), absl::OkStatus());
  EXPECT_EQ(CheckWindow(Named("mistral-7b-v0.3"), 8192, v1::CUDA), absl::OkStatus());
  EXPECT_EQ(CheckWindow(Named("gemma2-2b"), 8192, v1::CUDA), absl::OkStatus()) << "its scores have a mask";
  const auto fault = GetFieldViolation(CheckWindow(model, 8192, v1::CUDA));
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->field(), "training.seq_len");
  EXPECT_EQ(fault->value(), "8192");
  EXPECT_NE(fault->remedy().find("use at most 4096"), std::string::npos) << fault->remedy();
}

TEST(ModelFlopsUtilization, IsAShareOfThePeakOrAnErrorOfTheCatalog) {
  EXPECT_EQ(*ModelFlopsUtilization(4e14, 8e14), 0.5);
  EXPECT_EQ(*ModelFlopsUtilization(8e14, 8e14), 1);
  const absl::Status above = ModelFlopsUtilization(2.7e12, 1e12).status();
  EXPECT_EQ(above.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(GetFieldViolation(above)->field(), "device.peak_flops");
  EXPECT_EQ(GetFieldViolation(above)->value(), "1e+12");
  EXPECT_NE(above.message().find("2.7e+12 FLOP/s"), std::string::npos) << above;
  EXPECT_EQ(ModelFlopsUtilization(1e12, 0).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace legoai::model

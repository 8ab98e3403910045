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

#include "proto/enum_text.h"

#include <gtest/gtest.h>

#include <set>

#include "proto/legoai/v1/dtype.pb.h"
#include "proto/legoai/v1/recipe.pb.h"
#include "proto/legoai/v1/sim.pb.h"

namespace legoai {
namespace {

TEST(EnumText, IsTheOption) {
  EXPECT_EQ(EnumText(v1::ONE_F_ONE_B), "1F1B");
  EXPECT_EQ(EnumText(v1::AC_FULL), "full");
  EXPECT_EQ(EnumText(v1::BFLOAT16), "bfloat16");
}

TEST(EnumText, WithoutOptionTheName) { EXPECT_EQ(EnumText(v1::COST_BENCHMARK), "COST_BENCHMARK"); }

TEST(EnumText, UnspecifiedIsNothingAndUnknownIsItsNumber) {
  EXPECT_EQ(EnumText(v1::DTYPE_UNSPECIFIED), "");
  EXPECT_EQ(EnumText(static_cast<v1::DType>(77)), "77");
}

TEST(EnumFromText, IsTheInverseOnEveryValue) {
  const auto* type = v1::DType_descriptor();
  const auto texts = EnumTexts(type);
  EXPECT_EQ(texts.size(), type->value_count() - 1);
  EXPECT_EQ(std::set<std::string>(texts.begin(), texts.end()).size(), texts.size());
  for (const std::string& text : texts) EXPECT_EQ(EnumText(*EnumFromText<v1::DType>(text)), text);
}

TEST(EnumFromText, RefusesOtherSpellings) {
  EXPECT_FALSE(EnumFromText<v1::PipelineSchedule>("1f1b"));
  EXPECT_FALSE(EnumFromText<v1::PipelineSchedule>(""));
  EXPECT_FALSE(EnumFromText<v1::PipelineSchedule>("ONE_F_ONE_B"));
}

}  // namespace
}  // namespace legoai

#include "core/recipe/keep_policy.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "proto/errors.h"

namespace legoai::parallel {
namespace {

std::string Refusal(const std::string& policy) {
  const auto fault = GetFieldViolation(ParseKeepPolicy(policy).status());
  if (!fault) return "accepted";
  EXPECT_EQ(fault->field(), "activation_checkpoint.selective_ac_policy");
  return fault->value() + "|" + fault->remedy();
}

std::vector<int64_t> Kept(const std::string& which) {
  std::vector<int64_t> kept;
  const auto rules = ParseKeepPolicy("* aten::mm " + which);
  for (int64_t count = 1; count <= 7; ++count) {
    if (rules->at(0).Keeps(count)) kept.push_back(count);
  }
  return kept;
}

TEST(KeepPolicy, CountsFromOne) {
  EXPECT_EQ(Kept("all"), (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(Kept("odd"), (std::vector<int64_t>{1, 3, 5, 7}));
  EXPECT_EQ(Kept("even"), (std::vector<int64_t>{2, 4, 6}));
  EXPECT_EQ(Kept("4"), (std::vector<int64_t>{4}));
}

TEST(KeepPolicy, PatternsAreOverTheModulesOfABlock) {
  const auto rules = ParseKeepPolicy(" mlp.* aten::mm  all;self_attn lego::attention all ; * aten::silu 1;");
  ASSERT_TRUE(rules.ok()) << rules.status();
  ASSERT_EQ(rules->size(), 3u);
  EXPECT_TRUE(rules->at(0).Matches("mlp.gate_proj"));
  EXPECT_FALSE(rules->at(0).Matches("mlp"));
  EXPECT_FALSE(rules->at(0).Matches("self_attn.q_proj"));
  EXPECT_TRUE(rules->at(1).Matches("self_attn"));
  EXPECT_FALSE(rules->at(1).Matches("self_attn.q_proj"));
  EXPECT_TRUE(rules->at(2).Matches(""));
  EXPECT_EQ(ParseKeepPolicy("* aten::mm|aten::addmm odd")->at(0).operators,
            (std::vector<std::string>{"aten::mm", "aten::addmm"}));
  EXPECT_TRUE(rules->at(2).Matches("mlp"));
}

TEST(KeepPolicy, SaysWhatIsWrongWithARule) {
  EXPECT_EQ(Refusal(kOpPolicy), "accepted");
  EXPECT_EQ(Refusal(" ; "), "|must have rules of the form [BLOCKS:]MODULE OPERATOR WHICH, separated by semicolons");
  EXPECT_EQ(Refusal("* aten::mm all; mlp aten::mm"),
            "mlp aten::mm|must be [BLOCKS:]MODULE OPERATOR WHICH, such as \"mlp.* aten::mm odd\" or \"8-15:mlp.* aten::mm all\"");
  EXPECT_EQ(Refusal("* aten::mm 0"), "* aten::mm 0|must end with all, odd, even, or a number of 1 to 1000");
  EXPECT_EQ(Refusal("* aten::mm some"), "* aten::mm some|must end with all, odd, even, or a number of 1 to 1000");
  EXPECT_NE(Refusal("* aten::add_ all").find("aten::add_ cannot be kept: use one of aten::mm, aten::addmm"), std::string::npos);
}

v1::ActivationCheckpoint Policy(const std::string& text) {
  v1::ActivationCheckpoint section;
  section.set_mode(v1::AC_SELECTIVE);
  section.set_selective_ac_option("policy");
  section.set_selective_ac_policy(text);
  return section;
}

TEST(KeepPolicy, RulesAreForRangesOfBlocks) {
  const auto section = Policy("* lego::attention all; 2-3:mlp.* aten::mm all; 5:mlp.up_proj aten::mm 1; 6-7:* * all");
  const std::vector<size_t> rules = {1, 1, 2, 2, 1, 2, 2, 2};
  for (int64_t block = 0; block < 8; ++block) {
    EXPECT_EQ(KeepRulesOf(section, block).size(), rules[block]) << block;
    EXPECT_EQ(KeepsWholeBlock(section, block), block >= 6) << block;
  }
  EXPECT_EQ(KeepRulesOf(section, 2).back().module, "mlp.*");
  EXPECT_FALSE(KeepsWholeBlock(Policy("* * all"), -1)) << "there is no such block";
  EXPECT_TRUE(KeepsWholeBlock(Policy("* * all"), 0));
}

TEST(KeepPolicy, SaysWhatIsWrongWithBlocks) {
  const std::string blocks = "must begin with a block of the model, counted from 0, or a range of them such as 8-15:";
  for (const std::string rule : {"3-2:* aten::mm all", "a:* aten::mm all", "1-2-3:* aten::mm all", ":* aten::mm all",
                                 "-1:* aten::mm all"}) {
    EXPECT_EQ(Refusal(rule), rule + "|" + blocks);
  }
  EXPECT_NE(Refusal("3: aten::mm all").find("[BLOCKS:]MODULE"), std::string::npos);
  EXPECT_NE(Refusal("mlp.* * all").find("only whole blocks can"), std::string::npos);
  EXPECT_NE(Refusal("* * odd").find("only whole blocks can"), std::string::npos);
}

TEST(KeepPolicy, OnlySelectiveCheckpointingHasRules) {
  v1::ActivationCheckpoint section;
  section.set_mode(v1::AC_FULL);
  section.set_selective_ac_option("op");
  EXPECT_TRUE(KeepRules(section).empty());
  section.set_mode(v1::AC_SELECTIVE);
  EXPECT_EQ(KeepRules(section).size(), 2u);
  section.set_selective_ac_option("2");
  EXPECT_TRUE(KeepRules(section).empty());
  section.set_selective_ac_option("policy");
  section.set_selective_ac_policy("mlp.up_proj aten::mm all");
  ASSERT_EQ(KeepRules(section).size(), 1u);
  EXPECT_EQ(KeepRules(section)[0].module, "mlp.up_proj");
}

TEST(KeepPolicy, ForcedModulesAreNamedByAPartOfTheirNames) {
  v1::ActivationCheckpoint section;
  EXPECT_FALSE(IsForcedAgain(section, "self_attn.q_proj"));
  section.add_per_op_sac_force_recompute_mm_shapes_by_fqns("q_proj");
  EXPECT_TRUE(IsForcedAgain(section, "self_attn.q_proj"));
  EXPECT_FALSE(IsForcedAgain(section, "self_attn.k_proj"));
}

}  // namespace
}  // namespace legoai::parallel

#include "planner/autosac/policy_text.h"

#include <gtest/gtest.h>

#include "core/recipe/keep_policy.h"

namespace legoai::planner {
namespace {

BlockFacts Block() {
  BlockFacts facts;
  facts.operators = {{.name = "lego::rms_norm", .module = "input_layernorm"}, {.name = "aten::mm", .module = "self_attn.q_proj"},
                     {.name = "lego::attention", .module = "self_attn"},      {.name = "aten::add", .module = ""},
                     {.name = "aten::mm", .module = "mlp.up_proj"},           {.name = "aten::mul", .module = "mlp"},
                     {.name = "aten::mul", .module = "mlp"},                  {.name = "aten::add", .module = ""}};
  return facts;
}

KeptOfBlock Keeps(const BlockFacts& facts, std::vector<int> operators) {
  return {.recomputed = true, .operators = std::move(operators), .facts = &facts};
}

TEST(PolicyText, NamesWhatIsKept) {
  const BlockFacts facts = Block();
  std::map<int64_t, KeptOfBlock> kept;
  for (int64_t block = 0; block < 4; ++block) kept[block] = Keeps(facts, {1, 2, 6, 7});
  const auto section = SectionOf(kept, 4);
  EXPECT_EQ(section.mode(), v1::AC_SELECTIVE);
  EXPECT_EQ(section.selective_ac_option(), "policy");
  EXPECT_EQ(section.selective_ac_policy(),
            "self_attn.q_proj aten::mm all; self_attn lego::attention all; mlp aten::mul 2; * aten::add 2");
}

TEST(PolicyText, NamesRangesOfBlocks) {
  const BlockFacts facts = Block();
  std::map<int64_t, KeptOfBlock> kept;
  kept[0] = Keeps(facts, {});
  kept[1] = Keeps(facts, {1});
  kept[2] = kept[3] = Keeps(facts, {1, 4});
  kept[4] = kept[5] = {.recomputed = false, .operators = {}, .facts = &facts};
  const auto section = SectionOf(kept, 6);
  EXPECT_EQ(section.selective_ac_policy(),
            "1:self_attn.q_proj aten::mm all; 2-3:self_attn.q_proj aten::mm all; 2-3:mlp.up_proj aten::mm all; 4-5:* * all");
  EXPECT_TRUE(parallel::ParseKeepPolicy(section.selective_ac_policy()).ok());
  for (int64_t block = 0; block < 6; ++block) {
    EXPECT_EQ(parallel::KeepsWholeBlock(section, block), block >= 4) << block;
    EXPECT_EQ(parallel::KeepRulesOf(section, block).size(), std::vector<size_t>({0, 1, 2, 2, 1, 1})[block]) << block;
  }
}

TEST(PolicyText, AllOrNothingAreModes) {
  const BlockFacts facts = Block();
  std::map<int64_t, KeptOfBlock> kept = {{0, Keeps(facts, {})}, {1, Keeps(facts, {})}};
  EXPECT_EQ(SectionOf(kept, 2).mode(), v1::AC_FULL);
  for (auto& [block, one] : kept) one.recomputed = false;
  EXPECT_EQ(SectionOf(kept, 2).mode(), v1::AC_NONE);
}

}  // namespace
}  // namespace legoai::planner

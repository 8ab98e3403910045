#include "core/trace/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "core/trace/testing/program_test_util.h"

namespace legoai::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

Trace Chain(const std::vector<std::string>& names) {
  Program b;
  auto x = b.External("x", 16);
  for (const auto& name : names) {
    const auto y = b.Inner(16);
    b.Op(name, {x}, {y});
    x = y;
  }
  return b.trace();
}

TEST(DifferencesTest, SameProgram) { EXPECT_THAT(Differences(Chain({"a", "b"}), Chain({"a", "b"})), IsEmpty()); }

TEST(DifferencesTest, OneReplacedOperator) {
  EXPECT_THAT(Differences(Chain({"a", "b", "c"}), Chain({"a", "x", "c"})), ElementsAre(StartsWith("- 1 "), StartsWith("+ 1 ")));
}

TEST(DifferencesTest, WiringCountsWhenSignaturesAgree) {
  Program a, b;
  for (Program* t : {&a, &b}) {
    const auto x = t->External("x", 16), y = t->Inner(16), z = t->Inner(16), w = t->Inner(16);
    t->Op("f", {x}, {y}).Op("f", {x}, {z}).Op("g", {t == &a ? y : z}, {w});
  }
  EXPECT_THAT(Differences(a.trace(), b.trace()), ElementsAre(StartsWith("wiring at 2: ")));
}

TEST(DifferencesTest, ModuleAndCategoryAndOutputsCount) {
  Trace a = Chain({"a"}), b = a;
  b.modules.push_back("layer");
  b.instructions[0].module = 1;
  EXPECT_THAT(Differences(a, b), ElementsAre(HasSubstr("in ''"), HasSubstr("in 'layer'")));
  b = a;
  b.storages[1].category = Category::kActivationGradient;
  EXPECT_THAT(Differences(a, b), ElementsAre(StartsWith("storage s1")));
  b = a;
  b.outputs["loss"] = 1;
  EXPECT_THAT(Differences(a, b), ElementsAre("+ output loss"));
}

TEST(DifferencesTest, KindsOfStoragesAndContentsOfConstantsCount) {
  Trace a = Chain({"a"});
  a.storages.push_back({4, StorageKind::kConstant, Category::kOther, "?2", "abcd"});
  Trace b = a;
  b.storages[2].contents = "abce";
  EXPECT_THAT(Differences(a, b), ElementsAre("storage s2: constants of different contents"));
  b = a;
  b.storages[2].kind = StorageKind::kExternal;
  EXPECT_THAT(Differences(a, b), ElementsAre(StartsWith("storage s2: ?2 4 bytes, kind ")));
}

TEST(DifferencesTest, GroupsCountByNameAndRanks) {
  Trace a = Chain({"a"});
  a.groups = {{mesh::Dim::kWorld, {0, 1, 4}}, {mesh::Dim::kTp, {0, 1, 2}}};
  Trace b = a;
  EXPECT_THAT(Differences(a, b), IsEmpty());
  b.groups[1].ranks.stride = 2;
  EXPECT_THAT(Differences(a, b), ElementsAre("group 1: tp of 2 ranks from 0 by 1 | tp of 2 ranks from 0 by 2"));
  b.groups[1] = {mesh::Dim::kDp, {0, 1, 2}};
  EXPECT_THAT(Differences(a, b), ElementsAre("group 1: tp of 2 ranks from 0 by 1 | dp of 2 ranks from 0 by 1"));
  b.groups.pop_back();
  EXPECT_THAT(Differences(a, b), ElementsAre("group 1: tp of 2 ranks from 0 by 1 | none"));
}

TEST(DifferencesTest, HopelesslyDifferentProgramsAreCutShort) {
  EXPECT_THAT(Differences(Chain(std::vector<std::string>(3000, "a")), Chain(std::vector<std::string>(3000, "b"))),
              ElementsAre(HasSubstr("from instruction 0")));
}

// The number of lines is the length of the shortest edit script, as a table over all prefixes gives it.
int64_t EditDistance(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  std::vector<std::vector<int64_t>> cost(a.size() + 1, std::vector<int64_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
      } else {
        cost[i][j] = a[i - 1] == b[j - 1] ? cost[i - 1][j - 1] : 1 + std::min(cost[i - 1][j], cost[i][j - 1]);
      }
    }
  }
  return cost[a.size()][b.size()];
}

TEST(DifferencesTest, EditScriptIsShortest) {
  const unsigned seed = std::random_device()();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string> names[2];
    for (auto& list : names) {
      list.push_back("start");  // the operator that reads the input is like no other
      for (int64_t n = random() % 12; n > 0; --n) list.push_back(std::string(1, 'a' + random() % 3));
    }
    const auto lines = Differences(Chain(names[0]), Chain(names[1]), 100);
    EXPECT_EQ(static_cast<int64_t>(lines.size()), EditDistance(names[0], names[1]));
  }
}

}  // namespace
}  // namespace legoai::graph

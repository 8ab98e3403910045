#include "server/cli/whatif/sweep_points.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/hardware/catalog.h"

namespace legoai::cli {
namespace {

Arguments Call(const std::vector<std::string>& words) {
  CommandSpec spec;
  spec.name = "sweep";
  spec.options = {{"vary", "KEY=A,B", "", true}, {"cluster", "C", ""}, {"model", "M", ""}, {"seq", "S", ""}};
  spec.recipe_keys = true;
  const auto arguments = Arguments::Parse(spec, words);
  EXPECT_TRUE(arguments.ok()) << arguments.status();
  return *arguments;
}

std::string Refusal(const std::vector<std::string>& words) { return std::string(ReadVariations(Call(words)).status().message()); }

TEST(SweepPointsTest, AllCombinationsTheLastKeyFastest) {
  const auto variations = ReadVariations(Call({"--vary", "gpus=8, 16", "--vary", "training.local_batch_size=1,2,4"}));
  ASSERT_TRUE(variations.ok()) << variations.status();
  const std::vector<SweepPoint> points = SweepPoints(*variations);
  EXPECT_EQ(points, (std::vector<SweepPoint>{{"8", "1"}, {"8", "2"}, {"8", "4"}, {"16", "1"}, {"16", "2"}, {"16", "4"}}));
}

TEST(SweepPointsTest, APointIsTheCallWithItsValues) {
  const Arguments call =
      Call({"--cluster", "h100-sxm-80:8x1", "--model", "llama3-8b", "--training.steps=3", "--vary", "gpus=16", "--vary",
            "seq=4096", "--vary", "parallelism.tensor_parallel_degree=2", "--vary", "link.node.bandwidth=0.5x"});
  const auto variations = ReadVariations(call);
  ASSERT_TRUE(variations.ok()) << variations.status();
  const SweepPoint point = SweepPoints(*variations).at(0);
  const auto at = ArgumentsAt(call, *variations, point);
  ASSERT_TRUE(at.ok()) << at.status();
  EXPECT_EQ(at->Text("cluster"), "h100-sxm-80:8x2");
  EXPECT_EQ(at->Text("model"), "llama3-8b");
  using Keys = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(at->recipe_keys(),
            (Keys{{"training.steps", "3"}, {"training.seq_len", "4096"}, {"parallelism.tensor_parallel_degree", "2"}}));
  auto cluster = sim::ParseCluster(at->Text("cluster"));
  const double before = cluster->tiers(0).link().bandwidth_bytes_per_second();
  ASSERT_TRUE(SetFiguresAt(*variations, point, &*cluster).ok());
  EXPECT_DOUBLE_EQ(cluster->tiers(0).link().bandwidth_bytes_per_second(), before / 2);
}

TEST(SweepPointsTest, WhatCannotBeVariedIsRefusedByName) {
  EXPECT_NE(Refusal({"--vary", "gpus"}).find("KEY=A,B,C"), std::string::npos);
  EXPECT_NE(Refusal({"--vary", "gpus="}).find("KEY=A,B,C"), std::string::npos);
  EXPECT_NE(Refusal({"--vary", "=1"}).find("KEY=A,B,C"), std::string::npos);
  EXPECT_NE(Refusal({"--vary", "gpus=8,,16"}).find("KEY=A,B,C"), std::string::npos);
  EXPECT_NE(Refusal({"--vary", "gpus=8,8"}).find("twice"), std::string::npos);
  EXPECT_NE(Refusal({"--vary", "gpus=8", "--vary", "gpus=16"}).find("varied before"), std::string::npos);
  EXPECT_NE(Refusal({"--vary", "seq=8", "--vary", "training.seq_len=16"}).find("varied before"), std::string::npos);
  EXPECT_NE(Refusal({"--vary", "training.local_batchsize=1"}).find("training.local_batch_size"), std::string::npos);
  EXPECT_NE(Refusal({"--vary", "seq=1024", "--seq", "2048"}).find("fixes"), std::string::npos);
  EXPECT_NE(Refusal({"--vary", "seq=1024", "--training.seq_len=2048"}).find("fixes"), std::string::npos);
  EXPECT_NE(Refusal({"--vary", "cluster=a,b", "--cluster", "c"}).find("fixes"), std::string::npos);
  std::string many = "training.steps=0";
  for (int i = 1; i <= kMostSweepPoints; ++i) many += "," + std::to_string(i);
  EXPECT_NE(Refusal({"--vary", many}).find("more than 256"), std::string::npos);
  for (const char* gpus : {"gpus=0", "gpus=-8", "gpus=many", "gpus=12", "gpus=99999999999999999999"}) {
    const Arguments call = Call({"--cluster", "h100-sxm-80:8x1", "--vary", gpus});
    const auto variations = ReadVariations(call);
    ASSERT_TRUE(variations.ok());
    const auto at = ArgumentsAt(call, *variations, SweepPoints(*variations).at(0));
    EXPECT_NE(at.status().message().find("gpus"), std::string::npos) << gpus;
  }
}

}  // namespace
}  // namespace legoai::cli

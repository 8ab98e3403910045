#include "server/cli/whatif/sweep_points.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/hardware/catalog.h"
#include "proto/testing/assert_ok.h"
#include "server/cli/whatif/sensitivities.h"
#include "server/cli/whatif/sweep_chart.h"

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
  ASSERT_OK_AND_ASSIGN(const auto variations,
                       ReadVariations(Call({"--vary", "gpus=8, 16", "--vary", "training.local_batch_size=1,2,4"})));
  const std::vector<SweepPoint> points = SweepPoints(variations);
  EXPECT_EQ(points, (std::vector<SweepPoint>{{"8", "1"}, {"8", "2"}, {"8", "4"}, {"16", "1"}, {"16", "2"}, {"16", "4"}}));
}

TEST(SweepPointsTest, APointIsTheCallWithItsValues) {
  const Arguments call =
      Call({"--cluster", "h100-sxm-80:8x1", "--model", "llama3-8b", "--training.steps=3", "--vary", "gpus=16", "--vary",
            "seq=4096", "--vary", "parallelism.tensor_parallel_degree=2", "--vary", "link.node.bandwidth=0.5x"});
  ASSERT_OK_AND_ASSIGN(const auto variations, ReadVariations(call));
  const SweepPoint point = SweepPoints(variations).at(0);
  ASSERT_OK_AND_ASSIGN(const auto at, ArgumentsAt(call, variations, point));
  EXPECT_EQ(at.Text("cluster"), "h100-sxm-80:8x2");
  EXPECT_EQ(at.Text("model"), "llama3-8b");
  using Keys = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(at.recipe_keys(),
            (Keys{{"training.steps", "3"}, {"training.seq_len", "4096"}, {"parallelism.tensor_parallel_degree", "2"}}));
  auto cluster = sim::ParseCluster(at.Text("cluster"));
  const double before = cluster->tiers(0).link().bandwidth_bytes_per_second();
  ASSERT_TRUE(SetFiguresAt(variations, point, &*cluster).ok());
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
    ASSERT_OK_AND_ASSIGN(const auto variations, ReadVariations(call));
    const auto at = ArgumentsAt(call, variations, SweepPoints(variations).at(0));
    EXPECT_NE(at.status().message().find("gpus"), std::string::npos) << gpus;
  }
}

// The table, CSV, JSON and drawing of a sweep. CSV and SVG are read back by Python's own parsers.

v1::RankedRecipe Recipe(double seconds, int64_t gib, int64_t headroom_gib) {
  v1::RankedRecipe recipe;
  recipe.set_step_time_seconds(seconds);
  recipe.set_tokens_per_second_per_gpu(1e4 / seconds);
  recipe.set_mfu(0.5);
  recipe.set_peak_memory_bytes(gib << 30);
  recipe.set_headroom_bytes(headroom_gib * (int64_t{1} << 30));
  recipe.mutable_running_cost()->set_tokens_per_day(1e9 / seconds);
  recipe.mutable_running_cost()->set_gpu_hours_per_billion_tokens(100 * seconds);
  return recipe;
}

Sweep TwoByTwo() {
  Sweep sweep{{{"gpus", {"8", "64"}}, {"training.dtype", {"a,\"b\"", "<c>&d"}}}, false, {}};
  sweep.outcomes = {{{"8", "a,\"b\""}, 8, Recipe(4, 40, 35), true, ""},
                    {{"8", "<c>&d"}, 8, Recipe(5, 90, -15), false, "does not fit: 15.0 GiB too much"},
                    {{"64", "a,\"b\""}, 64, Recipe(1, 20, 55), true, ""},
                    {{"64", "<c>&d"}, 64, std::nullopt, false, "line one\nline two"}};
  return sweep;
}

// What Python prints of a file with this text.
std::string ReadByPython(const std::string& text, const std::string& program) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "sweep_output";
  std::ofstream(path, std::ios::binary) << text;
  const std::string command = absl::StrCat("python3 -c '", program, "' ", path.string());
  FILE* pipe = popen(command.c_str(), "r");
  std::string out;
  for (int c = 0; pipe != nullptr && (c = fgetc(pipe)) != EOF;) out += static_cast<char>(c);
  EXPECT_EQ(pipe == nullptr ? -1 : pclose(pipe), 0) << text;
  return out;
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(SweepOutputTest, TheTableHasALineForEachPoint) {
  const std::string text = SweepText(TwoByTwo());
  EXPECT_EQ(Count(text, "GiB too much"), 1u) << text;
  EXPECT_NE(text.find("-15.0 GiB"), std::string::npos) << text;
  EXPECT_NE(text.find("4.000 s"), std::string::npos) << text;
  EXPECT_EQ(text.find("price"), std::string::npos) << text;
}

TEST(SweepOutputTest, CsvIsReadBackWithEveryCell) {
  const std::string out = ReadByPython(SweepCsv(TwoByTwo()), R"(
import csv,json,sys
rows = list(csv.DictReader(open(sys.argv[1], newline="")))
for r in rows:
    print(r["gpus"], r["training.dtype"], r["devices"], r["fits"], r["step_time_seconds"], r["headroom_bytes"],
          json.dumps(r["reason"]), len(r))
)");
  EXPECT_EQ(out,
            "8 a,\"b\" 8 true 4 37580963840 \"\" 14\n"
            "8 <c>&d 8 false 5 -16106127360 \"does not fit: 15.0 GiB too much\" 14\n"
            "64 a,\"b\" 64 true 1 59055800320 \"\" 14\n"
            "64 <c>&d 64 false   \"line one\\nline two\" 14\n");
}

TEST(SweepOutputTest, JsonHasValuesAndFigures) {
  const Tree tree = SweepTree(TwoByTwo());
  EXPECT_EQ(tree["varied"][1], "training.dtype");
  EXPECT_EQ(tree["points"][0]["values"]["gpus"], "8");
  EXPECT_DOUBLE_EQ(tree["points"][0]["step_time_seconds"].get<double>(), 4);
  EXPECT_DOUBLE_EQ(tree["points"][0]["running_cost"]["tokens_per_day"].get<double>(), 2.5e8);
  EXPECT_FALSE(tree["points"][0].contains("reason"));
  EXPECT_FALSE(tree["points"][3].contains("step_time_seconds"));
  EXPECT_EQ(tree["points"][3]["reason"], "line one\nline two");
}

// Three points in three panels, one of them hollow; lines of two series; what is text stays text.
TEST(SweepOutputTest, TheDrawingIsWellFormedAndHasEveryPoint) {
  const std::string svg = SweepSvg(TwoByTwo(), "a <title> & more");
  const std::string out = ReadByPython(svg, R"(
import json,sys,xml.etree.ElementTree as E
n="{http://www.w3.org/2000/svg}"
t=E.parse(sys.argv[1]).getroot()
print(t.find(n+"title").text)
c=t.findall(n+"circle")
print(len(c), sum(x.get("fill")=="#ffffff" for x in c))
w,h=float(t.get("width")),float(t.get("height"))
print(all(0<=float(x.get("cx"))<=w and 0<=float(x.get("cy"))<=h for x in c))
print(json.dumps(sorted({x.text for x in t.findall(n+"text") if "dtype" in x.text})))
)");
  EXPECT_EQ(out, R"(a <title> & more
9 3
True
["training.dtype <c>&d", "training.dtype a,\"b\""]
)") << svg;
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(SweepOutputTest, AnEmptyDrawingAndASinglePointAreDrawnToo) {
  Sweep sweep{{{"cluster", {"a"}}}, true, {{{"a"}, 8, std::nullopt, false, "no"}}};
  EXPECT_EQ(ReadByPython(SweepSvg(sweep, "t"), "import sys,xml.dom.minidom as m; m.parse(sys.argv[1])"), "");
  sweep.outcomes[0].best = Recipe(1, 1, 1);
  const std::string svg = SweepSvg(sweep, "t");
  EXPECT_EQ(Count(svg, "<circle"), 3u);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST(SweepOutputTest, SensitivitiesAreDrawnAndWritten) {
  Sensitivities sensitivities;
  sensitivities.estimate.set_step_time_seconds(2);
  sensitivities.estimate.add_stages();
  sensitivities.rows = {{"compute.peak", "989 TFLOP/s", 2.4, 1.7}, {"matmul.efficiency", "90.0 %", 2.3, 0}};
  const std::string svg = SensitivitiesSvg(sensitivities, "t");
  EXPECT_EQ(ReadByPython(svg, "import sys,xml.dom.minidom as m; m.parse(sys.argv[1])"), "");
  EXPECT_EQ(Count(svg, "height=\"16.0\""), 3u) << svg;
  EXPECT_NE(svg.find("+20.0 %"), std::string::npos) << svg;
  EXPECT_NE(SensitivitiesCsv(sensitivities).find("matmul.efficiency,90.0 %,2,2.3,\r\n"), std::string::npos);
}

}  // namespace
}  // namespace legoai::cli

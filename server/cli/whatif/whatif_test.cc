// `lego compare`, `lego sweep` and `lego schedule` as a user meets them: real processes, a tiny model, this machine as the
// cluster.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "server/cli/testing/lego_process.h"

namespace legoai::cli {
namespace {

using testing::Json;
using testing::LegoTest;
using testing::ReadAll;
using testing::Result;
using testing::Write;

class WhatIf : public LegoTest {
 protected:
  Json Ask(std::vector<std::string> words, int code = 0) {
    words.insert(words.end(), {"-o", "json"});
    const Result result = Run(words);
    EXPECT_EQ(result.code, code) << result.err;
    return result.out.empty() ? Json() : Json::parse(result.out);
  }
  // What `simulate` says of the recipe with these keys.
  Json Simulate(std::vector<std::string> keys, const std::string& cluster = "cpu:2x1") {
    keys.insert(keys.begin(), {"simulate", "--recipe", Path("recipe.toml"), "--cluster", cluster});
    return Ask(keys);
  }
  // The recipe of the fixture with other values of some keys.
  std::string Recipe(const std::string& name, const std::map<std::string, std::string>& values) {
    std::string text = ReadAll(Path("recipe.toml"));
    for (const auto& [key, line] : values) {
      const size_t section = text.find("[" + key + "]");
      section == std::string::npos ? text += "\n[" + key + "]\n" + line + "\n"
                                   : text.insert(text.find('\n', section) + 1, line + "\n");
    }
    Write(Path(name), text);
    return Path(name);
  }
};

// Each row is the recipe with that one change, so `simulate` of it says the same.
TEST_F(WhatIf, EachDifferenceIsWhatSimulateSaysOfItAlone) {
  const std::string a = Recipe("a.toml", {}),
                    b = Recipe("b.toml", {{"activation_checkpoint", "mode = \"full\""}, {"optimizer", "lr = 0.5"}});
  const Json json = Ask({"compare", a, b, "--cluster", "cpu:2x1"});
  const Json alone = Simulate({"--activation_checkpoint.mode=full"});
  EXPECT_DOUBLE_EQ(json["a"]["step_time_seconds"], Simulate({})["step_time_seconds"]);
  ASSERT_EQ(json["changes"].size(), 2u) << json["changes"];
  for (const Json& change : json["changes"]) {
    ASSERT_EQ(change["keys"].size(), 1u) << change;
    const bool lr = change["keys"][0]["key"] == "optimizer.lr";
    const Json& expected = lr ? json["a"] : alone;
    EXPECT_DOUBLE_EQ(change["step_time_seconds"], expected["step_time_seconds"]) << change;
    EXPECT_EQ(change["peak_memory_bytes"], expected["stages"][0]["peak_allocated_bytes"]) << change;
  }
  const Result table = Run({"compare", a, b, "--cluster", "cpu:2x1"});
  EXPECT_NE(table.out.find("activation_checkpoint.mode  none  full"), std::string::npos) << table.out;
  EXPECT_NE(table.out.find("without effect on time and memory: optimizer.lr"), std::string::npos) << table.out;
}

// Neither degree can be changed without the other on two ranks.
TEST_F(WhatIf, DegreesThatHangTogetherAreOneChange) {
  const std::string a = Recipe("a.toml", {{"parallelism", "data_parallel_shard_degree = 2"}});
  const std::string b = Recipe("b.toml", {{"parallelism", "data_parallel_shard_degree = 1\ntensor_parallel_degree = 2"}});
  const Json json = Ask({"compare", a, b, "--cluster", "cpu:2x1"});
  ASSERT_EQ(json["changes"].size(), 1u) << json["changes"];
  EXPECT_EQ(json["changes"][0]["keys"].size(), 2u);
  EXPECT_DOUBLE_EQ(json["changes"][0]["step_time_seconds"], json["b"]["step_time_seconds"]);
}

// A real step of two ranks beside its prediction.
TEST_F(WhatIf, CompareTraceHoldsAMeasuredStepAgainstThePrediction) {
  const std::string recipe = Recipe("recipe.toml", {{"parallelism", "data_parallel_shard_degree = 2"}});
  const Result simulated = Run({"simulate", "--recipe", recipe, "--cluster", "cpu:2x1", "--trace", Path("predicted.json.gz")});
  ASSERT_EQ(simulated.code, 0) << simulated.err;
  const Result trained = Run(Train({"--metrics.trace_steps=2"}));
  ASSERT_EQ(trained.code, 0) << trained.err;
  const std::string measured = Path("run/traces/step-2-rank-0.json.gz");
  EXPECT_NE(trained.err.find(measured), std::string::npos) << trained.err;
  const Json json = Ask({"compare-trace", Path("predicted.json.gz"), measured});
  EXPECT_EQ(json["only_predicted"].size(), 0u) << json["only_predicted"] << ": the captured step is the real one";
  EXPECT_EQ(json["only_measured"].size(), 0u) << json["only_measured"];
  for (const char* side : {"predicted", "measured"}) {
    double sum = 0;
    for (const Json& row : json["rows"]) {
      if (row["stream"] == "compute" || row["phase"] == "") sum += row["seconds"][side].get<double>();
    }
    const double step = json["step_seconds"][side];
    EXPECT_NEAR(sum, step, 1e-3 * step) << side;
    EXPECT_GT(step, 0);
  }
  bool gathers = false;
  for (const Json& row : json["collectives"]) {
    EXPECT_EQ(row["times"]["predicted"], row["times"]["measured"]) << row;
    EXPECT_LE(row["exposed_seconds"]["measured"].get<double>(), row["seconds"]["measured"].get<double>() + 1e-9) << row;
    gathers = gathers || row["collective"] == "lego::all_gather_into";
  }
  EXPECT_TRUE(gathers) << json["collectives"];
  // Two rows of 16 tokens on each rank; of every weight three products, of two FLOPs an element and token.
  const double h = 32, inner = 64, kv = 16, block = h * (h + kv) * 2 + 3 * h * inner, weights = 2 * block + 256 * h;
  double products = 0;
  for (const Json& row : json["achieved"]) {
    const std::string name = row["operator"];
    if (name == "aten::mm" || name == "aten::addmm") products += row["flops"].get<double>();
    EXPECT_GT(row["measured_seconds"].get<double>(), 0) << row;
    EXPECT_GT(row["least_seconds"].get<double>(), 0) << row;
    EXPECT_TRUE(row["bound"] == "compute" || row["bound"] == "memory bandwidth") << row;
  }
  EXPECT_DOUBLE_EQ(products, 6 * 2 * 16 * weights);
  std::set<std::string> categories;
  for (const Json& row : json["memory"]) {
    categories.insert(row["category"]);
    const Json &peak = row["peak_bytes"], predicted = peak["predicted"], measured = peak["measured"];
    if (row["category"] == "all") {
      EXPECT_LE(measured.get<int64_t>(), predicted.get<int64_t>()) << "it has no workspace";
    } else if (row["category"] != "workspace") {
      EXPECT_EQ(predicted, measured) << row << ": to the byte";
    }
  }
  for (const char* category : {"all", "sharded parameter", "unsharded parameter", "activation", "optimizer state"})
    EXPECT_TRUE(categories.count(category)) << category << " in " << json["memory"];
  const Result table = Run({"compare-trace", Path("predicted.json.gz"), measured, "--rows", "3"});
  for (const char* part : {"Where they part", "at least  achieved  bound by"})
    EXPECT_NE(table.out.find(part), std::string::npos) << part << "\n" << table.out;
  ExpectError({"compare-trace", recipe, measured}, 2, {"PREDICTED", "recipe.toml", "no trace file"});
  ExpectError({"compare-trace", Path("predicted.json.gz"), Path("none")}, 2, {"MEASURED", "none"});
}

TEST_F(WhatIf, CompareSaysWhichFileIsAtFault) {
  const std::string good = Recipe("a.toml", {});
  ExpectError({"compare", good, Path("none.toml"), "--cluster", "cpu:2x1"}, 2, {"none.toml"});
  ExpectError({"compare", good, "--cluster", "cpu:2x1"}, 2, {"A.toml B.toml"});
  const std::string bad = Recipe("b.toml", {{"parallelism", "tensor_parallel_degree = 3"}});
  ExpectError({"compare", good, bad, "--cluster", "cpu:2x1"}, 2, {"b.toml", "tensor_parallel_degree"});
}

TEST_F(WhatIf, ASweepOfARecipeIsWhatSimulateSaysAtEachPoint) {
  const Json json = Ask({"sweep", "--recipe", Path("recipe.toml"), "--cluster", "cpu:2x1", "--vary", "gpus=1,2", "--vary",
                         "activation_checkpoint.mode=none,full", "--svg", Path("s.svg"), "--csv", Path("s.csv"), "--price", "2"});
  ASSERT_EQ(json["points"].size(), 4u);
  for (const Json& point : json["points"]) {
    const std::string gpus = point["values"]["gpus"], mode = point["values"]["activation_checkpoint.mode"];
    const Json alone = Simulate({"--activation_checkpoint.mode=" + mode, "--price=2"}, "cpu:" + gpus + "x1");
    EXPECT_DOUBLE_EQ(point["step_time_seconds"], alone["step_time_seconds"]) << point;
    EXPECT_EQ(point["peak_memory_bytes"], alone["stages"][0]["peak_allocated_bytes"]);
    EXPECT_EQ(point["running_cost"], alone["running_cost"]);
  }
  EXPECT_EQ(ReadAll(Path("s.svg")).substr(0, 4), "<svg");
  EXPECT_EQ(ReadAll(Path("s.csv")).substr(0, 32), "gpus,activation_checkpoint.mode,");
}

// A point that cannot be has its reason; where all are so, the call is wrong.
TEST_F(WhatIf, APointThatCannotBeSaysWhy) {
  const std::vector<std::string> sweep = {"sweep", "--recipe", Path("recipe.toml"), "--cluster", "cpu:2x1", "--vary"};
  auto with = [&](const std::string& vary) {
    std::vector<std::string> words = sweep;
    words.push_back(vary);
    return words;
  };
  const Json json = Ask(with("parallelism.tensor_parallel_degree=1,3"));
  EXPECT_TRUE(json["points"][0]["fits"]);
  EXPECT_FALSE(json["points"][1]["fits"]);
  EXPECT_NE(json["points"][1]["reason"].get<std::string>().find("tensor_parallel_degree"), std::string::npos) << json;
  const Json small = Ask(with("memory=64KiB"), 3);
  EXPECT_FALSE(small["points"][0]["fits"]);
  EXPECT_LT(small["points"][0]["headroom_bytes"], 0);
  ExpectError(with("link.node.bandwidth=fast"), 2, {"link.node.bandwidth", "fast"});
  ExpectError(with("parallelism.tensor_degree=2"), 2, {"parallelism.tensor_parallel_degree"});
  ExpectError({"sweep", "--recipe", Path("recipe.toml"), "--cluster", "cpu:2x1"}, 2, {"--vary", "--sensitivities"});
  ExpectError({"sweep", "--recipe", Path("recipe.toml"), "--vary", "gpus=2"}, 2, {"--cluster"});
  ExpectError({"sweep", "--recipe", Path("recipe.toml"), "--cluster", "cpu:2x1", "--vary", "gpus=2", "--seq", "8"}, 2,
              {"--seq", "--training.seq_len"});
}

// A sweep that plans gives the winner of `lego plan` at each point.
TEST_F(WhatIf, APlannedSweepHasTheWinnerOfEachPlan) {
  const Json json = Ask({"sweep", "--recipe", Path("recipe.toml"), "--plan", "--cluster", "cpu:2x1", "--vary", "global-batch=4,8",
                         "--constraint", "training.mixed_precision_param=float32"});
  ASSERT_EQ(json["points"].size(), 2u);
  for (const Json& point : json["points"]) {
    const Json plan =
        Ask({"plan", "--recipe", Path("recipe.toml"), "--cluster", "cpu:2x1", "--constraint",
             "training.mixed_precision_param=float32", "--global-batch", point["values"]["global-batch"].get<std::string>()});
    EXPECT_EQ(point["recipe_toml"], plan["ranked"][0]["recipe_toml"]);
    EXPECT_DOUBLE_EQ(point["step_time_seconds"], plan["ranked"][0]["step_time_seconds"]);
  }
}

TEST_F(WhatIf, SensitivitiesAreSweepsOfOneFigure) {
  const Json all = Ask({"sweep", "--recipe", Path("recipe.toml"), "--cluster", "cpu:2x1", "--sensitivities"});
  EXPECT_DOUBLE_EQ(all["estimate"]["step_time_seconds"], Simulate({})["step_time_seconds"]);
  double before = INFINITY;
  for (const Json& row : all["sensitivities"]) {
    const double now = all["estimate"]["step_time_seconds"];
    const double effect = std::max(std::abs(row.value("less_step_time_seconds", now) - now),
                                   std::abs(row.value("more_step_time_seconds", now) - now));
    EXPECT_LE(effect, before) << row;
    before = effect;
    if (row["figure"] != "memory.bandwidth") continue;
    const Json one =
        Ask({"sweep", "--recipe", Path("recipe.toml"), "--cluster", "cpu:2x1", "--vary", "memory.bandwidth=0.8x,1.2x"});
    EXPECT_DOUBLE_EQ(row["less_step_time_seconds"], one["points"][0]["step_time_seconds"]);
    EXPECT_DOUBLE_EQ(row["more_step_time_seconds"], one["points"][1]["step_time_seconds"]);
    EXPECT_GT(row["less_step_time_seconds"], row["more_step_time_seconds"]);
  }
  EXPECT_LT(before, INFINITY);
}

// Two chunks on each of two ranks, four microbatches: (p - 1) / (v m + p - 1) = 1 / 9 is bubble.
TEST_F(WhatIf, AScheduleIsDrawn) {
  const Json json = Ask({"schedule", "Interleaved1F1B", "--pp", "2", "--microbatches", "4", "--svg", Path("schedule.svg")});
  EXPECT_EQ(json["chunks"], 4);
  EXPECT_DOUBLE_EQ(json["bubble_share"], 1.0 / 9);
  EXPECT_EQ(json["in_flight"], Json({5, 3}));
  ASSERT_EQ(json["actions"].size(), 2u);
  EXPECT_EQ(json["actions"][1][0], Json({{"action", "1F0"}, {"chunk", 1}, {"microbatch", 0}, {"begin", 1}, {"end", 2}}));
  const std::string svg = ReadAll(Path("schedule.svg"));
  EXPECT_EQ(svg.substr(0, 4), "<svg");
  EXPECT_NE(svg.find("backward of microbatch 3, chunk 2"), std::string::npos);
  const Result table = Run({"schedule", "1F1B", "--pp", "2", "--microbatches", "3"});
  EXPECT_EQ(table.out.substr(0, 41), "rank 0  F0 F1 .  .  B0    F2 B1    .  B2\n") << table.out;
  EXPECT_NE(table.out.find("the ranks wait 25.0 % of the time"), std::string::npos) << table.out;
  ExpectError({"schedule", "1F1b", "--pp", "2", "--microbatches", "3"}, 2, {"NAME", "1F1b", "Interleaved1F1B"});
  ExpectError({"schedule", "1F1B", "--pp", "2"}, 2, {"--microbatches"});
  ExpectError({"schedule", "1F1B", "--pp", "0", "--microbatches", "3"}, 2, {"--pp"});
  ExpectError({"schedule", "1F1B", "--pp", "2", "--microbatches", "3", "--chunks", "2"}, 2, {"--chunks", "must be 1 for 1F1B"});
  ExpectError({"schedule", "LoopedBFS", "--pp", "2", "--microbatches", "3", "--chunks", "1"}, 2, {"--chunks", "2 or more"});
  const Json h1 = Ask({"schedule", "InterleavedZeroBubble", "--pp", "2", "--microbatches", "3", "--chunks", "1"});
  EXPECT_DOUBLE_EQ(h1["bubble_share"], 0.1);
  EXPECT_EQ(h1["actions"][0][2]["action"], "I0");
  ExpectError({"schedule", "DualPipeV", "--pp", "2", "--microbatches", "3"}, 2, {"--microbatches", "must be 4 or more"});
  ExpectError({"schedule", "ZBVZeroBubble", "--pp", "2", "--microbatches", "4", "--chunks", "3"}, 2,
              {"--chunks", "must be 2 for"});
}

// What it writes as a file it draws as that schedule again; a file that is none is refused with the cell.
TEST_F(WhatIf, SchedulesAreReadFromFiles) {
  const Json named = Ask({"schedule", "ZBVZeroBubble", "--pp", "2", "--microbatches", "5", "--csv", Path("zbv.csv")});
  EXPECT_EQ(named["ranks"], 2);
  EXPECT_EQ(named["chunks"], 4);
  EXPECT_EQ(named["length"], 31);  // 6 m + p - 1
  EXPECT_EQ(ReadAll(Path("zbv.csv")).substr(0, 20), "0F0,0F1,0F2,3F0,3I0,");
  const Json listed = Ask({"schedule", Path("zbv.csv"), "--svg", Path("zbv.svg")});
  for (const char* const key : {"ranks", "chunks", "microbatches", "length", "in_flight", "actions"})
    EXPECT_EQ(listed[key], named[key]);
  EXPECT_NE(ReadAll(Path("zbv.svg")).find("gradients of the weights of microbatch 4, chunk 3"), std::string::npos);
  // Simulated, a listed schedule is the one with the name.
  Ask({"schedule", "GPipe", "--pp", "2", "--microbatches", "4", "--csv", Path("gpipe.csv")});
  const std::vector<std::string> keys = {"--parallelism.pipeline_parallel_degree=2", "--parallelism.data_parallel_shard_degree=1",
                                         "--training.local_batch_size=4"};
  std::vector<std::string> by_name = keys, by_file = keys;
  by_name.push_back("--parallelism.pipeline_parallel_schedule=GPipe");
  by_file.push_back("--parallelism.pipeline_parallel_schedule_csv=" + Path("gpipe.csv"));
  const Json of_name = Simulate(by_name), of_file = Simulate(by_file);
  EXPECT_DOUBLE_EQ(of_file["step_time_seconds"], of_name["step_time_seconds"]);
  EXPECT_EQ(of_file["stages"][0]["peak_allocated_bytes"], of_name["stages"][0]["peak_allocated_bytes"]);
  ExpectError({"schedule", Path("zbv.csv"), "--pp", "2"}, 2, {"--pp", "cannot go with a file"});
  ExpectError({"schedule", Path("none.csv")}, 2, {"NAME", "none.csv"});
  Write(Path("bad.csv"), "0F0,0B0\n1F0,,1SEND_B0\n");
  ExpectError({"schedule", Path("bad.csv")}, 2, {"1SEND_B0", "line 2, column 3", "compiled format"});
}

}  // namespace
}  // namespace legoai::cli

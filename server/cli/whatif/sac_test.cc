// `lego sac` as a user meets it: real processes, a tiny model, this machine as the cluster.
#include <gtest/gtest.h>

#include <sstream>
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

class Sac : public LegoTest {
 protected:
  std::vector<std::string> Words(const std::string& budget, std::vector<std::string> more = {}) const {
    std::vector<std::string> words = {"sac", "--recipe", Path("recipe.toml"), "--cluster", "cpu:1x1", "--budget", budget};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Json Ask(const std::string& budget, std::vector<std::string> more = {}) {
    more.insert(more.end(), {"-o", "json"});
    const Result result = Run(Words(budget, more));
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out.empty() ? Json() : Json::parse(result.out);
  }
  // Of `checkpointing`, a recipe's lines.
  Json Simulate(const std::string& checkpointing) {
    Write(Path("with.toml"), ReadAll(Path("recipe.toml")) + "\n" + checkpointing);
    const Result result = Run({"simulate", "--recipe", Path("with.toml"), "--cluster", "cpu:1x1", "-o", "json"});
    EXPECT_EQ(result.code, 0) << result.err;
    return Json::parse(result.out);
  }
  std::vector<double> Losses(const std::string& name, const std::string& checkpointing) {
    Write(Path(name + ".toml"), ReadAll(Path("recipe.toml")) + "\n" + checkpointing);
    const Result result =
        Run({"train", Path(name + ".toml"), "--nproc", "1", "-o", "json", "--job.dump_folder=" + Path(name + "-run")});
    EXPECT_EQ(result.code, 0) << result.err;
    std::istringstream lines(ReadAll(Path(name + "-run/metrics.jsonl")));
    std::vector<double> losses;
    for (std::string line; std::getline(lines, line);) losses.push_back(Json::parse(line)["loss"]);
    return losses;
  }
};

TEST_F(Sac, EveryPolicyIsWhatSimulateSaysOfItsLines) {
  const Json all = Ask("100%");
  const int64_t none = all["none"]["peak_memory_bytes"], full = all["full"]["peak_memory_bytes"];
  EXPECT_EQ(all["recipe_toml"].get<std::string>().find("selective"), std::string::npos) << "nothing has to be recomputed";
  ASSERT_LT(full, none);
  for (const std::string solver : {"greedy", "knapsack", "ilp"}) {
    double before = 1e9;
    for (const double share : {0.3, 0.6, 0.9}) {
      const auto budget = full + static_cast<int64_t>(share * static_cast<double>(none - full));
      const Json sac = Ask(std::to_string(budget), {"--solver", solver});
      const Json simulated = Simulate(sac["recipe_toml"]);
      EXPECT_EQ(simulated["stages"][0]["peak_allocated_bytes"], sac["chosen"]["peak_memory_bytes"]);
      EXPECT_DOUBLE_EQ(simulated["step_time_seconds"], sac["chosen"]["step_time_seconds"]);
      EXPECT_LE(sac["chosen"]["peak_memory_bytes"].get<int64_t>(), budget) << sac["policy"];
      EXPECT_LE(sac["chosen"]["step_time_seconds"].get<double>(), before) << "more memory, no more time";
      EXPECT_LE(sac["chosen"]["step_time_seconds"], sac["full"]["step_time_seconds"]);
      EXPECT_GE(sac["chosen"]["step_time_seconds"], sac["none"]["step_time_seconds"]);
      before = sac["chosen"]["step_time_seconds"];
    }
  }
}

TEST_F(Sac, ItsPolicyTrainsWithTheLossesOfNoCheckpointing) {
  const Json all = Ask("100%");
  const int64_t none = all["none"]["peak_memory_bytes"], full = all["full"]["peak_memory_bytes"];
  const Json sac = Ask(std::to_string((none + full) / 2), {"--out", Path("policy.toml"), "--svg", Path("curve.svg")});
  ASSERT_NE(sac["policy"], "") << sac["recipe_toml"];
  EXPECT_EQ(ReadAll(Path("policy.toml")), sac["recipe_toml"].get<std::string>());
  EXPECT_NE(ReadAll(Path("curve.svg")).find("memory against recomputation"), std::string::npos);
  const auto losses = Losses("without", ""), same = Losses("with", ReadAll(Path("policy.toml")));
  EXPECT_FALSE(losses.empty());
  EXPECT_EQ(losses, same);
}

// Of a recipe with mode = "auto", what plans make is simulated and trained as it is; without a plan it is refused.
TEST_F(Sac, APlanTurnsAutoIntoAPolicy) {
  const Json all = Ask("100%");
  const int64_t none = all["none"]["peak_memory_bytes"], full = all["full"]["peak_memory_bytes"];
  const double budget_gib = static_cast<double>((none + full) / 2) / (1 << 30);
  const std::string mode = "--activation_checkpoint.mode=auto";
  const std::string budget = "--activation_checkpoint.memory_budget_gib=" + std::to_string(budget_gib);
  const Json recipe = Simulate("")["recipe"];
  const std::string batch = recipe["training"]["local_batch_size"].dump();
  const std::string precision = recipe["training"]["mixed_precision_param"];
  std::vector<std::string> words = {"plan", "--recipe", Path("recipe.toml"), "--cluster", "cpu:1x1", "-o", "json", mode, budget,
                                    "--training.local_batch_size=" + batch, "--training.mixed_precision_param=" + precision};
  const Result planned = Run(words);
  ASSERT_EQ(planned.code, 0) << planned.err;
  const Json plan = Json::parse(planned.out);
  std::string policy;
  for (const Json& ranked : plan["ranked"]) {
    EXPECT_LE(ranked["peak_memory_bytes"].get<double>(), budget_gib * (1 << 30));
    const Json& section = ranked["recipe"]["activation_checkpoint"];
    if (policy.empty() && section["selective_ac_option"] == "policy") policy = ranked["recipe_toml"];
  }
  ASSERT_NE(policy, "") << planned.out;
  Write(Path("planned.toml"), policy);
  EXPECT_EQ(Run({"simulate", "--recipe", Path("planned.toml"), "--cluster", "cpu:1x1"}).code, 0);
  for (const std::vector<std::string>& unplanned :
       {std::vector<std::string>{"simulate", "--recipe", Path("recipe.toml"), "--cluster", "cpu:1x1", mode},
        {"train", Path("recipe.toml"), "--nproc", "1", mode}}) {
    ExpectError(unplanned, 2, {"activation_checkpoint.mode", "auto", "lego plan", "lego sac"});
  }
  words[8] = "--activation_checkpoint.memory_budget_gib=" + std::to_string(0.9 * static_cast<double>(full) / (1 << 30));
  const Result nothing = Run(words);
  EXPECT_EQ(nothing.code, 3) << nothing.err;
  EXPECT_NE(nothing.err.find("Nothing fits. The closest is "), std::string::npos) << nothing.err;
}

TEST_F(Sac, TheTableHasOperatorsCurveAndLines) {
  const Json all = Ask("100%");
  const int64_t none = all["none"]["peak_memory_bytes"], full = all["full"]["peak_memory_bytes"];
  const Result table = Run(Words(std::to_string((none + full) / 2)));
  for (const char* part : {"Operators of block 0", "lego::attention", "Memory against recomputation", "this policy",
                           "[activation_checkpoint]", "selective_ac_policy = "}) {
    EXPECT_NE(table.out.find(part), std::string::npos) << part << "\n" << table.out;
  }
}

TEST_F(Sac, SaysWhatCannotBe) {
  const Json all = Ask("100%");
  const int64_t full = all["full"]["peak_memory_bytes"];
  ExpectError(Words(std::to_string(full - 1)), 3, {"--budget", "the least that any policy reaches", "mode = \"full\""});
  EXPECT_EQ(Run(Words(std::to_string(full))).code, 0);
  ExpectError(Words("much"), 2, {"--budget", "much", "20GiB"});
  ExpectError(Words("1GiB", {"--solver", "magic"}), 2, {"--solver", "magic", "greedy, knapsack, ilp"});
  ExpectError({"sac", "--recipe", Path("recipe.toml"), "--cluster", "cpu:1x1"}, 2, {"--budget"});
}

}  // namespace
}  // namespace legoai::cli

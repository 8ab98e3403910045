// The command as a user meets it: the real programs, started as processes; exit codes, messages and their JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "planner/ranking.h"
#include "server/cli/testing/lego_process.h"

namespace legoai::cli {
namespace {

namespace fs = std::filesystem;
using testing::Json;
using testing::ReadAll;
using testing::Result;
using testing::Write;

class Lego : public testing::LegoTest {
 protected:
  std::vector<std::string> Plan(std::vector<std::string> more) const {
    std::vector<std::string> words = {"plan", "--recipe", Path("recipe.toml"), "--cluster", "cpu:2x1", "-o", "json"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

std::set<std::string> Keys(const Json& json) {
  std::set<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.insert(key);
  return keys;
}

TEST_F(Lego, EveryCommandHasHelpWithAnExample) {
  for (const char* command :
       {"plan", "simulate", "train", "fr", "checkpoints", "models", "hardware", "calibrate", "version", "completion"}) {
    const Result result = Run({command, "--help"});
    EXPECT_EQ(result.code, 0);
    EXPECT_NE(result.out.find("\nexample:\n"), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("usage: lego " + std::string(command)), std::string::npos);
    EXPECT_NE(Run({}).out.find(command), std::string::npos);
  }
}

// Whatever `lego` lists: options of the example are the command's own.
TEST_F(Lego, ExamplesAreUnderstood) {
  int count = 0;
  std::istringstream overview(Run({}).out);
  for (std::string line; std::getline(overview, line);) {
    if (line.rfind("  ", 0) != 0) continue;
    const std::string help = Run({line.substr(2, line.find(' ', 2) - 2), "--help"}).out;
    const std::string example = help.substr(help.find("\nexample:\n") + 12);
    if (example.rfind("lego ", 0) != 0) continue;  // of `completion`, which is read by the shell
    const Result result = Wait(StartProgram({"/bin/bash", "-c", "lego() { server/cli/lego \"$@\" --help; }; " + example}));
    EXPECT_EQ(result.code, 0) << example << result.err;
    EXPECT_EQ(result.out, help);
    ++count;
  }
  EXPECT_GE(count, 18);
}

TEST_F(Lego, WrongCallsNameWhatIsMeant) {
  ExpectError({"simulat"}, 2, {"did you mean `lego simulate`"});
  ExpectError({"plan", "--clustr", "x"}, 2, {"--clustr", "did you mean --cluster"});
  ExpectError({"simulate", "--cluster", "h100-sxm-80:8x1"}, 2, {"--recipe", "is needed"});
  ExpectError({"plan", "--cluster", "h100-sxm-80:8x1", "--model", "llama3-8b", "--seq", "8"}, 2, {"--global-batch"});
  ExpectError({"completion", "tcsh"}, 2, {"tcsh", "bash, zsh or fish"});
  ExpectError({"checkpoints", Path("nowhere")}, 2, {"nowhere"});
  ExpectError({"fr", Path("config.json")}, 2, {"config.json"});
}

TEST_F(Lego, ControlCharactersAreRefusedAndNotPrinted) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{{"pl\x1b[2Jan"},
                                                                                     {"checkpoints", "no\x1b[2Jwhere"},
                                                                                     {"plan", "--model", "a\nb"},
                                                                                     {"train", "--job.description=\xc2\x9b"}}) {
    const Result result = Run(words);
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_NE(result.err.find("must not have control characters"), std::string::npos) << result.err;
    EXPECT_EQ(result.err.find_first_of("\x1b\x9b"), std::string::npos) << result.err;
  }
  Write(Path("escape.toml"), "[job]\ndump_folder = \"runs\\u0000/\\u001b[2J\"\n");
  const Result result = Run({"train", Path("escape.toml")});
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_NE(result.err.find("job.dump_folder = runs\\u0000/\\u001b[2J: must not have control characters"), std::string::npos)
      << result.err;
}

TEST_F(Lego, CatalogsAndVersion) {
  const Json models = Json::parse(Run({"models", "-o", "json"}).out);
  bool found = false;
  for (const Json& model : models) found = found || (model["name"] == "llama3-8b" && model["parameters"] == 8030261248);
  EXPECT_TRUE(found);
  const Json hardware = Json::parse(Run({"hardware", "-o", "json"}).out);
  EXPECT_EQ(Keys(hardware), (std::set<std::string>{"devices", "gpus", "host", "links", "this_machine"}));
  EXPECT_GE(hardware["host"]["cores"], 1);
  EXPECT_GT(hardware["host"]["memory_bytes"], 0);
  EXPECT_TRUE(hardware["this_machine"].is_null());
  EXPECT_NE(Run({"hardware"}).out.find("h100-sxm-80"), std::string::npos);
  EXPECT_TRUE(Json::parse(Run({"version", "-o", "json"}).out)["version"].is_string());
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = Run({"completion", shell}).out;
    EXPECT_NE(script.find("budget-seconds"), std::string::npos) << shell;
    EXPECT_EQ(Json::parse(Run({"completion", shell, "-o", "json"}).out)["script"], script);
  }
}

TEST_F(Lego, TheOutputIsSaidBeforeOrAfterTheCommand) {
  const std::string json = Run({"models", "-o", "json"}).out;
  ASSERT_FALSE(Json::parse(json, nullptr, false).is_discarded()) << json;
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{{"-o", "json", "models"},
                                                                                     {"-ojson", "models"},
                                                                                     {"--output=json", "models"},
                                                                                     {"models", "-ojson"},
                                                                                     {"models", "-o=json"}})
    EXPECT_EQ(Run(words).out, json) << words[0];
  ExpectError({"-o", "json", "models", "-oyaml"}, 2, {"--output", "given twice"});
  ExpectError({"-oxml", "models"}, 2, {"--output", "table, json or yaml"});
}

TEST_F(Lego, CalibrateMakesADeviceOfMeasurements) {
  std::string text =
      "provenance { kind: CUDA card: \"NVIDIA H100 80GB HBM3\" date: \"2026-11-22\" } kernel_launch_seconds: 2e-6\n";
  for (int i = 1; i <= 100; ++i) {  // half of 989.4 TFLOP/s
    text +=
        "operators { operator: \"aten::mm\" op_class: \"matmul\" dtype: BFLOAT16 shape { key: \"m\" value: " + std::to_string(i) +
        " } flops: 494.7e9 seconds: 1e-3 }\n";
  }
  Write(Path("calibration.txtpb"), text);
  ExpectError({"calibrate", Path("calibration.txtpb")}, 2, {"--type"});
  ExpectError({"calibrate", Path("calibration.txtpb"), "--type", "h100"}, 2, {"--type", "h100", "h100-sxm-80"});
  ExpectError({"calibrate", Path("calibration.txtpb"), "--type", "cpu"}, 2, {"cpu", "cuda"});
  ExpectError({"calibrate", Path("none.txtpb"), "--type", "h100-sxm-80"}, 2, {"none.txtpb"});
  const std::string device = Path("mine.txtpb");
  const Result table = Run({"calibrate", Path("calibration.txtpb"), "--type", "h100-sxm-80", "--out", device});
  ASSERT_EQ(table.code, 0) << table.err;
  EXPECT_NE(table.out.find("matmul"), std::string::npos) << table.out;
  EXPECT_NE(table.out.find(" 0.700 "), std::string::npos) << table.out;
  EXPECT_NE(table.out.find(" 0.500 "), std::string::npos) << table.out;
  const Json json = Json::parse(Run({"calibrate", Path("calibration.txtpb"), "--type", "h100-sxm-80", "-o", "json"}).out);
  ASSERT_EQ(json["fits"].size(), 1u);
  EXPECT_NEAR(json["fits"][0]["measured"], 0.5, 1e-3);
  EXPECT_NEAR(json["fits"][0]["assumed_error"]["median"], 1 - 0.5 / 0.7, 1e-3);
  EXPECT_EQ(json["fits"][0]["points"], 100);
  // The file is a device to simulate with.
  const Result simulated = Run({"simulate", "--recipe", Path("recipe.toml"), "--cluster", device + ":2x1", "-o", "json"});
  EXPECT_EQ(simulated.code, 0) << simulated.err;
}

TEST_F(Lego, BashCompletesCommandsAndTheirOptions) {
  const std::string script = Path("completion.bash");
  Write(script, Run({"completion", "bash"}).out);
  const Result parsed = Wait(StartProgram({"/bin/bash", "-n", script}));
  EXPECT_EQ(parsed.code, 0) << parsed.err;
  const auto completed = [&](const std::string& words, int word) {
    const Result result = Wait(StartProgram({"/bin/bash", "-c",
                                             "source " + script + "; COMP_WORDS=(" + words +
                                                 "); COMP_CWORD=" + std::to_string(word) + "; _lego; echo ${COMPREPLY[@]}"}));
    EXPECT_EQ(result.err, "");
    return result.out;
  };
  EXPECT_EQ(completed("lego pla", 1), "plan\n");
  EXPECT_EQ(completed("lego simulate --mem", 2), "--memory-timeline\n");
  EXPECT_EQ(completed("lego plan -o ya", 3), "yaml\n");
  EXPECT_EQ(completed("lego plan --recipe " + Path("recipe"), 3), Path("recipe.toml") + "\n");
}

TEST_F(Lego, BadRecipesAreRefusedByNameBeforeAnythingStarts) {
  const std::string recipe = Path("recipe.toml");
  ExpectError({"train", recipe, "--training.local_bach_size=2"}, 2, {"training.local_bach_size", "training.local_batch_size"});
  ExpectError({"train", recipe, "--parallelism.tensor_parallel_degree=3"}, 2, {"parallelism.tensor_parallel_degree", "3"});
  ExpectError({"train", recipe, "--parallelism.expert_parallel_degree=2"}, 2, {"expert_parallel_degree", "not supported yet"});
  ExpectError({"train", recipe, "--training.dataset_path=" + Path("none.txt")}, 2, {"training.dataset_path", "none.txt"});
  Write(Path("empty.txt"), "");
  ExpectError({"train", recipe, "--training.dataset_path=" + Path("empty.txt")}, 2, {"training.dataset_path", "empty"});
  ExpectError({"train", recipe, "--training.seq_len=1000000"}, 2, {"seq_len"});
  ExpectError({"train", Path("missing.toml")}, 2, {"missing.toml"});
  // Another trainer's file: everything at once.
  Write(Path("titan.toml"), "[training]\ncompile = true\nbatch_size = 8\n[profiling]\nenable_profiling = true\n");
  ExpectError({"train", Path("titan.toml")}, 2,
              {"titan.toml: 3 faults:\n", "\n  profiling: remove the section",
               "\n  training.batch_size = 8: is training.local_batch_size",
               "\n  training.compile = true: is compile.enable here"});
  EXPECT_FALSE(fs::exists(folder_ / "run/metrics.jsonl"));
}

TEST_F(Lego, BadModelsAreRefusedByName) {
  const std::string recipe = Path("recipe.toml");
  Write(Path("broken.json"), R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 256})");
  ExpectError({"simulate", "--cluster", "cpu:1x1", "--recipe", recipe, "--model", Path("broken.json")}, 2,
              {"config.json: hidden_size"});
  Write(Path("other.json"), R"({"architectures": ["MambaForCausalLM"], "model_type": "mamba"})");
  ExpectError({"simulate", "--cluster", "cpu:1x1", "--recipe", recipe, "--model", Path("other.json")}, 2, {"MambaForCausalLM"});
  ExpectError({"simulate", "--cluster", "cpu:1x1", "--recipe", recipe, "--model", "llama3-9b"}, 2, {"llama3-9b"});
  ExpectError({"simulate", "--cluster", "cpux:1x1", "--recipe", recipe}, 2, {"--cluster", "cpux"});
}

TEST_F(Lego, SimulateGivesTheJsonThatScriptsRelyOn) {
  const Result result = Run({"simulate", "--recipe", Path("recipe.toml"), "--cluster", "cpu:2x1", "-o", "json", "--trace",
                             Path("trace.json"), "--memory-timeline", Path("memory.json")});
  ASSERT_EQ(result.code, 0) << result.err;
  const Json json = Json::parse(result.out);
  EXPECT_EQ(Keys(json), (std::set<std::string>{"model",
                                               "cluster",
                                               "recipe",
                                               "parameters",
                                               "world_size",
                                               "fits",
                                               "step_time_seconds",
                                               "tokens_per_second_per_gpu",
                                               "model_flops_per_token",
                                               "mfu",
                                               "hfu",
                                               "breakdown",
                                               "stages",
                                               "cost_models",
                                               "operators",
                                               "capture_seconds",
                                               "simulate_seconds",
                                               "mfu_fault",
                                               "running_cost",
                                               "largest_operators",
                                               "largest_modules",
                                               "critical_path"}));
  EXPECT_EQ(Keys(json["breakdown"]), (std::set<std::string>{"compute_seconds", "exposed_communication_seconds", "bubble_seconds",
                                                            "launch_seconds", "optimizer_seconds"}));
  ASSERT_EQ(json["stages"].size(), 1u);
  const Json& stage = json["stages"][0];
  EXPECT_EQ(Keys(stage),
            (std::set<std::string>{"stage", "rank", "peak_requested_bytes", "peak_allocated_bytes", "peak_reserved_bytes",
                                   "reserve_bytes", "capacity_bytes", "categories", "peak_at", "breakdown"}));
  EXPECT_TRUE(stage["peak_reserved_bytes"].is_null());
  int64_t sum = 0;
  for (const auto& [name, bytes] : stage["categories"].items()) sum += bytes.get<int64_t>();
  EXPECT_EQ(sum, stage["peak_requested_bytes"]);
  EXPECT_TRUE(json["fits"]);
  EXPECT_GT(json["step_time_seconds"], 0.0);
  // Embedding and head 256 x 32; a layer: q, o 32 x 32, k, v 16 x 32, three of 32 x 64, two norms; a last norm.
  EXPECT_EQ(json["parameters"], 2 * 256 * 32 + 2 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 32 * 64 + 2 * 32) + 32);
  EXPECT_EQ(json["world_size"], 2);
  for (const char* file : {"trace.json", "memory.json"}) EXPECT_FALSE(Json::parse(ReadAll(Path(file))).empty()) << file;
  const Result table = Run({"simulate", "--recipe", Path("recipe.toml"), "--cluster", "cpu:2x1"});
  for (const char* part : {"step time", "the largest operators", "the largest modules", "critical path", "GPU-hours"})
    EXPECT_NE(table.out.find(part), std::string::npos) << table.out;
}

TEST_F(Lego, PricesHeadroomAndObjectivesAreReadAndRefusedByName) {
  const auto priced = Run({"simulate", "--recipe", Path("recipe.toml"), "--cluster", "cpu:2x1", "--price", "3", "-o", "json"});
  ASSERT_EQ(priced.code, 0) << priced.err;
  const Json cost = Json::parse(priced.out)["running_cost"];
  EXPECT_DOUBLE_EQ(cost["price_per_billion_tokens"], 3 * cost["gpu_hours_per_billion_tokens"].get<double>());
  const Json roomy = Json::parse(Run(Plan({"--min-headroom", "10%", "--top", "1"})).out);
  EXPECT_NE(roomy["explanation"].get<std::string>().find("are left free, as asked for"), std::string::npos) << roomy;
  ExpectError(Plan({"--min-headroom", "4GB"}), 2, {"--min-headroom", "4GB", "as 4GiB"});
  ExpectError(Plan({"--min-headroom", "100%"}), 2, {"--min-headroom", "100%"});
  ExpectError(Plan({"--objective", "cost"}), 2, {"--objective", "the fastest takes the fewest GPU-hours"});
  const Json small = Json::parse(Run(Plan({"--objective", "memory"})).out);
  EXPECT_TRUE(small["explanation"].get<std::string>().starts_with("The recipe with the smallest peak memory is ")) << small;
  for (const Json& ranked : small["ranked"]) {
    EXPECT_LE(small["ranked"][0]["peak_memory_bytes"].get<double>(), 1.01 * ranked["peak_memory_bytes"].get<double>());
  }
  ExpectError(Plan({"--objective", "speed"}), 2, {"--objective", "speed", "must be step_time or memory"});
  ExpectError(Plan({"--price", "-1"}), 2, {"--price"});
}

TEST_F(Lego, TraceFilesSayWhatTheyLeaveOut) {
  const std::vector<std::string> simulate = {"simulate", "--recipe", Path("recipe.toml"), "--cluster", "cpu:2x1"};
  auto with = [&](std::vector<std::string> options) {
    options.insert(options.begin(), simulate.begin(), simulate.end());
    return options;
  };
  ExpectError(with({"--full-trace"}), 2, {"--full-trace", "goes with --trace or --memory-timeline"});
  const Result part = Run(with({"--trace", Path("part.json.gz"), "--memory-timeline", Path("memory.json")}));
  ASSERT_EQ(part.code, 0) << part.err;
  EXPECT_NE(part.err.find("wrote " + Path("part.json.gz") + ", "), std::string::npos) << part.err;
  EXPECT_EQ(ReadAll(Path("part.json.gz")).substr(0, 2), "\x1f\x8b");
  const Result full = Run(with({"--full-trace", "--trace", Path("full.json")}));
  ASSERT_EQ(full.code, 0) << full.err;
  EXPECT_EQ(full.err.find("--full-trace writes all"), std::string::npos) << full.err;
  const Json trace = Json::parse(ReadAll(Path("full.json")));
  EXPECT_EQ(trace["otherData"]["left_out"], "nothing");
  EXPECT_EQ(trace["otherData"]["cluster"], "cpu:2x1");
  // Where something is left out, here points of memory, the file and the user are told the same.
  const std::string told = Json::parse(ReadAll(Path("memory.json")))["otherData"]["left_out"];
  EXPECT_EQ(told == "nothing", part.err.find(Path("memory.json") + ": ") == std::string::npos) << told << part.err;
  if (told != "nothing") {
    EXPECT_NE(part.err.find(told + "; --full-trace writes all"), std::string::npos) << part.err;
  }
}

TEST_F(Lego, BucketsArePlannedAndCarriedInTheRecipe) {
  const std::vector<std::string> program = {"--compile.enable=true", "--compile.fsdp_bucketing=auto"};
  const auto with = [&](std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const std::vector<std::string> simulate = {"simulate", "--cluster", "cpu:2x1", "-o", "json", "--recipe"};
  const std::string planned_path = Path("planned.toml");
  const Result first = Run(with(with(simulate, {Path("recipe.toml"), "--passes", "--out", planned_path}), program));
  ASSERT_EQ(first.code, 0) << first.err;
  const Json planned = Json::parse(first.out);
  EXPECT_EQ(planned["recipe"]["compile"]["fsdp_bucketing"], "manual");
  std::vector<std::string> kinds, passes;
  for (const Json& one : planned["bucketing"]) kinds.push_back(one["fsdp_bucketing"]);
  EXPECT_EQ(kinds, (std::vector<std::string>{"manual", "block", "none"}));
  for (const Json& one : planned["passes"]) passes.push_back(one["pass"]);
  EXPECT_EQ(passes, (std::vector<std::string>{"captured", "gather_at_use", "bucket_collectives", "reorder_collectives"}));
  EXPECT_EQ(planned["passes"][3]["exposed_communication_seconds"], planned["breakdown"]["exposed_communication_seconds"]);
  EXPECT_LT(planned["passes"][2]["collectives"], planned["passes"][1]["collectives"]);
  // The recipe that was written has the plan.
  const Result again = Run(with(simulate, {planned_path}));
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(Json::parse(again.out)["step_time_seconds"], planned["step_time_seconds"]);
  EXPECT_EQ(Json::parse(again.out)["recipe"], planned["recipe"]);
  // Of another model it is refused by name.
  ExpectError(with(simulate, {planned_path, "--compile.fsdp_buckets=norm;layers.77.mlp"}), 2,
              {"compile.fsdp_buckets", "layers.77.mlp", "is no module of the model"});
  // Tables have both, and a recipe without passes has none to show.
  const Result table = Run(with({"simulate", "--cluster", "cpu:2x1", "--recipe", Path("recipe.toml"), "--passes"}, program));
  EXPECT_NE(table.out.find(" planned buckets "), std::string::npos) << table.out;
  EXPECT_NE(table.out.find("after pass"), std::string::npos) << table.out;
  ExpectError(with(simulate, {Path("recipe.toml"), "--passes"}), 2, {"--passes", "compile.enable = true"});
  // A plan decides it for the best recipes, and a training for this machine.
  const Result plan = Run(with(Plan({"--out", Path("best.toml")}), program));
  ASSERT_EQ(plan.code, 0) << plan.err;
  EXPECT_NE(Json::parse(plan.out)["explanation"].get<std::string>().find("FSDP's collectives: in planned buckets"),
            std::string::npos)
      << plan.out;
  EXPECT_EQ(ReadAll(Path("best.toml")).find("\"auto\""), std::string::npos);
  const Result dry = Run(with({"train", Path("recipe.toml"), "--nproc", "2", "--dry-run"}, program));
  EXPECT_EQ(dry.code, 0) << dry.err;
  EXPECT_NE(dry.err.find("planned compile.fsdp_buckets for cpu:2x1"), std::string::npos) << dry.err;
}

TEST_F(Lego, ABenchmarkTellsWhatItDoesAndHowLongThatTakes) {
  const Result result = Run({"simulate", "--recipe", Path("recipe.toml"), "--cluster", "cpu:2x1", "--benchmark", "-o", "json"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_GT(Json::parse(result.out)["step_time_seconds"], 0.0);
  EXPECT_NE(result.err.find("replaying the step"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find(" to go"), std::string::npos) << result.err;
}

TEST_F(Lego, TheSamePlanTwiceIsTheSamePlan) {
  std::vector<Json> plans;
  for (int i = 0; i < 2; ++i) {
    plans.push_back(Json::parse(
        Run(Plan({"--budget-seconds", "0", "--rejected", "all", "--constraint", "training.mixed_precision_param=float32"})).out));
    plans.back().erase("seconds");
  }
  EXPECT_EQ(plans[0]["not_reached"], 0);
  EXPECT_FALSE(plans[0]["rejected"].empty());
  testing::ExpectAllRejected(plans[0]);
  EXPECT_EQ(plans[0], plans[1]);
}

TEST_F(Lego, PlanRanksAndItsCountsAddUp) {
  const Result result = Run(Plan({"--budget-seconds", "60", "--top", "3", "--out", Path("winner.toml"), "--constraint",
                                  "training.mixed_precision_param=float32"}));
  ASSERT_EQ(result.code, 0) << result.err;
  const Json json = Json::parse(result.out);
  EXPECT_EQ(Keys(json), (std::set<std::string>{"model", "cluster", "global_batch", "seq_len", "space", "pruned", "bounded_out",
                                               "captured", "captured_unfit", "failed", "not_reached", "seconds", "ranked",
                                               "rejected", "explanation", "stopped_early"}));
  int64_t sum = json["bounded_out"].get<int64_t>() + json["captured"].get<int64_t>() + json["failed"].get<int64_t>() +
                json["not_reached"].get<int64_t>();
  for (const auto& [rule, count] : json["pruned"].items()) sum += count.get<int64_t>();
  EXPECT_EQ(json["space"], sum);
  EXPECT_EQ(json["failed"], 0) << result.out;
  ASSERT_GE(json["ranked"].size(), 2u);
  double before = 0;
  for (const Json& ranked : json["ranked"]) {
    EXPECT_EQ(Keys(ranked),
              (std::set<std::string>{"rank", "recipe", "recipe_toml", "step_time_seconds", "tokens_per_second_per_gpu", "mfu",
                                     "peak_memory_bytes", "headroom_bytes", "memory", "breakdown", "estimated", "running_cost"}));
    EXPECT_EQ(ranked["estimated"], false);
    EXPECT_EQ(ranked["recipe"]["training"]["mixed_precision_param"], "float32");
    const double seconds = ranked["step_time_seconds"];
    EXPECT_LE(before, (1 + planner::kNearTie) * seconds);  // near ties are ranked by headroom
    before = std::max(before, seconds);
  }
  EXPECT_EQ(ReadAll(Path("winner.toml")), json["ranked"][0]["recipe_toml"]);
  const Result again = Run({"simulate", "--recipe", Path("winner.toml"), "--cluster", "cpu:2x1", "-o", "json"});
  EXPECT_EQ(Json::parse(again.out)["step_time_seconds"], json["ranked"][0]["step_time_seconds"]);
}

TEST_F(Lego, InterruptedPlansLeaveNoProcess) {
  for (int signal_number : {SIGINT, SIGTERM, SIGKILL}) {
    const pid_t lego = Start({"plan", "--model", "llama3-405b", "--cluster", "h100-sxm-80:8x64", "--global-batch", "512", "--seq",
                              "8192", "--budget-seconds", "0", "-o", "json", "--out", Path("winner.toml")});
    testing::WaitUntil("a simulation", [&] { return testing::Ended(lego) || Processes().size() > 1; });
    kill(lego, signal_number);
    const Result result = Wait(lego);
    EXPECT_EQ(result.code, signal_number == SIGKILL ? -1 : 130) << result.err;
    EXPECT_EQ(result.signal, signal_number == SIGKILL ? SIGKILL : 0);
    EXPECT_EQ(result.out, "");
    if (signal_number == SIGKILL) {
      testing::WaitUntil("the end of the simulators", [&] { return Processes().empty(); });
    } else {
      EXPECT_NE(result.err.find("cancelled"), std::string::npos) << result.err;
      EXPECT_TRUE(Processes().empty());
    }
    EXPECT_FALSE(fs::exists(Path("winner.toml")));
  }
}

// The simulator is stopped, so that it cannot be done before the interrupt.
TEST_F(Lego, InterruptedSimulationsLeaveNoProcess) {
  const pid_t lego = Start({"simulate", "--recipe", Path("recipe.toml"), "--cluster", "cpu:2x1"});
  pid_t simulator = 0;
  testing::WaitUntil("a simulator", [&] {
    for (const testing::Process& process : Processes()) {
      if (process.program == "lego-sim") simulator = process.pid;
    }
    return simulator != 0 || testing::Ended(lego);
  });
  ASSERT_NE(simulator, 0) << Wait(lego).err;
  kill(simulator, SIGSTOP);
  kill(lego, SIGINT);
  const Result result = Wait(lego);
  EXPECT_EQ(result.code, 130) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.err.find("interrupted"), std::string::npos) << result.err;
  EXPECT_TRUE(Processes().empty());
}

TEST_F(Lego, ABudgetThatIsOverAtOnceStillFindsARecipe) {
  const Result result = Run(Plan({"--budget-seconds", "0.000001", "--out", Path("winner.toml")}));
  ASSERT_EQ(result.code, 0) << result.err;
  const Json json = Json::parse(result.out);
  EXPECT_GT(json["not_reached"], 0);
  EXPECT_EQ(json["ranked"].size(), 10u);
  EXPECT_EQ(json["ranked"].front()["estimated"], false);
  EXPECT_EQ(json["ranked"].back()["estimated"], true);
  EXPECT_NE(result.err.find("the budget of"), std::string::npos) << result.err;
  EXPECT_EQ(ReadAll(Path("winner.toml")), json["ranked"][0]["recipe_toml"]);
}

TEST_F(Lego, NothingFitsIsExitCodeThreeWithTheClosest) {
  const Result planned = Run(
      {"plan", "--model", "llama3-405b", "--cluster", "a100-sxm-40:1x1", "--global-batch", "1", "--seq", "128", "-o", "json"});
  EXPECT_EQ(planned.code, 3) << planned.err;
  const Json json = Json::parse(planned.out);
  EXPECT_TRUE(json["ranked"].empty());
  ASSERT_FALSE(json["rejected"].empty());
  EXPECT_EQ(Keys(json["rejected"][0]), (std::set<std::string>{"recipe", "rule", "reason", "peak_memory_bytes", "is_bound"}));
  EXPECT_NE(planned.err.find("closest"), std::string::npos) << planned.err;
  EXPECT_FALSE(fs::exists(folder_ / "winner.toml"));
  // The table says so too, and once.
  const Result table =
      Run({"plan", "--model", "llama3-405b", "--cluster", "a100-sxm-40:1x1", "--global-batch", "1", "--seq", "128"});
  EXPECT_EQ(table.code, 3);
  const std::string all = table.out + table.err;
  const size_t said = all.find("Nothing fits.");
  EXPECT_NE(said, std::string::npos) << all;
  EXPECT_EQ(all.find("Nothing fits.", said + 1), std::string::npos) << all;
}

TEST_F(Lego, PlanRefusesWhatCannotBe) {
  ExpectError(Plan({"--constraint", "parallelism.tensor_paralel_degree=2"}), 2, {"tensor_parallel_degree"});
  ExpectError(Plan({"--constraint", "nonsense"}), 2, {"--constraint", "KEY=VALUE"});
  ExpectError(Plan({"--constraint", "parallelism.tensor_parallel_degree=3"}), 2, {"tensor_parallel_degree=3: use one of 1, 2"});
  ExpectError(Plan({"--constraint", "parallelism.expert_parallel_degree=2"}), 2, {"expert_parallel_degree=2", "not supported"});
  ExpectError(Plan({"--global-batch", "0"}), 2, {"--global-batch", "0"});
  ExpectError(Plan({"--rejected", "some"}), 2, {"closest or all"});
}

TEST_F(Lego, MissingProgramsAreNamed) {
  setenv("LEGOAI_SIM", "/nowhere/lego-sim", 1);
  ExpectError(Plan({}), 1, {"LEGOAI_SIM", "bazel build"});
  // A program that is no lego-sim: that nothing fits is not known.
  setenv("LEGOAI_SIM", "/bin/true", 1);
  ExpectError(Plan({}), 1, {"simulations failed"});
  unsetenv("LEGOAI_SIM");
}

TEST_F(Lego, TrainsResumesAndIsLookedAt) {
  const std::string recipe = Path("recipe.toml");
  const Result dry = Run({"train", recipe, "--nproc", "2", "--dry-run"});
  ASSERT_EQ(dry.code, 0) << dry.err;
  EXPECT_EQ(dry.err.find("warm-up"), std::string::npos) << dry.err;
  const Result brief = Run({"train", recipe, "--nproc", "2", "--dry-run", "--training.steps=2"});
  EXPECT_NE(brief.err.find("the whole run is warm-up of the learning rate"), std::string::npos) << brief.err;
  EXPECT_FALSE(fs::exists(folder_ / "run"));
  const Result first = Run({"train", recipe, "--nproc", "2", "--training.steps=3", "-o", "json"});
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(Json::parse(first.out)["step"], 3);
  EXPECT_NE(first.err.find("step 3/3"), std::string::npos) << first.err;
  // In another layout from where it was.
  const Result second = Run({"train", recipe, "--nproc", "1", "-o", "json", "--predict"});
  ASSERT_EQ(second.code, 0) << second.err;
  const Json json = Json::parse(second.out);
  EXPECT_EQ(json["resumed_from"], 3);
  EXPECT_EQ(json["step"], 6);
  EXPECT_GT(json["predicted_step_seconds"], 0.0);
  EXPECT_GT(json["peak_memory_bytes"][0], 0);
  EXPECT_NE(second.err.find("predicting: "), std::string::npos) << second.err;

  const Json checkpoints = Json::parse(Run({"checkpoints", Path("run"), "-o", "json"}).out);
  ASSERT_EQ(checkpoints.size(), 2u);
  EXPECT_EQ(checkpoints[1]["step"], 6);
  EXPECT_TRUE(checkpoints[1]["same_build"]);
  const Result records = Run({"fr", Path("run"), "-o", "json"});
  ASSERT_EQ(records.code, 0) << records.err;
  EXPECT_EQ(Json::parse(records.out)["world_size"], 1);
  EXPECT_EQ(Json::parse(records.out)["analysis"]["verdict"], "fully_matched");
  EXPECT_EQ(Json::parse(records.out)["analysis"]["culprits"].size(), 0u);
  const Result table = Run({"fr", Path("run")});
  EXPECT_EQ(table.code, 0);
  EXPECT_NE(table.out.find("\nverdict: fully_matched\n"), std::string::npos) << table.out;
  // Of which attempt it is, and when that was.
  EXPECT_THAT(table.out, ::testing::MatchesRegex(
                             "attempt 2, which began 20..-..-.. ..:..:.. and finished 20..-..-.. ..:..:.. at step 6\n.*"));
  EXPECT_EQ(Json::parse(records.out)["attempt"], 2);
  EXPECT_EQ(Json::parse(records.out)["outcome"], "finished");
}

}  // namespace
}  // namespace legoai::cli

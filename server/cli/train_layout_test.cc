// `lego train` of a file that leaves its layout open: with the real programs, beside what `lego plan` answers.
#include "server/cli/train_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/recipe/recipe.h"
#include "server/cli/testing/lego_process.h"

namespace legoai::cli {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing::Json;
using ::testing::Not;
using testing::ReadAll;
using testing::Result;
using testing::Write;

// A processor that has bfloat16 in software only, as it would be measured.
constexpr char kDevice[] = R"(
type: "cpu" kind: CPU memory_bytes: 0 memory_bandwidth_bytes_per_second: 1e10
peak_flops { dtype: FLOAT32 flops_per_second: 3e10 } peak_flops { dtype: FLOAT64 flops_per_second: 1e10 }
peak_flops { dtype: BFLOAT16 flops_per_second: 4e8 } peak_flops { dtype: FLOAT16 flops_per_second: 8e8 }
efficiencies { op_class: "matmul" fraction: 0.8 source: "a test" }
efficiencies { op_class: "attention" fraction: 0.4 source: "a test" }
efficiencies { op_class: "elementwise" fraction: 0.7 source: "a test" }
efficiencies { op_class: "reduction" fraction: 0.5 source: "a test" }
efficiencies { op_class: "copy" fraction: 0.8 source: "a test" }
efficiencies { op_class: "optimizer" fraction: 0.6 source: "a test" }
kernel_launch_seconds: 0 host_dispatch_seconds: 3e-6 reserve_bytes: 0 allocation_rounding_bytes: 1 communication_compute_share: 1
node_link: "loopback" cluster_link: "ethernet-25"
)";

class TrainLayout : public testing::LegoTest {
 protected:
  void SetUp() override {
    LegoTest::SetUp();
    Write(Path("cpu.txtpb"), kDevice);
    setenv("LEGOAI_HOST_DEVICE", Path("cpu.txtpb").c_str(), 1);
    std::string job = Recipe("");
    const std::string local = "local_batch_size = 2\n";
    job.erase(job.find(local), local.size());
    Write(Path("job.toml"), job);
  }
  void TearDown() override {
    unsetenv("LEGOAI_HOST_DEVICE");
    LegoTest::TearDown();
  }
  // Long enough for all to be simulated, however busy the machine is.
  std::vector<std::string> Train(const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"train", Path("job.toml"), "--planning.budget_seconds=300"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

v1::Recipe GivenBatch() {
  v1::Recipe recipe;
  recipe.mutable_training()->set_global_batch_size(16);
  return recipe;
}

TEST_F(TrainLayout, AJobIsTrainedWithTheRecipeThatLegoPlanRanksFirst) {
  const Json plan = Json::parse(Run({"plan", "--recipe", Path("job.toml"), "--cluster", "cpu:2x1", "--budget-seconds", "300",
                                     "--constraint", "parallelism.pipeline_parallel_degree=1", "-o", "json"})
                                    .out);
  const Json& best = plan["ranked"][0]["recipe"];
  const Result dry = Run(Train({"--nproc", "2", "--parallelism.pipeline_parallel_degree=1", "--dry-run", "-o", "json"}));
  ASSERT_EQ(dry.code, 0) << dry.err;
  const Json chosen = Json::parse(dry.out)["recipe"];
  for (const char* section : {"training", "parallelism", "activation_checkpoint", "compile"}) {
    EXPECT_EQ(chosen[section], best[section]);
  }
  EXPECT_EQ(chosen["training"]["mixed_precision_param"], "float32") << "the processor has bfloat16 in software only";
  EXPECT_THAT(dry.err, AllOf(HasSubstr("planned for cpu:2x1, as the file leaves it open: "), HasSubstr(" a step predicted, "),
                             HasSubstr("\n  training.local_batch_size = " + best["training"]["local_batch_size"].dump() + "\n"),
                             HasSubstr("\n  training.mixed_precision_param = float32\n"),
                             Not(HasSubstr("pipeline_parallel_degree =")), Not(HasSubstr("was not measured"))));
}

TEST_F(TrainLayout, ARunGoesOnAsItWasPlannedAndWithOtherRanksIsPlannedAnew) {
  const Result first = Run(Train({"--nproc", "2", "--training.steps=2", "-o", "json"}));
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(Json::parse(first.out)["step"], 2);
  const Result second = Run(Train({"--nproc", "2", "--training.steps=3", "-o", "json"}));
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(Json::parse(second.out)["resumed_from"], 2);
  EXPECT_THAT(second.err,
              AllOf(HasSubstr("as it was planned before: "), HasSubstr("\n  training.mixed_precision_param = float32")));
  const Result third = Run(Train({"--nproc", "1", "--training.steps=4", "-o", "json"}));
  ASSERT_EQ(third.code, 0) << third.err;
  EXPECT_EQ(Json::parse(third.out)["resumed_from"], 3);
  EXPECT_THAT(third.err, HasSubstr("planned for cpu:1x1"));
  for (const char* ranks : {"1", "2"}) ExpectError(Train({"--nproc", ranks, "--optimizer.lr=0.5"}), 2, {"optimizer.lr", "0.5"});
}

// Another layout would be planned, and "no checkpoint" said, of a run whose checkpoints nobody could look for.
TEST_F(TrainLayout, WhereTheStoreIsAwayThatIsSaid) {
  const std::vector<std::pair<const char*, const char*>> environment = {{"AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9"},
                                                                        {"AWS_ACCESS_KEY_ID", "key"},
                                                                        {"AWS_SECRET_ACCESS_KEY", "secret"},
                                                                        {"AWS_MAX_ATTEMPTS", "1"}};
  for (const auto& [name, value] : environment) setenv(name, value, 1);
  const std::vector<std::string> words =
      Train({"--nproc", "2", "--checkpoint.folder=s3://bucket/a", "--job.dump_folder=" + Path("away"), "--dry-run"});
  std::filesystem::create_directories(Path("away"));
  Write(Path("away/recipe.toml"), Recipe("") + "folder = \"s3://bucket/a\"\n");
  ExpectError(words, 1, {"listing s3://bucket/a/ failed 1 time at http://127.0.0.1:9/bucket"});
  ExpectError({"checkpoints", Path("away")}, 1, {"listing s3://bucket/a/ failed 1 time at http://127.0.0.1:9/bucket"});
  for (const auto& [name, value] : environment) unsetenv(name);
}

// Keys that the planner does not choose too, on the first run and on those that go on.
TEST_F(TrainLayout, ConstraintsHoldWhenTheRunGoesOn) {
  const std::string two = "--planning.constraints=parallelism.fsdp_reshard_after_forward=never,optimizer.lr=0.01";
  auto expect_both = [&] {
    const Result dry = Run(Train({"--nproc", "2", "--training.steps=3", two, "--dry-run", "-o", "json"}));
    ASSERT_EQ(dry.code, 0) << dry.err;
    const Json recipe = Json::parse(dry.out)["recipe"];
    EXPECT_EQ(recipe["parallelism"]["fsdp_reshard_after_forward"], "never") << dry.err;
    EXPECT_EQ(recipe["optimizer"]["lr"], 0.01) << dry.err;
  };
  expect_both();
  ASSERT_EQ(Run(Train({"--nproc", "2", "--training.steps=2", two})).code, 0);
  expect_both();
  const Result other = Run(Train({"--nproc", "2", "--training.steps=3", "--dry-run",
                                  "--planning.constraints=optimizer.lr=0.01,parallelism.tensor_parallel_degree=2"}));
  const Result same = Run(Train({"--nproc", "2", "--training.steps=3", "--dry-run",
                                 "--planning.constraints=optimizer.lr=0.01,training.mixed_precision_param=float32"}));
  EXPECT_THAT(other.err, HasSubstr("planned for cpu:2x1")) << "it was not planned so before";
  EXPECT_THAT(same.err, HasSubstr("as it was planned before: "));
}

TEST_F(TrainLayout, WhatTheFileSaysBinds) {
  const Result bound = Run(Train({"--nproc", "2", "--training.local_batch_size=1", "--dry-run", "-o", "json",
                                  "--planning.constraints=parallelism.tensor_parallel_degree=2"}));
  ASSERT_EQ(bound.code, 0) << bound.err;
  const Json recipe = Json::parse(bound.out)["recipe"];
  EXPECT_EQ(recipe["training"]["local_batch_size"], 1);
  EXPECT_EQ(recipe["parallelism"]["tensor_parallel_degree"], 2);
  EXPECT_THAT(bound.err, Not(HasSubstr("local_batch_size =")));
  ExpectError(Train({"--nproc", "2", "--training.local_batch_size=3"}), 2, {"training.local_batch_size=3: use one of 1, 2"});
  ExpectError(Train({"--training.global_batch_size=-1"}), 2, {"training.global_batch_size", "sequences per optimizer step"});
  // As many ranks as the job asks for slots.
  EXPECT_THAT(Run(Train({"--resources.slots=2", "--dry-run"})).err, HasSubstr("planned for cpu:2x1"));
}

TEST_F(TrainLayout, NothingFitsIsExitCodeThree) {
  const Result result = Run(Train({"--nproc", "1", "--model", "llama3-405b", "--dry-run"}));
  EXPECT_EQ(result.code, 3) << result.err;
  EXPECT_THAT(result.err, HasSubstr("Nothing fits"));
  EXPECT_EQ(result.out, "");
  EXPECT_FALSE(std::filesystem::exists(Path("run")));
}

// On two ranks that shard, with products in float32: what is left to the plan is what is computed again, and the buckets.
class PlannedAgain : public TrainLayout {
 protected:
  void SetUp() override {
    TrainLayout::SetUp();
    const std::string shape = "--training.local_batch_size=2 --training.seq_len=64 --training.mixed_precision_param=float32 "
                              "--parallelism.data_parallel_shard_degree=2 --parallelism.tensor_parallel_degree=1 "
                              "--parallelism.pipeline_parallel_degree=1";
    for (const auto word : absl::StrSplit(shape, ' ')) layout_.push_back(std::string(word));
    none_ = Peak("none"), full_ = Peak("full");
  }
  int64_t Peak(const std::string& mode) const {
    std::vector<std::string> words = {"simulate", "--recipe", Path("job.toml"), "--cluster", "cpu:2x1", "-o", "json"};
    words.insert(words.end(), layout_.begin(), layout_.end());
    words.push_back("--activation_checkpoint.mode=" + mode);
    const Result result = Run(words);
    EXPECT_EQ(result.code, 0) << result.err;
    return Json::parse(result.out)["stages"][0]["peak_allocated_bytes"];
  }
  // `share` of the way from all recomputed to nothing recomputed.
  std::string Budget(double share) const {
    const double bytes = static_cast<double>(full_) + share * static_cast<double>(none_ - full_);
    return absl::StrCat("--activation_checkpoint.memory_budget_gib=", bytes / (1 << 30));
  }
  std::vector<std::string> Auto(int64_t steps, const std::vector<std::string>& more) const {
    std::vector<std::string> words = layout_;
    words.insert(words.end(), {"--nproc", "2", absl::StrCat("--training.steps=", steps), "--activation_checkpoint.mode=auto",
                               "--compile.enable=true", "--compile.fsdp_bucketing=auto", "-o", "json"});
    words.insert(words.end(), more.begin(), more.end());
    return Train(words);
  }
  // The first share of the budget for which the plan has a policy, and no other checkpointing that is as fast.
  double ShareWithPolicy() const {
    for (const double share : {0.1, 0.2, 0.3, 0.4, 0.5, 0.6}) {
      const Result dry = Run(Auto(2, {Budget(share), "--dry-run"}));
      EXPECT_EQ(dry.code, 0) << dry.err;
      const Json recipe = Json::parse(dry.out)["recipe"];
      if (recipe["activation_checkpoint"]["selective_ac_option"] == "policy") return share;
    }
    ADD_FAILURE() << "no budget makes a policy win";
    return 0.5;
  }
  // Of the run's folder.
  v1::Recipe Kept() const {
    const auto recipe = parallel::LoadRecipe(Path("run/recipe.toml"));
    EXPECT_TRUE(recipe.ok()) << recipe.status();
    return recipe.value_or(v1::Recipe());
  }

  std::vector<std::string> layout_;
  int64_t none_ = 0, full_ = 0;
};

TEST_F(PlannedAgain, PolicyAndBucketsAreThoseOfBeforeUntilTheBudgetIsAnother) {
  ASSERT_LT(full_, none_);
  const std::string budget = Budget(ShareWithPolicy());
  const Result first = Run(Auto(2, {budget}));
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.err, AllOf(HasSubstr("planned for cpu:2x1"), Not(HasSubstr("planned anew"))));
  const v1::Recipe planned = Kept();
  EXPECT_EQ(planned.activation_checkpoint().selective_ac_option(), "policy") << first.err;
  EXPECT_NE(planned.compile().fsdp_bucketing(), v1::BUCKET_BY_PLAN);

  const Result second = Run(Auto(3, {budget}));
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(Json::parse(second.out)["resumed_from"], 2);
  EXPECT_THAT(second.err, AllOf(HasSubstr("as it was planned before: "), Not(HasSubstr("planned for")), Not(HasSubstr("anew"))));
  EXPECT_EQ(Kept().activation_checkpoint().SerializeAsString(), planned.activation_checkpoint().SerializeAsString());
  EXPECT_EQ(Kept().compile().SerializeAsString(), planned.compile().SerializeAsString());

  // By a constraint it is the same budget.
  std::string constraint = budget;
  constraint.replace(0, 2, "--planning.constraints=");
  EXPECT_THAT(Run(Auto(4, {constraint, "--dry-run"})).err, HasSubstr("as it was planned before: "));

  const Result third = Run(Auto(4, {Budget(0.8)}));
  ASSERT_EQ(third.code, 0) << third.err;
  EXPECT_EQ(Json::parse(third.out)["resumed_from"], 3);
  EXPECT_THAT(third.err, AllOf(HasSubstr("planned anew: a rank may take "), HasSubstr("the run's checkpointing was planned for "),
                               HasSubstr("planned for cpu:2x1"), Not(HasSubstr("as it was planned before"))));
  EXPECT_NE(Kept().activation_checkpoint().selective_ac_policy(), planned.activation_checkpoint().selective_ac_policy());
  EXPECT_EQ(Run(Auto(5, {absl::StrCat("--activation_checkpoint.memory_budget_gib=", 0.5 * full_ / (1 << 30))})).code, 3);
}

// What somebody chose is no plan, though it may be what one would say.
TEST_F(PlannedAgain, WhatWasNotPlannedIsPlannedWhereAutoIsAskedFor) {
  std::vector<std::string> words = layout_;
  words.insert(words.end(), {"--nproc", "2", "--training.steps=2", "--activation_checkpoint.mode=full"});
  ASSERT_EQ(Run(Train(words)).code, 0);
  const Result planned = Run(Auto(3, {}));
  ASSERT_EQ(planned.code, 0) << planned.err;
  EXPECT_THAT(planned.err, AllOf(HasSubstr("the run's checkpointing was not planned"), HasSubstr("planned for cpu:2x1")));
  EXPECT_EQ(Kept().activation_checkpoint().mode(), v1::AC_NONE) << "all fits";
  EXPECT_THAT(Run(Auto(4, {"--dry-run"})).err, HasSubstr("as it was planned before: "));
}

TEST_F(PlannedAgain, APolicyOfAnotherModelIsRefusedByName) {
  const std::string budget = Budget(ShareWithPolicy());
  ASSERT_EQ(Run(Auto(2, {budget})).code, 0);
  std::string config = ReadAll(Path("config.json"));
  const std::string layers = "\"num_hidden_layers\": ";
  ASSERT_NE(config.find(layers), std::string::npos) << config;
  config.replace(config.find(layers) + layers.size(), 1, "1");
  Write(Path("one.json"), config);
  ExpectError(Auto(3, {budget, "--model", Path("one.json")}), 2, {"num_hidden_layers", "was made with"});
  // By hand, in a recipe of a new run.
  ExpectError({"train", Path("recipe.toml"), "--nproc", "1", "--job.dump_folder=" + Path("other"), "--model", Path("one.json"),
               "--activation_checkpoint.mode=selective", "--activation_checkpoint.selective_ac_option=policy",
               "--activation_checkpoint.selective_ac_policy=1-1:mlp.up_proj aten::mm all"},
              2, {"activation_checkpoint.selective_ac_policy", "are no blocks of the model: it has 0 to 0"});
}

// A recipe that names its layout.
TEST_F(PlannedAgain, BucketsOfARecipeAreThoseOfBeforeWhileItsStepIsTheSame) {
  const auto train = [this](int64_t steps, const std::vector<std::string>& more) {
    std::vector<std::string> words = {"train", Path("recipe.toml"), "--nproc", "2", absl::StrCat("--training.steps=", steps),
                                      "--training.mixed_precision_param=float32", "--compile.enable=true",
                                      "--compile.fsdp_bucketing=auto"};
    words.insert(words.end(), more.begin(), more.end());
    return Run(words);
  };
  const Result first = train(2, {});
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.err, HasSubstr("planned compile.fsdp_buckets for cpu:2x1"));
  const v1::Recipe planned = Kept();
  EXPECT_GT(planned.compile().fsdp_buckets_size(), 0);
  const Result second = train(3, {});
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_THAT(second.err,
              AllOf(HasSubstr("compile.fsdp_buckets as they were planned before"), Not(HasSubstr("planned compile."))));
  EXPECT_EQ(Kept().compile().SerializeAsString(), planned.compile().SerializeAsString());
  const Result other = train(4, {"--activation_checkpoint.mode=full", "--dry-run"});
  EXPECT_THAT(other.err, HasSubstr("planned compile.fsdp_buckets for cpu:2x1")) << "another step";
  EXPECT_THAT(train(4, {"--fresh", "--dry-run"}).err, HasSubstr("planned compile.fsdp_buckets for cpu:2x1"));
}

// A recipe is not planned; it is not left to itself either.
TEST_F(TrainLayout, ARecipeInAPrecisionThatIsEmulatedSaysSoAndHasNoPeak) {
  const auto dry = [this](const std::string& more) {
    return Run({"train", Path("recipe.toml"), "--nproc", "1", "--dry-run", "-o", "json", more});
  };
  const Result emulated = dry("--training.seed=1");
  EXPECT_THAT(emulated.err,
              AllOf(HasSubstr("left at bfloat16, which this processor has in software only"), Not(HasSubstr("planned"))));
  EXPECT_EQ(Json::parse(emulated.out)["peak_flops_per_second"], 0.0);
  const Result fast = dry("--training.mixed_precision_param=float32");
  EXPECT_EQ(fast.err, "");
  EXPECT_EQ(Json::parse(fast.out)["peak_flops_per_second"], 3e10);
  EXPECT_EQ(dry("--training.mixed_precision_param=bfloat16").err, "") << "it was asked for";
  unsetenv("LEGOAI_HOST_DEVICE");
  EXPECT_EQ(Json::parse(dry("--training.mixed_precision_param=float32").out)["peak_flops_per_second"], 0.0)
      << "the catalog's cpu is not this machine";
  EXPECT_THAT(Run(Train({"--nproc", "1", "--dry-run"})).err, HasSubstr("this machine was not measured"));
}

// The file says it of this machine's processor; what is planned for another device does not go by it.
TEST_F(TrainLayout, FiguresThatWereMeasuredOnABusyMachineAreNotUsedWithoutAWord) {
  const auto words = [this](const std::string& cluster) {
    return std::vector<std::string>{"simulate", "--recipe", Path("recipe.toml"), "--cluster", cluster};
  };
  const std::string said = "warning: others took 43.0 % of the processors while this machine was measured";
  EXPECT_THAT(Run(words("cpu:1x1")).err, Not(HasSubstr(said)));
  Write(Path("cpu.txtpb"), absl::StrCat(kDevice, "measured_while_busy: 0.01\n"));
  EXPECT_THAT(Run(words("cpu:1x1")).err, Not(HasSubstr("others took")));
  Write(Path("cpu.txtpb"), absl::StrCat(kDevice, "measured_while_busy: 0.43\n"));
  EXPECT_THAT(Run(words("cpu:1x1")).err, HasSubstr(said));
  EXPECT_THAT(Run(words("h100-sxm-80:1x1")).err, Not(HasSubstr("others took")));
  EXPECT_THAT(Run(Train({"--nproc", "1", "--dry-run"})).err, HasSubstr(said));
}

TEST_F(TrainLayout, SequencesBeyondTheContextAreSaid) {
  const std::string recipe = Path("recipe.toml");
  EXPECT_THAT(Run({"train", recipe, "--dry-run", "--training.seq_len=65"}).err,
              HasSubstr("training.seq_len = 65 is longer than the model's context, max_position_embeddings = 64"));
  EXPECT_THAT(Run({"train", recipe, "--dry-run", "--training.seq_len=64"}).err, Not(HasSubstr("max_position_embeddings")));
  EXPECT_THAT(Run({"simulate", "--recipe", recipe, "--cluster", "cpu:1x1", "--training.seq_len=65"}).err,
              HasSubstr("max_position_embeddings = 64"));
}

TEST(LayoutKeys, AFileWithTheBatchAndNotTheLocalOneLeavesTheRestOpen) {
  v1::JobSpec job;
  EXPECT_FALSE(LeavesLayoutOpen(job)) << "a recipe of defaults";
  *job.mutable_recipe() = GivenBatch();
  EXPECT_TRUE(LeavesLayoutOpen(job));
  job.mutable_recipe()->mutable_training()->set_local_batch_size(2);
  EXPECT_FALSE(LeavesLayoutOpen(job)) << "a recipe";
  job.mutable_planning();
  EXPECT_TRUE(LeavesLayoutOpen(job)) << "asked for";
}

TEST(LayoutKeys, OpenIsWhatIsNotSaidOrDerived) {
  v1::Recipe recipe = GivenBatch();
  EXPECT_EQ(OpenKeys(recipe).size(), 22u);
  recipe.mutable_parallelism()->set_data_parallel_shard_degree(-1);
  recipe.mutable_parallelism()->set_pipeline_parallel_schedule(v1::GPIPE);
  EXPECT_EQ(OpenKeys(recipe).size(), 22u) << "derived; a schedule without stages";
  recipe.mutable_parallelism()->set_pipeline_parallel_degree(2);
  recipe.mutable_training()->set_mixed_precision_param(v1::FLOAT32);
  EXPECT_THAT(OpenKeys(recipe),
              AllOf(Contains("parallelism.data_parallel_shard_degree"), Contains("training.local_batch_size"),
                    Not(Contains("training.mixed_precision_param")), Not(Contains("parallelism.pipeline_parallel_schedule"))));
}

}  // namespace
}  // namespace legoai::cli

#include "proto/toml/toml.h"

#include <gtest/gtest.h>

#include "proto/errors.h"
#include "proto/json/round_trip.h"
#include "proto/legoai/v1/cluster.pb.h"
#include "proto/legoai/v1/estimate.pb.h"
#include "proto/legoai/v1/hardware.pb.h"
#include "proto/legoai/v1/plan.pb.h"
#include "proto/legoai/v1/recipe.pb.h"

namespace legoai {
namespace {

TEST(ToToml, PrintsSetFieldsInSections) {
  v1::Recipe recipe;
  recipe.mutable_training()->set_seq_len(256);
  recipe.mutable_training()->set_max_norm(1);
  recipe.mutable_training()->set_mixed_precision_param(v1::BFLOAT16);
  recipe.mutable_parallelism()->set_pipeline_parallel_schedule(v1::ONE_F_ONE_B);
  recipe.mutable_parallelism()->set_data_parallel_shard_degree(-1);
  recipe.mutable_optimizer()->set_eps(1e-8);
  recipe.mutable_checkpoint()->set_enable_checkpoint(false);
  recipe.mutable_model()->set_name("a \"b\"\n");
  EXPECT_EQ(ToToml(recipe), R"([model]
name = "a \"b\"\n"

[training]
seq_len = 256
max_norm = 1.0
mixed_precision_param = "bfloat16"

[parallelism]
data_parallel_shard_degree = -1
pipeline_parallel_schedule = "1F1B"

[optimizer]
eps = 1e-08

[checkpoint]
enable_checkpoint = false
)");
}

TEST(ToToml, NestsTablesAndLists) {
  v1::Cluster cluster;
  cluster.set_name("c");
  cluster.mutable_device()->add_sources("s");
  cluster.add_tiers()->mutable_link()->set_type("x");
  const std::string text = ToToml(cluster);
  EXPECT_NE(text.find("\n[device]\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\nsources = [\"s\"]\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\n[[tiers]]\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\n[tiers.link]\ntype = \"x\"\n"), std::string::npos) << text;
}

TEST(Toml, RoundTripsWhateverAMessageHolds) {
  const uint64_t seed = std::random_device()();
  const auto print = [](const auto& message, int) { return ToToml(message); };
  ExpectRoundTrips<v1::Recipe>(seed, print, ParseToml);
  ExpectRoundTrips<v1::Cluster>(seed, print, ParseToml);
  ExpectRoundTrips<v1::PlanResult>(seed, print, ParseToml);
  ExpectRoundTrips<v1::Estimate>(seed, print, ParseToml);
}

absl::Status Parse(const std::string& text, v1::Recipe* recipe) { return ParseToml(text, recipe); }

TEST(ParseToml, ReadsWhatPeopleWrite) {
  v1::Recipe recipe;
  ASSERT_TRUE(Parse(R"(
# a comment
[training]
local_batch_size = 1_000
max_norm = 2      # a whole number is a number
[activation_checkpoint]
mode = 'full'
[optimizer]
lr = 8e-4
)",
                    &recipe)
                  .ok());
  EXPECT_EQ(recipe.training().local_batch_size(), 1000);
  EXPECT_EQ(recipe.training().max_norm(), 2.0);
  EXPECT_EQ(recipe.activation_checkpoint().mode(), v1::AC_FULL);
  EXPECT_EQ(recipe.optimizer().lr(), 8e-4);
  EXPECT_FALSE(recipe.training().has_steps());
}

TEST(ParseToml, ErrorsNameFieldValueAndRemedy) {
  v1::Recipe recipe;
  recipe.mutable_training()->set_steps(3);
  auto violation = GetFieldViolation(Parse("[training]\nsteps = 5\nlocal_batchsize = 4", &recipe));
  ASSERT_TRUE(violation);
  EXPECT_EQ(violation->field(), "training.local_batchsize");
  EXPECT_EQ(violation->value(), "4");
  EXPECT_NE(violation->remedy().find("training.local_batch_size"), std::string::npos);
  EXPECT_EQ(recipe.training().steps(), 3) << "half done";
  violation = GetFieldViolation(Parse("[trainning]\nsteps = 5", &recipe));
  EXPECT_EQ(violation->remedy(), "unknown key; the nearest known one is training");
  violation = GetFieldViolation(Parse("[training]\nsteps = 1979-05-27", &recipe));
  EXPECT_EQ(violation->field(), "training.steps");
  EXPECT_EQ(violation->value(), "1979-05-27");
}

TEST(ParseToml, BrokenTextNamesLineAndColumn) {
  v1::Recipe recipe;
  const absl::Status status = Parse("[training]\nsteps = \n", &recipe);
  EXPECT_EQ(GetFieldViolation(status)->field().substr(0, 7), "line 2,") << status;
  const auto twice = GetFieldViolation(Parse("[training]\nsteps = 1\nsteps = 2\n", &recipe));
  ASSERT_TRUE(twice) << "a key twice";
  EXPECT_EQ(twice->field().substr(0, 7), "line 3,");
  EXPECT_NE(twice->remedy().find("'steps'"), std::string::npos) << twice->remedy();
  EXPECT_FALSE(Parse("[training]\nsteps = 1\n[model]\n[training]\nseq_len = 2\n", &recipe).ok()) << "a section twice";
}

TEST(ApplyOverride, SetsOneKeyOfAnyType) {
  v1::Recipe recipe;
  EXPECT_TRUE(ApplyOverride(&recipe, "training.local_batch_size", "2").ok());
  EXPECT_TRUE(ApplyOverride(&recipe, "optimizer.lr", "3e-4").ok());
  EXPECT_TRUE(ApplyOverride(&recipe, "optimizer.weight_decay", "0").ok());
  EXPECT_TRUE(ApplyOverride(&recipe, "parallelism.pipeline_parallel_schedule", "1F1B").ok());
  EXPECT_TRUE(ApplyOverride(&recipe, "checkpoint.enable_checkpoint", "true").ok());
  EXPECT_TRUE(ApplyOverride(&recipe, "model.name", "12").ok());
  EXPECT_EQ(recipe.training().local_batch_size(), 2);
  EXPECT_EQ(recipe.optimizer().lr(), 3e-4);
  EXPECT_TRUE(recipe.optimizer().has_weight_decay());
  EXPECT_EQ(recipe.parallelism().pipeline_parallel_schedule(), v1::ONE_F_ONE_B);
  EXPECT_TRUE(recipe.checkpoint().enable_checkpoint());
  EXPECT_EQ(recipe.model().name(), "12");
}

TEST(ApplyOverride, WinsOverWhatWasThereAndReplacesLists) {
  v1::PlanRequest request;
  request.add_constraints("old");
  EXPECT_TRUE(ApplyOverride(&request, "constraints", "a=1,b=2").ok());
  ASSERT_EQ(request.constraints_size(), 2);
  EXPECT_EQ(request.constraints(1), "b=2");
  EXPECT_TRUE(ApplyOverride(&request, "base.training.steps", "5").ok());
  EXPECT_TRUE(ApplyOverride(&request, "base.training.steps", "6").ok());
  EXPECT_EQ(request.base().training().steps(), 6);
}

TEST(ApplyOverride, RefusesWithoutATrace) {
  v1::Recipe recipe;
  auto refused = [&recipe](const std::string& path, const std::string& value) {
    const auto violation = GetFieldViolation(ApplyOverride(&recipe, path, value));
    EXPECT_EQ(recipe.ByteSizeLong(), 0) << path;
    return violation ? violation->remedy() : "accepted " + path;
  };
  EXPECT_EQ(refused("training.steps", "ten"), "must be a whole number");
  EXPECT_EQ(refused("training.steps", "1e3"), "must be a whole number");
  EXPECT_EQ(refused("checkpoint.enable_checkpoint", "yes"), "must be true or false");
  EXPECT_EQ(refused("training.stepz", "1"), "unknown key; the nearest known one is training.steps");
  EXPECT_EQ(refused("steps", "1"), "unknown key; the nearest known one is training.steps");
  EXPECT_EQ(refused("training", "1"), "is a section: set one of its keys");
  EXPECT_EQ(refused("model.name", "caf\xe9"), "must be text in UTF-8");
  EXPECT_EQ(refused("training.steps.more", "1"), "training.steps has no keys below it");
  EXPECT_EQ(refused("parallelism.pipeline_parallel_schedule", ""), "must be one of \"GPipe\", \"1F1B\"");
}

// Each key at fault with its remedy, after all of them what the others say.
TEST(ReadToml, GoesOnAfterAFault) {
  v1::Recipe recipe;
  const auto faults =
      ReadToml("[nothing]\na = 1\n[training]\nstepz = 3\nseq_len = 64\nsteps = \"ten\"\n[job]\ndump_folder = \"a\"\n", &recipe);
  ASSERT_EQ(faults.size(), 3u);
  EXPECT_EQ(GetFieldViolation(faults[0])->field(), "nothing");
  EXPECT_EQ(GetFieldViolation(faults[1])->field(), "training.steps");
  EXPECT_EQ(GetFieldViolation(faults[2])->field(), "training.stepz");
  EXPECT_EQ(recipe.training().seq_len(), 64);
  EXPECT_EQ(recipe.job().dump_folder(), "a");
  EXPECT_FALSE(recipe.training().has_steps());
}

TEST(ReadToml, OfAListTheWholeIsLeftOut) {
  v1::Cluster cluster;
  const auto faults = ReadToml("name = \"c\"\n[device]\nsources = [\"s\", 3]\ntype = \"x\"\n", &cluster);
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(GetFieldViolation(faults[0])->field(), "device.sources[1]");
  EXPECT_EQ(cluster.device().type(), "x");
  EXPECT_EQ(cluster.device().sources_size(), 0);
}

// A name that the error cannot give whole, and text that is none: what is known is said.
TEST(ReadToml, EndsWhereTheKeyCannotBeNamed) {
  v1::Recipe recipe;
  recipe.mutable_training()->set_steps(3);
  EXPECT_EQ(ReadToml("[training]\n\"a.b\" = 1\nseq_len = 64\n", &recipe).size(), 1u);
  EXPECT_EQ(ReadToml("[training\n", &recipe).size(), 1u);
  EXPECT_EQ(recipe.training().steps(), 3) << "stays as it was";
  EXPECT_TRUE(ReadToml("[training]\nsteps = 4\n", &recipe).empty());
  EXPECT_EQ(recipe.training().steps(), 4);
}

}  // namespace
}  // namespace legoai

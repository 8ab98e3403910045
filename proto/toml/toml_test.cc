#include "proto/toml/toml.h"

#include <gtest/gtest.h>

#include "proto/errors.h"
#include "proto/json/random_message.h"
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

TEST(Toml, WritesListsOfLists) {
  v1::Recipe recipe;
  const std::string text = "[parallelism]\nmodule_fqns_per_model_part = [[\"tok_embeddings\", \"layers.0\"], [], [\"norm\"]]\n";
  ASSERT_TRUE(ParseToml(text, &recipe).ok());
  const auto& parts = recipe.parallelism().module_fqns_per_model_part();
  ASSERT_EQ(parts.size(), 3);
  EXPECT_EQ(parts[0].modules(1), "layers.0");
  EXPECT_EQ(parts[1].modules_size(), 0);
  EXPECT_EQ(ToToml(recipe), text);
  v1::Recipe other;
  const std::string path = "parallelism.module_fqns_per_model_part";
  ASSERT_TRUE(ApplyOverride(&other, path, "tok_embeddings,layers.0;layers.1;norm,output").ok());
  EXPECT_EQ(ToToml(other),
            "[parallelism]\nmodule_fqns_per_model_part = [[\"tok_embeddings\", \"layers.0\"], [\"layers.1\"], "
            "[\"norm\", \"output\"]]\n");
  const absl::Status flat = ParseToml("[parallelism]\nmodule_fqns_per_model_part = [\"norm\"]\n", &recipe);
  EXPECT_EQ(flat.message(), path + "[0] = norm: must be a list");
  const absl::Status number = ParseToml("[parallelism]\nmodule_fqns_per_model_part = [[1]]\n", &recipe);
  EXPECT_EQ(number.message(), path + "[0][0] = 1: must be text, in quotes");
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

// TOML's own parser takes such text for broken, and has no word for the key.
TEST(ParseToml, NumbersBeyond64BitsNameTheirKey) {
  v1::Recipe recipe;
  const std::string range = "must lie between -9223372036854775808 and 9223372036854775807";
  const auto refused = [&recipe](const std::string& text) {
    const auto violation = GetFieldViolation(ParseToml(text, &recipe));
    return violation ? violation->field() + " = " + violation->value() + ": " + violation->remedy() : "accepted";
  };
  EXPECT_EQ(refused("[training]\nsteps = 99999999999999999999\n"),
            "training.steps = 99999999999999999999: is too large: " + range);
  EXPECT_EQ(refused("training.steps = 9223372036854775808"), "training.steps = 9223372036854775808: is too large: " + range);
  EXPECT_EQ(refused("[training] # it\n\tsteps =\t-9223372036854775809 # far\n"),
            "training.steps = -9223372036854775809: is too small: " + range);
  EXPECT_EQ(refused("[model]\nname = \"[job]\"\n[training]\n\"steps\" = 1_000_000_000_000_000_000_000\n"),
            "training.\"steps\" = 1_000_000_000_000_000_000_000: is too large: " + range);
  EXPECT_EQ(refused("training = { seed = 1, steps = 0xfffffffffffffffff }"),
            "training = 0xfffffffffffffffff: is too large: " + range);
  EXPECT_EQ(refused("[training]\nsteps = 9223372036854775807\n"), "accepted");
}

// 10,000 levels ended the process: the parser's tables and our tree are taken apart by calls within calls.
TEST(ParseToml, RefusesWhatIsNestedTooDeep) {
  v1::Recipe recipe;
  const auto times = [](int count, const std::string& text) {
    std::string all;
    for (int i = 0; i < count; ++i) all += text;
    return all;
  };
  for (const int levels : {101, 10'000, 1'000'000}) {
    for (const std::string& text : {
             "\na" + times(levels, ".a") + " = 1\n",
             "\n[a" + times(levels, ".a") + "]\n",
             "\n[[a" + times(levels, ". \"a\"") + "]]\n",
             "\na = " + times(levels, "[") + times(levels, "]") + "\n",
             "\na = " + times(levels, "{ b = ") + "1" + times(levels, "}") + "\n",
             "\na = " + times(levels / 50 + 1, "{ b" + times(60, ".c") + " = ") + "1" + times(levels / 50 + 1, "}") + "\n",
         }) {
      const auto violation = GetFieldViolation(ParseToml(text, &recipe));
      ASSERT_TRUE(violation) << text.substr(0, 100);
      EXPECT_EQ(violation->field(), "line 2") << text.substr(0, 100);
      EXPECT_EQ(violation->remedy(), "is nested deeper than 100 levels");
    }
  }
  // What is not deep is read: points in values, in text and in comments, and many of everything.
  EXPECT_TRUE(
      ParseToml("[training]\nmax_norm = 1.5 # " + times(1000, "a.") + "\n[model]\nname = \"" + times(1000, "[a.") + "\"\n",
                &recipe)
          .ok());
  EXPECT_EQ(GetFieldViolation(ParseToml("a = [" + times(1000, "[1.5], ") + "]\n", &recipe))->field(), "a");
}

TEST(ReadToml, StopsWhereNothingIsRight) {
  std::string text = "[training]\n";
  for (int i = 0; i < 50'000; ++i) text += "key" + std::to_string(i) + " = 1\n";
  v1::Recipe recipe;
  const auto faults = ReadToml(text + "steps = 5\n", &recipe);
  EXPECT_EQ(faults.size(), kMostFaults);
  for (const auto& fault : faults) EXPECT_NE(fault.message().find("unknown key"), std::string::npos) << fault;
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
  const std::string range = "must lie between -9223372036854775808 and 9223372036854775807";
  EXPECT_EQ(refused("training.steps", "9223372036854775808"), "is too large: " + range);
  EXPECT_EQ(refused("training.steps", "99999999999999999999"), "is too large: " + range);
  EXPECT_EQ(refused("training.steps", "-9223372036854775809"), "is too small: " + range);
  EXPECT_EQ(refused("training.steps", std::string(5000, '9')), "is too large: " + range);
  EXPECT_EQ(refused("checkpoint.enable_checkpoint", "yes"), "must be true or false");
  EXPECT_EQ(refused("training.stepz", "1"), "unknown key; the nearest known one is training.steps");
  EXPECT_EQ(refused("steps", "1"), "unknown key; the nearest known one is training.steps");
  EXPECT_EQ(refused("training", "1"), "is a section: set one of its keys");
  EXPECT_EQ(refused("model.name", "caf\xe9"), "must be text in UTF-8");
  EXPECT_EQ(refused("training.steps.more", "1"), "training.steps has no keys below it");
  EXPECT_EQ(refused("parallelism.pipeline_parallel_schedule", ""),
            "must be one of \"GPipe\", \"1F1B\", \"Interleaved1F1B\", \"LoopedBFS\", \"InterleavedZeroBubble\", "
            "\"ZBVZeroBubble\", \"DualPipeV\"");
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

TEST(ReadToml, AKeyWithAPointIsLeftOutLikeAnyOther) {
  v1::Recipe recipe;
  EXPECT_EQ(ReadToml("[training]\n\"a.b\" = 1\nseq_len = 64\n", &recipe).size(), 1u);
  EXPECT_EQ(recipe.training().seq_len(), 64);
}

TEST(ReadToml, OfTextThatIsNoTomlNothingIsTaken) {
  v1::Recipe recipe;
  recipe.mutable_training()->set_steps(3);
  EXPECT_EQ(ReadToml("[training\n", &recipe).size(), 1u);
  EXPECT_EQ(recipe.training().steps(), 3) << "stays as it was";
  EXPECT_TRUE(ReadToml("[training]\nsteps = 4\n", &recipe).empty());
  EXPECT_EQ(recipe.training().steps(), 4);
}

}  // namespace
}  // namespace legoai

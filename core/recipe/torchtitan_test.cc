#include "core/recipe/torchtitan.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "core/recipe/recipe.h"
#include "proto/errors.h"
#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::parallel {
namespace {

const google::protobuf::Descriptor* Section(const std::string& name) {
  const auto* field = v1::Recipe::descriptor()->FindFieldByName(name);
  return field ? field->message_type() : nullptr;
}

TEST(TorchTitanKeys, AreNoKeysOfARecipe) {
  std::set<std::string> seen;
  for (const TorchTitanKey& known : TorchTitanKeys()) {
    const std::string key = known.key;
    EXPECT_TRUE(seen.insert(key).second) << key << " is there twice";
    const size_t dot = key.find('.');
    const auto* section = Section(key.substr(0, dot));
    if (dot == std::string::npos) {
      EXPECT_EQ(section, nullptr) << key;
    } else {
      ASSERT_NE(section, nullptr) << key;
      EXPECT_EQ(section->FindFieldByName(key.substr(dot + 1)), nullptr) << key;
    }
  }
}

// What a remedy says is called otherwise is there.
TEST(TorchTitanKeys, RemediesNameKeysThatThereAre) {
  for (const TorchTitanKey& known : TorchTitanKeys()) {
    const std::string remedy = known.remedy;
    if (remedy.rfind("is ", 0) != 0) continue;
    const std::string key = remedy.substr(3, remedy.find(" here") - 3);
    const size_t dot = key.find('.');
    ASSERT_NE(dot, std::string::npos) << remedy;
    const auto* section = Section(key.substr(0, dot));
    EXPECT_TRUE(section && section->FindFieldByName(key.substr(dot + 1))) << remedy;
  }
}

TEST(TorchTitanKeys, AreInTheDocumentation) {
  std::ifstream file("docs/recipe.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  ASSERT_FALSE(text.empty());
  std::string missing;
  for (const TorchTitanKey& known : TorchTitanKeys()) {
    const std::string row = "| `" + std::string(known.key) + "` | " + known.remedy + " |\n";
    if (text.find(row) == std::string::npos) missing += row;
  }
  EXPECT_EQ(missing, "") << "rows that \"Coming from TorchTitan\" should have";
}

// A file as TorchTitan's users have it: all that is not honoured is said at once, and nothing else.
TEST(KnowingTorchTitan, AllOfAFileIsSaidAtOnce) {
  const auto recipe = ParseRecipe(
      "[job]\ndump_folder = \"./outputs\"\n[profiling]\nenable_profiling = true\nprofile_freq = 100\n"
      "[metrics]\nlog_freq = 10\nsave_tb_folder = \"tb\"\n"
      "[model]\nname = \"llama3\"\nflavor = \"8B\"\ntokenizer_path = \"tokenizer.model\"\n"
      "[optimizer]\nlr = 3e-4\n[lr_scheduler]\nwarmup_steps = 200\ndecay_type = \"exponential\"\n"
      "[training]\nbatch_size = 1\nseq_len = 8192\ncompile = false\ndataset = \"c4\"\nstepz = 3\n"
      "[checkpoint]\nfolder = \"checkpoint\"\nasync_mode = \"disabled\"\n"
      "[activation_checkpoint]\nmode = \"selective\"\nselective_ac_option = \"ops\"\n",
      {{"training.gc_freq", "50"}, {"parallelism.expert_parallel_degree", "2"}});
  ASSERT_FALSE(recipe.ok());
  EXPECT_EQ(recipe.status().message(),
            "13 faults:\n"
            "  checkpoint.async_mode = disabled: remove it: checkpoints are written by the ranks between two steps\n"
            "  metrics.save_tb_folder = tb: remove it: event files are in tensorboard/ of job.dump_folder\n"
            "  model.flavor = 8B: name family and size together: model.name = \"llama3-8b\" (`lego models`), or a config.json\n"
            "  profiling: remove the section: `lego simulate --trace FILE` shows a step, and metrics.trace_steps traces steps "
            "of a run\n"
            "  training.batch_size = 1: is training.local_batch_size here\n"
            "  training.compile = false: is compile.enable here\n"
            "  training.dataset = c4: give a text file instead: training.dataset_path\n"
            "  training.stepz = 3: unknown key; the nearest known one is training.steps\n"
            "  training.gc_freq = 50: remove it: there is no Python in the training\n"
            "  parallelism.expert_parallel_degree = 2: is not supported yet: leave it at 1\n"
            "  lr_scheduler.decay_type = exponential: must be one of \"cosine\", \"linear\", \"sqrt\", \"none\"\n"
            "  activation_checkpoint.selective_ac_option = ops: must be \"op\", for every second product, \"policy\", or a "
            "number k of at least 1, for every k-th block\n"
            "  checkpoint.folder = checkpoint: is no URL of an object store: write s3://BUCKET/PREFIX, or leave it out: "
            "checkpoints are then in checkpoints/ of job.dump_folder");
  EXPECT_EQ(GetFieldViolation(recipe.status())->field(), "checkpoint.async_mode");
}

TEST(KnowingTorchTitan, LeavesOtherErrorsAsTheyAre) {
  const absl::Status other = FieldError("training.steps", "0", "must lie between 1 and 9");
  EXPECT_EQ(KnowingTorchTitan(other), other);
  EXPECT_EQ(KnowingTorchTitan(absl::InternalError("x")), absl::InternalError("x"));
  EXPECT_TRUE(KnowingTorchTitan(absl::OkStatus()).ok());
}

}  // namespace
}  // namespace legoai::parallel

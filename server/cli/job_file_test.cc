#include "server/cli/job_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "proto/errors.h"
#include "server/jobs/submission.h"

namespace legoai::cli {
namespace {

namespace fs = std::filesystem;

class JobFile : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::create_directories(folder_);
    std::ofstream(folder_ / "text.txt") << "to be or not to be";
  }
  void TearDown() override { fs::remove_all(folder_); }

  // A file that is in order, with `more` at its end.
  std::string Write(const std::string& more, const std::string& training = "") const {
    const std::string path = folder_ / "job.toml";
    std::ofstream(path) << "[model]\nname = \"gpt2\"\n[training]\ndataset_path = \"" << (folder_ / "text.txt").string()
                        << "\"\nglobal_batch_size = 4\nseq_len = 16\n"
                        << training << more;
    return path;
  }
  // The server's own check of what was read.
  static absl::StatusOr<v1::JobSpec> Check(const v1::JobSpec& spec) {
    v1::CreateJobRequest request;
    request.set_parent("projects/default");
    *request.mutable_spec() = spec;
    return server::CheckSubmission(request);
  }
  void ExpectFault(const std::string& more, const parallel::Overrides& overrides, const std::string& field,
                   const std::string& part) {
    const auto spec = ReadJobFile(Write(more), overrides);
    ASSERT_FALSE(spec.ok()) << more;
    ASSERT_TRUE(GetFieldViolation(spec.status())) << spec.status();
    EXPECT_EQ(GetFieldViolation(spec.status())->field(), field) << spec.status();
    EXPECT_NE(std::string(spec.status().message()).find(part), std::string::npos) << spec.status();
    EXPECT_NE(std::string(spec.status().message()).find("job.toml"), std::string::npos) << spec.status();
  }

  fs::path folder_;
};

TEST_F(JobFile, TheExampleCanBeSubmittedAsItIs) {
  const auto spec = ReadJobFile("examples/job.toml", {});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->display_name(), "a 4.6 million parameter Llama on the King James Version");
  EXPECT_FALSE(spec->model().config_json().empty());
  EXPECT_EQ(spec->dataset().uri(), (fs::current_path() / "runs/text/king_james.txt").string());
  EXPECT_EQ(spec->dataset().sha256(), "") << "it is not made here";
  EXPECT_EQ(spec->recipe().job().dump_folder(), (fs::current_path() / "runs/example").string());
  EXPECT_FALSE(spec->has_resources());
  const auto checked = Check(*spec);
  ASSERT_TRUE(checked.ok()) << checked.status();
  EXPECT_EQ(checked->recipe().training().steps(), 400);
  EXPECT_EQ(checked->recipe().checkpoint().interval(), 100);
}

// A server has another file system: it gets the schedule, and refuses a path.
TEST_F(JobFile, CarriesTheTextOfItsSchedule) {
  const std::string path = folder_ / "schedule.csv", text = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";
  std::ofstream(path) << text;
  const std::string section = "[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule_csv = \"";
  auto spec = ReadJobFile(Write(section + path + "\"\n"), {});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->recipe().parallelism().pipeline_parallel_schedule_csv(), text);
  EXPECT_TRUE(Check(*spec).ok()) << Check(*spec).status();
  spec->mutable_recipe()->mutable_parallelism()->set_pipeline_parallel_schedule_csv(path);
  EXPECT_NE(std::string(Check(*spec).status().message()).find("is a path"), std::string::npos) << Check(*spec).status();
  ExpectFault(section + "none.csv\"\n", {}, "parallelism.pipeline_parallel_schedule_csv", "none.csv");
}

TEST_F(JobFile, OwnSectionsStandBesideTheRecipe) {
  const std::string path = Write(
      "[resources]\nslots = 2\npool = \"small\"\n[planning]\nobjective = \"step_time\"\nconstraints = "
      "[\"parallelism.data_parallel_shard_degree=2\"]\nbudget_seconds = 3.5\n[policy]\npriority = -4\n");
  const auto spec = ReadJobFile(path, {{"resources.min_slots", "2"}, {"training.steps", "7"}, {"policy.max_restarts", "0"}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->resources().slots(), 2);
  EXPECT_EQ(spec->resources().min_slots(), 2);
  EXPECT_EQ(spec->resources().pool(), "small");
  EXPECT_EQ(spec->planning().objective(), v1::STEP_TIME);
  EXPECT_EQ(spec->planning().constraints(0), "parallelism.data_parallel_shard_degree=2");
  EXPECT_EQ(spec->planning().budget_seconds(), 3.5);
  EXPECT_EQ(spec->policy().priority(), -4);
  EXPECT_TRUE(spec->policy().has_max_restarts());
  EXPECT_EQ(spec->recipe().training().steps(), 7);
  EXPECT_EQ(spec->dataset().bytes(), 18);
  EXPECT_EQ(spec->dataset().sha256().size(), 64u);
  EXPECT_TRUE(Check(*spec).ok()) << Check(*spec).status();
}

TEST_F(JobFile, WhatIsWrongIsNamedAsInTheFile) {
  ExpectFault("[resource]\nslots = 2\n", {}, "resource", "resources");
  ExpectFault("[resources]\nslot = 2\n", {}, "resources.slot", "slots");
  ExpectFault("[resources]\nslots = \"two\"\n", {}, "resources.slots", "two");
  ExpectFault("", {{"polcy.priority", "1"}}, "polcy", "policy");
  ExpectFault("", {{"training.steps", "0"}}, "training.steps", "between");
  ExpectFault("[optimizer]\nname = \"Lion\"\n", {}, "optimizer.name", "AdamW");
  ExpectFault("", {{"training.dataset_path", "s3://bucket"}}, "training.dataset_path", "not supported");
  ExpectFault("", {{"training.dataset_path", folder_.string()}}, "training.dataset_path", "regular file");
  const auto missing = ReadJobFile(folder_ / "none.toml", {});
  EXPECT_TRUE(absl::IsNotFound(missing.status())) << missing.status();
  EXPECT_FALSE(ReadJobFile(Write("", "no toml"), {}).ok());
  EXPECT_FALSE(ReadJobFile(Write(""), {{"model.name", "gpt5"}}).ok());
}

TEST_F(JobFile, KeysOfTheServersErrors) {
  EXPECT_EQ(KeyOf("spec.recipe.training.seq_len"), "training.seq_len");
  EXPECT_EQ(KeyOf("spec.planning.constraints[0]"), "planning.constraints[0]");
  EXPECT_EQ(KeyOf("request_id"), "request_id");
}

}  // namespace
}  // namespace legoai::cli

#include "core/process/run_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "core/checkpoint/testing/small_file_system.h"
#include "proto/errors.h"
#include "proto/toml/toml.h"

namespace legoai::launch {
namespace {

std::string FreshFolder() {
  const std::string path = ::testing::TempDir() + "/" + ::testing::UnitTest::GetInstance()->current_test_info()->name();
  std::filesystem::remove_all(path);
  return path;
}

v1::StepMetrics Metrics(int64_t attempt, int64_t step, double loss) {
  v1::StepMetrics metrics;
  metrics.set_attempt(attempt);
  metrics.set_step(step);
  metrics.set_loss(loss);
  return metrics;
}

TEST(RunDirectory, KeepsRecipeAndRun) {
  const std::string path = FreshFolder();
  EXPECT_FALSE(ReadRun(path)->has_value());
  const auto directory = RunDirectory::Open(path);
  ASSERT_TRUE(directory.ok()) << directory.status();
  v1::Recipe recipe;
  recipe.mutable_training()->set_steps(7);
  v1::Run run;
  run.set_model("tiny");
  run.mutable_dataset()->set_sha256("ab");
  run.add_attempts()->set_resume_step(3);
  ASSERT_TRUE(directory->WriteRecipe(recipe).ok());
  ASSERT_TRUE(directory->WriteRun(run).ok());
  v1::Recipe recipe_again;
  ASSERT_TRUE(ParseToml(*checkpoint::ReadFile(RecipePath(path)), &recipe_again).ok());
  EXPECT_EQ(recipe_again.SerializeAsString(), recipe.SerializeAsString());
  EXPECT_EQ((*ReadRun(path))->SerializeAsString(), run.SerializeAsString());
}

TEST(RunDirectory, IsLockedUntilItsProcessIsGone) {
  const std::string path = FreshFolder();
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto directory = RunDirectory::Open(path);
    if (write(fds[1], "x", 1) == 1) pause();
    _exit(1);
  }
  char byte;
  ASSERT_EQ(read(fds[0], &byte, 1), 1);
  const auto refused = RunDirectory::Open(path);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(GetFieldViolation(refused.status())->field(), "job.dump_folder");
  EXPECT_THAT(refused.status().message(), ::testing::HasSubstr("(process " + std::to_string(child) + ")"));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(RunDirectory::Open(path).ok());
}

TEST(RunDirectory, MetricsSurviveATornLine) {
  const std::string path = FreshFolder();
  EXPECT_TRUE(ReadMetrics(path)->empty());
  {
    auto directory = RunDirectory::Open(path);
    ASSERT_TRUE(directory->AppendMetrics(Metrics(1, 1, 5)).ok());
    ASSERT_TRUE(directory->AppendMetrics(Metrics(1, 2, 4)).ok());
  }
  std::ofstream(MetricsPath(path), std::ios::app) << "{\"attempt\": 1, \"st";
  EXPECT_EQ(ReadMetrics(path)->size(), 2u);
  {
    auto directory = RunDirectory::Open(path);
    ASSERT_TRUE(directory->AppendMetrics(Metrics(2, 2, 3.5)).ok());
  }
  const auto all = ReadMetrics(path);
  ASSERT_TRUE(all.ok()) << all.status();
  ASSERT_EQ(all->size(), 3u);
  const auto latest = LatestOfEachStep(*all);
  ASSERT_EQ(latest.size(), 2u);
  EXPECT_EQ(latest[1].attempt(), 2);
  EXPECT_EQ(latest[1].loss(), 3.5);
  std::ofstream(MetricsPath(path), std::ios::app) << "{\"atempt\": 1}\n";
  EXPECT_THAT(ReadMetrics(path).status().message(), ::testing::HasSubstr("metrics.jsonl line 4"));
}

// A disk that is full in the middle of a line: the line is lost, and no other.
TEST(RunDirectory, AFullDiskCostsALineOfMetricsAndNoMore) {
  const std::string path = FreshFolder();
  auto directory = RunDirectory::Open(path);
  ASSERT_TRUE(directory->AppendMetrics(Metrics(1, 1, 5)).ok());
  const auto bytes = std::filesystem::file_size(MetricsPath(path));
  auto limit = std::make_optional<checkpoint::FileSizeLimit>(bytes + 10);
  const absl::Status full = directory->AppendMetrics(Metrics(1, 2, 4));
  limit.reset();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
  EXPECT_EQ(std::filesystem::file_size(MetricsPath(path)), bytes);
  ASSERT_TRUE(directory->AppendMetrics(Metrics(1, 3, 3)).ok());
  const auto all = ReadMetrics(path);
  ASSERT_TRUE(all.ok()) << all.status();
  ASSERT_EQ(all->size(), 2u);
  EXPECT_EQ((*all)[1].step(), 3);
}

// What was trained and then given up, by a fresh start or by going on from an earlier step, is no part of the run.
TEST(RunDirectory, StepsThatWereGivenUpAreLeftOut) {
  const auto steps = [](const std::vector<v1::StepMetrics>& metrics) {
    std::vector<std::pair<int64_t, int64_t>> steps;
    for (const auto& entry : LatestOfEachStep(metrics)) steps.emplace_back(entry.attempt(), entry.step());
    return steps;
  };
  using Steps = std::vector<std::pair<int64_t, int64_t>>;
  EXPECT_EQ(steps({Metrics(1, 1, 5), Metrics(1, 10, 4), Metrics(1, 20, 3), Metrics(2, 10, 4), Metrics(2, 12, 3)}),
            (Steps{{1, 1}, {2, 10}, {2, 12}}));
  EXPECT_EQ(steps({Metrics(1, 1, 5), Metrics(1, 50, 4), Metrics(2, 1, 5), Metrics(2, 20, 4)}), (Steps{{2, 1}, {2, 20}}));
  EXPECT_EQ(steps({Metrics(7, 1, 5), Metrics(7, 50, 4), Metrics(1, 1, 5)}), (Steps{{1, 1}})) << "attempts counted anew";
}

TEST(RunDirectory, AFolderThatCannotBeMadeIsAFieldError) {
  const auto directory = RunDirectory::Open("/proc/no/such");
  ASSERT_TRUE(GetFieldViolation(directory.status()).has_value());
  EXPECT_EQ(GetFieldViolation(directory.status())->value(), "/proc/no/such");
}

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(RunDirectory, WhereItsCheckpointsAreIsNotGuessed) {
  const std::string path = ::testing::TempDir() + "/where-checkpoints-are";
  std::filesystem::remove_all(path);
  EXPECT_EQ(CheckpointsOfRun(path).value(), path + "/checkpoints") << "of a run without a recipe";
  std::filesystem::create_directories(path);
  std::ofstream(RecipePath(path)) << "[checkpoint]\nfolder = \"s3://bucket/a\"\n";
  EXPECT_EQ(CheckpointsOfRun(path).value(), "s3://bucket/a");
  std::ofstream(RecipePath(path)) << "[checkpoint]\nfolder = \"s3://buc";
  EXPECT_THAT(std::string(CheckpointsOfRun(path).status().message()), ::testing::HasSubstr(RecipePath(path)));
}

TEST(RoomTest, SaysHowMuchIsFreeOfWhatIsNeeded) {
  const absl::Status full = absl::ResourceExhaustedError("rank-00000.bin: cannot write: Disk quota exceeded");
  EXPECT_EQ(WaitsForRoom("a checkpoint", "/runs/j", int64_t{340} << 20, int64_t{12} << 20, full),
            "the disk of /runs/j is full: 12.0 MiB are free of the 340 MiB that a checkpoint takes");
  EXPECT_EQ(WaitsForRoom("a checkpoint", "/runs/j", 280 << 10, 4096, full),
            "the disk of /runs/j is full: 4.00 KiB are free of the 280 KiB that a checkpoint takes");
  EXPECT_EQ(WaitsForRoom("a checkpoint", "/runs/j", 100, 100, full),
            "the disk is full: rank-00000.bin: cannot write: Disk quota exceeded")
      << "a quota";
  EXPECT_EQ(WaitsForRoom("a checkpoint", "s3://bucket/j", 1, int64_t{1} << 62, absl::ResourceExhaustedError("status 507")),
            "the object store is full: status 507");
}

TEST(RoomTest, TriesAgainUntilThereIsRoomAndSaysWhy) {
  std::vector<std::string> waits;
  int tries = 0;
  const absl::Status done =
      DoWhenThereIsRoom([&] { return ++tries < 3 ? absl::ResourceExhaustedError("run.json: no space") : absl::OkStatus(); },
                        [&](const std::string& why) { waits.push_back(why); }, [] { return false; });
  EXPECT_TRUE(done.ok()) << done;
  EXPECT_EQ(tries, 3);
  EXPECT_THAT(waits, ElementsAre("the disk is full: run.json: no space", "the disk is full: run.json: no space", ""));
}

TEST(RoomTest, OfAFullObjectStoreItSaysSo) {
  const absl::Status full = FieldError("checkpoint.folder", "s3://bucket", "status 507; make room in the store",
                                       absl::StatusCode::kResourceExhausted);
  std::vector<std::string> waits;
  DoWhenThereIsRoom([&] { return full; }, [&](const std::string& why) { waits.push_back(why); }, [] { return true; })
      .IgnoreError();
  EXPECT_THAT(waits, ElementsAre("the object store is full: " + std::string(full.message())));
}

TEST(RoomTest, WhatIsNoFullDiskIsNotWaitedFor) {
  std::vector<std::string> waits;
  const auto keep = [&](const std::string& why) { waits.push_back(why); };
  for (const absl::Status& status : {absl::OkStatus(), absl::PermissionDeniedError("x"), absl::UnavailableError("x")})
    EXPECT_EQ(DoWhenThereIsRoom([&] { return status; }, keep, [] { return false; }), status);
  EXPECT_THAT(waits, IsEmpty());
}

TEST(RoomTest, EndsWhenAsked) {
  const absl::Status full = absl::ResourceExhaustedError("x");
  int asked = 0;
  EXPECT_EQ(DoWhenThereIsRoom([&] { return full; }, [](const std::string&) {}, [&] { return ++asked == 3; }), full);
}

}  // namespace
}  // namespace legoai::launch

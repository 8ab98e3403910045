#include "worker/launch/run_training.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/directory.h"
#include "core/checkpoint/files.h"
#include "core/checkpoint/manifest.h"
#include "core/process/build_version.h"
#include "core/process/run_directory.h"
#include "core/recipe/recipe.h"
#include "proto/errors.h"
#include "worker/launch/resume.h"
#include "worker/launch/testing/tiny_run.h"

namespace legoai::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::RunTrainingTest;

TEST_F(RunTrainingTest, KeepsRecipeSeedMetricsAndAttempts) {
  recipe().mutable_training()->set_seed(29);
  const auto outcome = Train();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->cause, v1::Exit::FINISHED);
  EXPECT_EQ(outcome->step, 5);
  EXPECT_EQ(outcome->attempt, 1);
  EXPECT_NEAR(outcome->prepared.unigram_entropy, 0.6931, 1e-4) << "two letters, equally often";
  EXPECT_THAT(outcome->peak_memory_bytes, ElementsAre(1000, 1001));
  EXPECT_DOUBLE_EQ(*outcome->median_step_seconds, 0.04) << "of 0.02, 0.03, 0.04, 0.05";

  const auto metrics = ReadMetrics(path());
  ASSERT_EQ(metrics->size(), 5u);
  EXPECT_EQ((*metrics)[4].step(), 5);
  EXPECT_EQ((*metrics)[4].peak_memory_bytes(), 1001) << "the largest of all ranks";
  const auto recipe = parallel::LoadRecipe(RecipePath(path()));
  ASSERT_TRUE(recipe.ok()) << recipe.status();
  EXPECT_EQ(recipe->training().global_batch_size(), 4) << "derived";

  ASSERT_TRUE(Train().ok());
  const auto run = ReadRun(path());
  ASSERT_EQ((*run)->attempts_size(), 2);
  EXPECT_EQ((*run)->attempts(1).outcome(), "finished");
  EXPECT_EQ((*run)->attempts(1).last_step(), 5);
  EXPECT_EQ((*run)->build_version(), BuildVersion());
  EXPECT_EQ((*run)->seed(), 29);
  EXPECT_EQ((*run)->dataset().bytes(), 2000);
  EXPECT_EQ(LatestOfEachStep(*ReadMetrics(path())).front().attempt(), 2);
}

TEST_F(RunTrainingTest, AFailureIsToldAndKept) {
  UseTrainer("--act=die --culprit=1 --steps=1000000");
  const auto outcome = Train();
  EXPECT_THAT(outcome.status().message(), HasSubstr("rank 1 (train, step 2): the process was killed by signal 9"));
  const auto run = ReadRun(path());
  EXPECT_EQ((*run)->attempts(0).outcome(), "failed");
  EXPECT_EQ((*run)->attempts(0).error(), outcome.status().message());
  EXPECT_GE(ReadMetrics(path())->size(), 2u);
  EXPECT_TRUE(RunDirectory::Open(path()).ok()) << "the lock is free again";
}

TEST_F(RunTrainingTest, StopsWhenAsked) {
  UseTrainer("--steps=1000000");
  stop_at_ = 3;
  const auto outcome = Train();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->cause, v1::Exit::STOPPED);
  EXPECT_THAT(logs_, ::testing::Contains("rank 1: saved"));
  EXPECT_EQ((*ReadRun(path()))->attempts(0).outcome(), "stopped");
}

// Wherever preparations are when they are asked to end, they do; and nothing is left of them.
TEST_F(RunTrainingTest, PreparationsEndWhenAsked) {
  int64_t asked = 0, all = 0;
  ASSERT_TRUE(PrepareTraining(request_, "", [&] { return ++all < 0; }).ok());
  EXPECT_GE(all, 3) << "reading, tokenizing, counting";
  const std::string cache = folder() + "/cache";
  for (int64_t until = 1; until <= all; ++until) {
    asked = 0;
    const auto prepared = PrepareTraining(request_, "", [&] { return ++asked == until; });
    EXPECT_EQ(prepared.status().code(), absl::StatusCode::kCancelled) << until;
    EXPECT_EQ(asked, until);
  }
  // With a cache the tokens are written, too.
  for (bool cancelled = true; cancelled; ++asked) {
    int64_t left = asked;
    cancelled = absl::IsCancelled(PrepareTraining(request_, cache, [&] { return left-- == 0; }).status());
    const bool empty = !std::filesystem::exists(cache) || std::filesystem::is_empty(cache);
    const std::string first = empty ? "" : std::filesystem::directory_iterator(cache)->path().extension().string();
    EXPECT_TRUE(empty || first == ".bin") << first;
    if (!empty && cancelled) std::filesystem::remove_all(cache);
  }
  EXPECT_TRUE(std::filesystem::exists(cache));
}

TEST_F(RunTrainingTest, AStopBeforeAnythingIsStartedStartsNothing) {
  request_.lease = LeasedAttempt{.attempt = 1, .epoch = 1};
  stop_.Request(/*save=*/true);
  const auto outcome = Train();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->cause, v1::Exit::STOPPED);
  EXPECT_EQ(outcome->attempt, 0);
  EXPECT_TRUE(pids_.empty());
  EXPECT_FALSE(ReadRun(path())->has_value());
  stop_.Kill();
  EXPECT_EQ(Train().status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(Train().ok()) << "nothing is asked any more";
}

TEST_F(RunTrainingTest, GoesOnFromTheLatestCheckpoint) {
  MakeCheckpoint(2, std::string(BuildVersion()));
  MakeCheckpoint(4, std::string(BuildVersion()));
  request_.recipe.mutable_training()->set_local_batch_size(1);  // the layout is free
  request_.recipe.mutable_training()->set_global_batch_size(4);
  EXPECT_EQ(Train()->resumed_from, 4);
  EXPECT_EQ((*ReadRun(path()))->attempts(0).resume_step(), 4);

  request_.fresh = true;
  EXPECT_EQ(Train()->resumed_from, std::nullopt);
  EXPECT_TRUE(checkpoint::ListCheckpoints(CheckpointsPath(path()))->empty());
  EXPECT_THAT(*checkpoint::ListCheckpoints(CheckpointsPath(path()) + ".before-attempt-2"), ElementsAre(2, 4));
}

// What lies in its own folder does not count: the service says what it goes on from.
TEST_F(RunTrainingTest, ALeasedAttemptGoesOnFromWhatItsLeaseSays) {
  MakeCheckpoint(2, std::string(BuildVersion()));
  MakeCheckpoint(4, std::string(BuildVersion()));
  const std::string earlier = CheckpointsPath(path());
  recipe().mutable_job()->set_dump_folder(folder() + "/epoch-7");
  request_.lease = LeasedAttempt{.attempt = 3, .epoch = 7, .resume_step = 2, .resume_directory = earlier};
  auto outcome = Train();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->resumed_from, 2);
  EXPECT_EQ(outcome->attempt, 3);
  EXPECT_EQ(outcome->prepared.start.epoch(), 7);
  EXPECT_EQ(outcome->prepared.start.resume_directory(), earlier);
  EXPECT_EQ((*ReadRun(path()))->attempts(0).attempt(), 3);
  EXPECT_EQ(ReadMetrics(path())->front().attempt(), 3);

  MakeCheckpoint(5, std::string(BuildVersion()));
  request_.lease = LeasedAttempt{.attempt = 4, .epoch = 8};
  outcome = Train();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->resumed_from, std::nullopt) << "no checkpoint was committed: from the beginning";

  // A host that does not see the runs of the job says nothing of what is in them.
  request_.lease->resume_step = 3;
  request_.lease->resume_directory = folder() + "/elsewhere/epoch-1/checkpoints";
  const absl::Status unseen = Train().status();
  EXPECT_EQ(unseen.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(unseen.message(), HasSubstr(checkpoint::StepDirectory(request_.lease->resume_directory, 3) + ": is not there"));
  EXPECT_FALSE(checkpoint::GetDamage(unseen).has_value());
}

// The keys of an agent may open more than the places where its jobs may keep checkpoints.
TEST_F(RunTrainingTest, ALeasedAttemptGoesOnFromNoOtherPlaceThanItsHostAllows) {
  MakeCheckpoint(2, std::string(BuildVersion()));
  request_.lease = LeasedAttempt{.attempt = 2, .epoch = 2, .resume_step = 2, .resume_directory = CheckpointsPath(path())};
  recipe().mutable_job()->set_dump_folder(folder() + "/epoch-2");
  request_.checkpoint_roots = {folder() + "/elsewhere", "s3://bucket"};
  const absl::Status refused = Train().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(refused.message(), HasSubstr("the checkpoint to go on from"));
  EXPECT_EQ(GetFieldViolation(refused)->value(), request_.lease->resume_directory);
  request_.checkpoint_roots = {folder()};
  EXPECT_EQ(Train()->resumed_from, 2);
}

// One that saves nothing leaves alone what others may be saving there.
TEST_F(RunTrainingTest, OnlyATrainingThatSavesRemovesWhatSavesLeft) {
  const std::string begun = checkpoint::StepDirectory(CheckpointsPath(path()), 9);
  std::filesystem::create_directories(begun);
  ASSERT_TRUE(Train().ok());
  EXPECT_TRUE(std::filesystem::exists(begun));
  recipe().mutable_checkpoint()->set_enable_checkpoint(true);
  ASSERT_TRUE(Train().ok());
  EXPECT_FALSE(std::filesystem::exists(begun));
}

// The service said yes, and the attempt that had asked was killed before it heard.
TEST_F(RunTrainingTest, ACheckpointThatTheServiceHasCommittedIsFinished) {
  MakeCheckpoint(2, std::string(BuildVersion()));
  const std::string manifest = checkpoint::StepDirectory(CheckpointsPath(path()), 2) + "/manifest.pb";
  std::filesystem::rename(manifest, manifest + ".tmp");
  request_.lease = LeasedAttempt{.attempt = 2, .epoch = 2, .resume_step = 2, .resume_directory = CheckpointsPath(path())};
  recipe().mutable_job()->set_dump_folder(folder() + "/epoch-2");
  const auto outcome = Train();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->resumed_from, 2);
  EXPECT_TRUE(std::filesystem::exists(manifest));
}

TEST_F(RunTrainingTest, TheTextMustBeTheOneThatWasSubmitted) {
  request_.dataset = PrepareTraining(request_, "")->start.dataset();
  EXPECT_EQ(request_.dataset.bytes(), 2000);
  EXPECT_TRUE(PrepareTraining(request_, "").ok());
  std::ofstream(folder() + "/text.txt", std::ios::app) << "c";
  EXPECT_EQ(GetFieldViolation(Train().status())->field(), "dataset.bytes");
  WriteText(std::string(2000, 'a'));
  EXPECT_EQ(GetFieldViolation(Train().status())->field(), "dataset.sha256");
  request_.dataset.Clear();
  EXPECT_TRUE(Train().ok());
}

TEST_F(RunTrainingTest, StartsNothingWhenAllStepsAreDone) {
  ASSERT_TRUE(Train().ok());
  MakeCheckpoint(5, std::string(BuildVersion()));
  request_.trainer = "/bin/false";
  const auto outcome = Train();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->attempt, 0);
  EXPECT_EQ(outcome->step, 5);
  EXPECT_DOUBLE_EQ(*outcome->median_step_seconds, 0.04) << "as the earlier attempt measured";
  EXPECT_THAT(outcome->peak_memory_bytes, ElementsAre(1001));
}

// Whether hf/ is of the last checkpoint, not whether it is there, decides if there is something left to do.
TEST_F(RunTrainingTest, AnExportCountsForItsCheckpointOnly) {
  recipe().mutable_checkpoint()->set_last_save_in_hf(true);
  const auto finished = [this] { return PrepareTraining(request_, "")->finished; };
  MakeCheckpoint(3, std::string(BuildVersion()));
  MakeExport(3, "of step 3");
  MakeCheckpoint(5, std::string(BuildVersion()));
  EXPECT_FALSE(finished()) << "the export is of a shorter run";
  MakeExport(5, "of step 5");
  EXPECT_TRUE(finished());
  EXPECT_EQ(Train()->hf_directory, HuggingFacePath(path()));
  EXPECT_EQ(*checkpoint::ReadFile(HuggingFacePath(path()) + "/config.json"), "of step 5");
  EXPECT_FALSE(std::filesystem::exists(PartialExportPath(path())));

  std::filesystem::remove_all(checkpoint::StepDirectory(CheckpointsPath(path()), 5));
  recipe().mutable_lr_scheduler()->set_warmup_steps(7);
  MakeCheckpoint(5, std::string(BuildVersion()));
  EXPECT_FALSE(finished()) << "the same step of another training";
  std::filesystem::remove(HuggingFacePath(path()) + "/legoai.json");
  EXPECT_FALSE(finished()) << "nobody knows what it is of";
}

// A checkpoint that the file system does not show is not gone: nobody goes on from an earlier one. Beginning anew needs none of
// them, and that nothing can be removed does not keep it from training.
TEST_F(RunTrainingTest, ACheckpointThatCannotBeLookedAtIsNotPassedOver) {
  MakeCheckpoint(2, std::string(BuildVersion()));
  MakeCheckpoint(4, std::string(BuildVersion()));
  const std::string manifest = checkpoint::StepDirectory(CheckpointsPath(path()), 4) + "/manifest.pb";
  std::filesystem::remove(manifest);
  std::filesystem::create_symlink("manifest.pb", manifest);  // leads to itself
  EXPECT_THAT(Train().status().message(), HasSubstr(manifest));
  EXPECT_TRUE(std::filesystem::is_symlink(manifest));

  request_.fresh = true;
  recipe().mutable_checkpoint()->set_enable_checkpoint(true);  // one that saves nothing removes nothing
  const auto outcome = Train();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_THAT(logs_, ::testing::Contains(HasSubstr("what an earlier attempt left cannot be removed: " + manifest)));
  EXPECT_TRUE(std::filesystem::exists(path() + "/checkpoints.before-attempt-1/step-2/manifest.pb"));
}

// Killed where the file system cannot exchange names, between the export's two renames.
TEST_F(RunTrainingTest, AnExportThatWasMovedOutOfTheWayIsPutBack) {
  recipe().mutable_checkpoint()->set_last_save_in_hf(true);
  MakeCheckpoint(5, std::string(BuildVersion()));
  MakeExport(5, "of step 5");
  const std::string exported = HuggingFacePath(path());
  std::filesystem::rename(exported, exported + ".replaced");
  EXPECT_EQ(Train()->hf_directory, exported);
  EXPECT_EQ(*checkpoint::ReadFile(exported + "/config.json"), "of step 5");
  EXPECT_FALSE(std::filesystem::exists(exported + ".replaced"));
}

TEST_F(RunTrainingTest, FreshDoesNotPutAsideTheWeightsItStartsFrom) {
  MakeCheckpoint(4, std::string(BuildVersion()));
  MakeExport(4, "of step 4");
  std::filesystem::create_directory_symlink(HuggingFacePath(path()), folder() + "/link");
  request_.fresh = true;
  for (const std::string& weights : {path() + "/hf", path() + "/hf/", path() + "/./hf/model.safetensors",
                                     path() + "/checkpoints/step-4", folder() + "/link"}) {
    recipe().mutable_model()->set_initial_load_path(weights);
    const absl::Status refused = Train().status();
    const auto fault = GetFieldViolation(refused);
    ASSERT_TRUE(fault) << refused;
    EXPECT_EQ(fault->field(), "model.initial_load_path");
    EXPECT_EQ(fault->value(), weights);
    EXPECT_THAT(fault->remedy(), HasSubstr("copy the weights elsewhere"));
  }
  EXPECT_TRUE(std::filesystem::exists(HuggingFacePath(path()) + "/config.json"));
  recipe().mutable_model()->set_initial_load_path(path() + "/hf-mine");
  EXPECT_THAT(Train().status().message(), ::testing::Not(HasSubstr("--fresh"))) << "a name that only begins alike";
}

TEST_F(RunTrainingTest, AnAttemptAfterOneThatHasBegunAnewGoesOnFromWhatThatHasSaved) {
  int64_t begun_anew = 0;
  callbacks_.begun_anew = [&] { ++begun_anew; };
  MakeCheckpoint(4, std::string(BuildVersion()));
  request_.fresh = true;
  EXPECT_EQ(Train()->resumed_from, std::nullopt);
  EXPECT_EQ(begun_anew, 1);
  MakeCheckpoint(2, std::string(BuildVersion()));
  request_.begun_anew = true;
  EXPECT_EQ(Train()->resumed_from, 2);
  EXPECT_EQ(begun_anew, 1);
  EXPECT_THAT(*checkpoint::ListCheckpoints(CheckpointsPath(path())), ElementsAre(2));
}

TEST_F(RunTrainingTest, FreshPutsAsideWhatIsThereAndLeftoversGo) {
  MakeCheckpoint(4, std::string(BuildVersion()));
  MakeExport(4, "of step 4");
  std::filesystem::create_directories(checkpoint::StepDirectory(CheckpointsPath(path()), 5));  // a save that was killed
  std::filesystem::create_directories(PartialExportPath(path()));                              // and an export
  request_.fresh = true;
  recipe().mutable_checkpoint()->set_last_save_in_hf(true);
  const auto outcome = Train();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->hf_directory, "") << "the test trainer exports nothing";
  EXPECT_FALSE(std::filesystem::exists(HuggingFacePath(path())));
  EXPECT_FALSE(std::filesystem::exists(PartialExportPath(path())));
  EXPECT_TRUE(std::filesystem::exists(path() + "/hf.before-attempt-1/config.json"));
  EXPECT_TRUE(std::filesystem::is_empty(CheckpointsPath(path())));
  EXPECT_FALSE(std::filesystem::exists(path() + "/checkpoints.before-attempt-1/step-5"));

  std::filesystem::remove(RunJsonPath(path()));  // attempts are counted anew
  MakeCheckpoint(2, std::string(BuildVersion()));
  ASSERT_TRUE(Train().ok());
  EXPECT_THAT(*checkpoint::ListCheckpoints(CheckpointsPath(path()) + ".before-attempt-1"), ElementsAre(4));
  EXPECT_THAT(*checkpoint::ListCheckpoints(CheckpointsPath(path()) + ".before-attempt-1-2"), ElementsAre(2));
}

// What may change is taken, said, and kept.
TEST_F(RunTrainingTest, ChangesOfTheScheduleAreSaid) {
  MakeCheckpoint(2, std::string(BuildVersion()));
  recipe().mutable_lr_scheduler()->set_warmup_steps(3);
  recipe().mutable_training()->set_max_norm(0.5);
  const auto outcome = Train();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  const char* const schedule = "the learning rate's schedule changed: lr_scheduler.warmup_steps from 200 to 3";
  EXPECT_THAT(logs_, ::testing::IsSupersetOf({std::string(schedule), std::string("changed: training.max_norm from 1 to 0.5")}));
  EXPECT_THAT((*ReadRun(path()))->attempts(0).changes(), ElementsAre(schedule, "changed: training.max_norm from 1 to 0.5"));
}

TEST_F(RunTrainingTest, AnAttemptThatWasKilledWithItsLauncherIsLost) {
  {
    const auto directory = RunDirectory::Open(path());
    v1::Run run;
    run.add_attempts()->set_outcome("running");
    ASSERT_TRUE(directory->WriteRun(run).ok());
  }
  ASSERT_TRUE(Train().ok());
  EXPECT_EQ((*ReadRun(path()))->attempts(0).outcome(), "lost");
  EXPECT_EQ((*ReadRun(path()))->attempts(1).outcome(), "finished");
}

TEST_F(RunTrainingTest, WhatMayNotChangeIsRefusedByName) {
  MakeCheckpoint(2, "0.0.9+000000000000");
  EXPECT_THAT(Train().status().message(), HasSubstr("0.0.9+000000000000"));
  request_.accept_other_build = true;
  EXPECT_TRUE(PrepareTraining(request_, "").ok());
  const auto expect_field = [&](const std::string& field, const std::string& value, const std::string& then) {
    const absl::Status status = Train().status();
    ASSERT_TRUE(GetFieldViolation(status).has_value()) << status;
    EXPECT_EQ(GetFieldViolation(status)->field(), field);
    EXPECT_EQ(GetFieldViolation(status)->value(), value);
    EXPECT_THAT(GetFieldViolation(status)->remedy(), HasSubstr("was made with " + then));
  };
  const TrainRequest good = request_;
  request_.recipe.mutable_training()->set_seq_len(8);
  expect_field("training.seq_len", "8", "16");
  request_ = good;
  request_.recipe.mutable_training()->set_global_batch_size(8);
  expect_field("training.global_batch_size", "8", "4");
  request_ = good;
  request_.recipe.mutable_optimizer()->set_beta2(0.5);
  expect_field("optimizer.beta2", "0.5", "0.95");
  request_ = good;
  request_.model.set_rope_theta(20000);
  expect_field("model tiny: rope_theta", "20000", "10000");
  request_.model.set_config_json("{}");
  expect_field("config.json: rope_theta", "20000", "10000");
  request_ = good;
  request_.model.set_name("elsewhere");
  request_.model.set_config_json("{}");
  EXPECT_TRUE(PrepareTraining(request_, "").ok()) << "the same model in another folder";
  request_ = good;
  request_.recipe.mutable_model()->set_initial_load_path("weights");
  expect_field("model.initial_load_path", "weights", "fresh weights");
  request_ = good;
  std::ofstream(folder() + "/text.txt", std::ios::app) << "c";
  expect_field("training.dataset_path", folder() + "/text.txt", "another text");
  EXPECT_FALSE(ReadRun(path())->has_value()) << "nothing was begun";
}

TEST_F(RunTrainingTest, BadInputBeginsNothing) {
  const auto expect_field = [&](const std::string& field) {
    const absl::Status status = Train().status();
    ASSERT_TRUE(GetFieldViolation(status).has_value()) << field << ": " << status;
    EXPECT_EQ(GetFieldViolation(status)->field(), field) << status;
    EXPECT_FALSE(std::filesystem::exists(path() + "/run.json"));
  };
  const TrainRequest good = request_;
  request_.recipe.mutable_training()->set_dataset_path(folder() + "/none.txt");
  expect_field("training.dataset_path");
  request_ = good;
  request_.recipe.mutable_training()->set_dataset_path("");
  expect_field("training.dataset_path");
  request_ = good;
  request_.model.set_max_position_embeddings(4096);
  request_.recipe.mutable_training()->set_seq_len(4000);
  expect_field("training.dataset_path");
  request_ = good;
  request_.model.set_vocab_size(100);
  expect_field("model.tokenizer_path");
  request_ = good;
  request_.recipe.mutable_parallelism()->set_tensor_parallel_degree(3);
  expect_field("parallelism");
  request_ = good;
  request_.trainer = folder() + "/none";
  expect_field("trainer program");
  request_ = good;
  request_.recipe.mutable_job()->set_dump_folder("/proc/none");
  expect_field("job.dump_folder");
}

}  // namespace
}  // namespace legoai::launch

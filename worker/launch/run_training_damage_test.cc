// What `lego train` and leased attempts do about checkpoints that are damaged, put aside, or gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/directory.h"
#include "core/checkpoint/files.h"
#include "core/checkpoint/manifest.h"
#include "core/process/build_version.h"
#include "core/process/run_directory.h"
#include "proto/errors.h"
#include "worker/launch/prepare_training.h"
#include "worker/launch/run_training.h"
#include "worker/launch/testing/tiny_run.h"

namespace legoai::launch {
namespace {

using ::testing::ElementsAre;
using testing::FlipBit;
using ::testing::HasSubstr;
using testing::RunTrainingTest;

// What can befall a checkpoint of step N of MakeCheckpoint's; the file that is named then.
struct Harm {
  std::string file;
  std::function<void(const std::string& file)> act;
};

void CutShort(const std::string& path) { std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1); }

void Remove(const std::string& path) { std::filesystem::remove_all(path); }

const std::vector<Harm>& Harms() {
  static const auto* const harms =
      new std::vector<Harm>{{"/rank-00000.bin", FlipBit}, {"/manifest.pb", FlipBit},   {"/rank-00000.bin", CutShort},
                            {"/manifest.pb", CutShort},   {"/rank-00000.bin", Remove}, {"/manifest.pb", Remove}};
  return *harms;
}

TEST_F(RunTrainingTest, ADamagedCheckpointIsPutAsideAndTheNextOlderOneIsTaken) {
  const std::string root = CheckpointsPath(path());
  for (const Harm& harm : Harms()) {
    SCOPED_TRACE(harm.file);
    std::filesystem::remove_all(path());
    logs_.clear();
    for (const int64_t step : {2, 3, 4}) MakeCheckpoint(step, std::string(BuildVersion()));
    const std::string file = checkpoint::StepDirectory(root, 4) + harm.file;
    harm.act(file);
    const auto outcome = Train();
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(outcome->resumed_from, 3);
    EXPECT_EQ(outcome->attempt, 1);
    const std::string aside = root + "/step-4.damaged";
    EXPECT_TRUE(std::filesystem::exists(aside));
    EXPECT_FALSE(std::filesystem::exists(checkpoint::StepDirectory(root, 4)));
    EXPECT_THAT(logs_,
                ::testing::Contains(::testing::AllOf(HasSubstr("the checkpoint of step 4 is damaged (" + file),
                                                     HasSubstr("put aside as " + aside), HasSubstr("goes on from step 3"))));
    const v1::RunAttempt attempt = (*ReadRun(path()))->attempts(0);
    ASSERT_EQ(attempt.damaged_size(), 1);
    EXPECT_EQ(attempt.damaged(0).step(), 4);
    EXPECT_THAT(attempt.damaged(0).detail(), HasSubstr(file));
    EXPECT_EQ(attempt.resume_step(), 3);
    EXPECT_EQ(attempt.outcome(), "finished");
    EXPECT_EQ((*ReadRun(path()))->attempts_size(), 1);
  }
}

// A disk that keeps nothing of a step, however often that is trained and saved again. What it kept last is put aside, too: the
// same call must not take it for a training that is done.
TEST_F(RunTrainingTest, AStepThatIsDamagedOnceMoreEndsIt) {
  for (const int64_t step : {2, 4}) MakeCheckpoint(step, std::string(BuildVersion()));
  UseTrainer("--act=find_damage");
  const auto started = callbacks_.started;
  int64_t starts = 0;
  callbacks_.started = [&](int64_t rank, int64_t pid) {
    started(rank, pid);
    if (rank == 0 && ++starts == 2) MakeCheckpoint(4, std::string(BuildVersion()));
  };
  const absl::Status ended = Train().status();
  EXPECT_TRUE(absl::IsDataLoss(ended)) << ended;
  EXPECT_THAT(ended.message(), HasSubstr("the checkpoint of step 4 was damaged once more"));
  EXPECT_THAT(ended.message(), HasSubstr("rank-00000.bin: torn"));
  EXPECT_EQ(starts, 2);
  EXPECT_EQ((*ReadRun(path()))->attempts(0).resume_step(), 2) << "it was tried from there";
  EXPECT_EQ((*ReadRun(path()))->attempts(0).damaged_size(), 2);
  EXPECT_THAT(*checkpoint::ListPutAside(CheckpointsPath(path())), ElementsAre("step-4.damaged", "step-4.damaged-2"));
  EXPECT_THAT(*checkpoint::ListCheckpoints(CheckpointsPath(path())), ElementsAre(2));
  EXPECT_TRUE(std::filesystem::exists(CheckpointsPath(path()) + "/step-2/manifest.pb"));
}

// Ctrl-C while a rank reads what turns out to be damaged: the training does not go on from the one before.
TEST_F(RunTrainingTest, AStopIsNotLostWhenTheCheckpointIsDamaged) {
  for (const int64_t step : {2, 4}) MakeCheckpoint(step, std::string(BuildVersion()));
  FlipBit(CheckpointsPath(path()) + "/step-4/rank-00000.bin");
  int64_t starts = 0;
  callbacks_.started = [&](int64_t rank, int64_t) {
    if (rank == 0 && ++starts == 1) stop_.Request(/*save=*/true);
  };
  const auto outcome = Train();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->cause, v1::Exit::STOPPED);
  EXPECT_EQ(outcome->step, 2);
  EXPECT_EQ(starts, 1);
  EXPECT_THAT(*checkpoint::ListPutAside(CheckpointsPath(path())), ElementsAre("step-4.damaged"));
}

TEST_F(RunTrainingTest, ThatAllCheckpointsAreGoneIsTold) {
  UseTrainer("--steps=5");
  recipe().mutable_checkpoint()->set_enable_checkpoint(true);
  ASSERT_TRUE(Train().ok());
  EXPECT_THAT(logs_, ::testing::Not(::testing::Contains(HasSubstr("begins anew"))));
  std::filesystem::remove_all(CheckpointsPath(path()));
  ASSERT_TRUE(Train().ok());
  EXPECT_THAT(logs_,
              ::testing::Contains(HasSubstr("came to step 5, and no checkpoint of it is there: the training begins anew")));
}

// What was found damaged was put aside; a checkpoint of the same step that was saved since is another one.
TEST_F(RunTrainingTest, AStepThatWasSavedAgainIsTaken) {
  for (const int64_t step : {2, 4}) MakeCheckpoint(step, std::string(BuildVersion()));
  auto prepared = PrepareTraining(request_, "");
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  prepared->damaged.emplace_back().set_step(4);
  ASSERT_TRUE(FindCheckpoint(request_, &*prepared).ok());
  EXPECT_EQ(prepared->checkpoint, 4);
}

// Somebody has asked for it by its step: it may have been the way to it that was damaged.
TEST_F(RunTrainingTest, ALeaseThatSaysSoTakesBackWhatWasPutAside) {
  MakeCheckpoint(2, std::string(BuildVersion()));
  const std::string earlier = CheckpointsPath(path());
  v1::CheckpointDamage damage;
  damage.set_step(2);
  damage.set_directory(earlier);
  ASSERT_TRUE(checkpoint::PutAside(damage).ok());
  recipe().mutable_job()->set_dump_folder(folder() + "/epoch-7");
  request_.lease = LeasedAttempt{.attempt = 3, .epoch = 7, .resume_step = 2, .resume_directory = earlier};
  const absl::Status gone = Train().status();
  EXPECT_THAT(gone.message(), HasSubstr("was put aside as damaged before"));
  EXPECT_TRUE(checkpoint::GetDamage(gone).has_value());

  request_.lease->take_back = true;
  const auto outcome = Train();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->resumed_from, 2);

  // It is damaged indeed: aside it goes again.
  FlipBit(earlier + "/step-2/rank-00000.bin");
  EXPECT_TRUE(checkpoint::GetDamage(Train().status()).has_value());
  EXPECT_THAT(*checkpoint::ListPutAside(earlier), ElementsAre("step-2.damaged"));
}

// Two that only reading all bytes shows, and one that the manifest shows.
TEST_F(RunTrainingTest, OneAfterTheOtherIsPassedOver) {
  const std::string root = CheckpointsPath(path());
  for (const int64_t step : {1, 2, 3, 4}) MakeCheckpoint(step, std::string(BuildVersion()));
  FlipBit(root + "/step-4/rank-00000.bin");
  FlipBit(root + "/step-3/manifest.pb");
  FlipBit(root + "/step-2/rank-00000.bin");
  const auto outcome = Train();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->resumed_from, 1);
  EXPECT_THAT(*checkpoint::ListPutAside(root), ElementsAre("step-2.damaged", "step-3.damaged", "step-4.damaged"));
  EXPECT_EQ((*ReadRun(path()))->attempts(0).damaged_size(), 3);
}

// Nobody begins anew without being told to, however often he asks.
TEST_F(RunTrainingTest, WhereNoneLoadsNothingIsBegunAndAllAreNamed) {
  const std::string root = CheckpointsPath(path());
  for (const Harm& harm : Harms()) {
    SCOPED_TRACE(harm.file);
    std::filesystem::remove_all(path());
    for (const int64_t step : {2, 4}) MakeCheckpoint(step, std::string(BuildVersion()));
    for (const int64_t step : {2, 4}) harm.act(checkpoint::StepDirectory(root, step) + harm.file);
    for (int i = 0; i < 3; ++i) {
      request_.fresh = false;
      const absl::Status refused = Train().status();
      EXPECT_TRUE(absl::IsDataLoss(refused)) << refused;
      for (const char* part : {"no checkpoint loads", "step-2", "step-4", "--fresh"})
        EXPECT_THAT(refused.message(), HasSubstr(part));
      EXPECT_FALSE(std::filesystem::exists(MetricsPath(path())));
    }
    request_.fresh = true;
    const auto outcome = Train();
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    request_.fresh = false;
    EXPECT_TRUE(std::filesystem::is_empty(root));
    EXPECT_EQ(Train()->resumed_from, std::nullopt) << "a new training, of which there is none yet";
  }
}

TEST_F(RunTrainingTest, WhatIsNoDamageIsNotPassedOver) {
  MakeCheckpoint(2, std::string(BuildVersion()));
  MakeCheckpoint(4, "0.0.9+000000000000");
  EXPECT_THAT(Train().status().message(), HasSubstr("0.0.9+000000000000"));
  EXPECT_TRUE(std::filesystem::exists(CheckpointsPath(path()) + "/step-4/manifest.pb"));
}

// The service chooses; it is told what is wrong, and finds it so again where it is not told.
TEST_F(RunTrainingTest, ALeasedAttemptTellsOfTheDamageAndEnds) {
  const std::string job = folder() + "/job", earlier = job + "/epoch-1/checkpoints";
  for (const Harm& harm : Harms()) {
    SCOPED_TRACE(harm.file);
    std::filesystem::remove_all(job);
    request_.lease.reset();
    recipe().mutable_job()->set_dump_folder(job + "/epoch-1");
    for (const int64_t step : {2, 4}) MakeCheckpoint(step, std::string(BuildVersion()));
    harm.act(earlier + "/step-4" + harm.file);
    recipe().mutable_job()->set_dump_folder(job + "/epoch-2");
    request_.lease = LeasedAttempt{.attempt = 2, .epoch = 2, .resume_step = 4, .resume_directory = earlier};
    for (const std::string& detail :
         {std::string("step-4") + harm.file, std::string("step-4: was put aside as damaged before")}) {
      const auto damage = checkpoint::GetDamage(Train().status());
      ASSERT_TRUE(damage.has_value()) << detail;
      EXPECT_EQ(damage->step(), 4);
      EXPECT_EQ(damage->directory(), earlier);
      EXPECT_THAT(damage->detail(), HasSubstr(detail));
      EXPECT_TRUE(std::filesystem::exists(earlier + "/step-4.damaged"));
    }
    std::filesystem::remove_all(earlier + "/step-4.damaged");
    EXPECT_THAT(checkpoint::GetDamage(Train().status())->detail(), HasSubstr("step-4: is gone"));
    request_.lease->resume_step = 2;
    const auto outcome = Train();
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(outcome->resumed_from, 2);
  }
}

}  // namespace
}  // namespace legoai::launch

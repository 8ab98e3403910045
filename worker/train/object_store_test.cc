// Trainings whose checkpoints are in an S3 store (versitygw): they go on from it bit by bit, on any machine, and what happens to
// the store in the meantime costs no step that was saved.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/checkpoint/directory.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/storage.h"
#include "core/checkpoint/testing/small_file_system.h"
#include "core/objectstore/s3_client.h"
#include "core/objectstore/testing/versitygw.h"
#include "core/process/child_process.h"
#include "core/process/run_directory.h"
#include "proto/errors.h"
#include "worker/train/testing/trainer_run.h"

namespace legoai::train {
namespace {

using objectstore::S3Client;
using objectstore::Versitygw;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kUrl[] = "s3://bucket/runs/tiny";

class ObjectStoreTest : public testing::TrainerRun {
 protected:
  void SetUp() override {
    unsetenv("AWS_MAX_ATTEMPTS");
    auto started = Versitygw::Start(::testing::TempDir());
    ASSERT_TRUE(started.ok()) << started.status();
    gateway_ = *std::move(started);
    recipe().mutable_checkpoint()->set_interval(2);
  }
  void TearDown() override { unsetenv("AWS_MAX_ATTEMPTS"); }

  absl::StatusOr<launch::TrainOutcome> TrainWhole() {
    recipe().mutable_checkpoint()->clear_folder();
    auto outcome = Train("whole", 2);
    recipe().mutable_checkpoint()->set_folder(kUrl);
    return outcome;
  }
  // Up to the checkpoint of this step, and no further.
  void TrainUntil(const std::string& name, int64_t step) {
    stop_at_ = step;
    const auto outcome = Train(name, 2);
    stop_at_ = -1;
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    ASSERT_EQ(outcome->cause, v1::Exit::STOPPED);
  }
  std::string FileOf(int64_t step, const std::string& name) const {
    return gateway_->PathOf(absl::StrCat("runs/tiny/step-", step, "/", name));
  }

  std::unique_ptr<Versitygw> gateway_;
};

TEST_F(ObjectStoreTest, ARunGoesOnBitByBitInAnotherFolderAndInAnotherLayout) {
  const auto whole = TrainWhole();
  ASSERT_TRUE(whole.ok()) << whole.status();
  TrainUntil("first", 3);
  const std::vector<int64_t> saved = checkpoint::ListCheckpoints(kUrl).value();
  EXPECT_EQ(launch::CheckpointsOfRun(folder() + "/first").value(), kUrl);
  EXPECT_TRUE(std::filesystem::is_empty(Checkpoints("first"))) << "nothing is on this disk";
  // As on a machine that has seen nothing of the run.
  recipe().mutable_checkpoint()->set_keep_latest_k(2);
  recipe().mutable_checkpoint()->set_last_save_in_hf(true);
  const auto resumed = Train("second", 2);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_EQ(resumed->resumed_from, saved.back());
  auto losses = Losses("first");
  for (const auto& [step, loss] : Losses("second")) losses[step] = loss;
  EXPECT_EQ(losses, Losses("whole"));
  EXPECT_EQ(resumed->peak_memory_bytes, whole->peak_memory_bytes) << "parts that are sent are no tensors";
  EXPECT_THAT(*checkpoint::ListCheckpoints(kUrl), ElementsAre(4, 6));
  EXPECT_TRUE(std::filesystem::exists(resumed->hf_directory + "/model.safetensors"));
  EXPECT_THAT(*S3Client::Create("bucket")->ListUploads(""), IsEmpty());

  recipe().mutable_training()->set_steps(8);
  recipe().mutable_training()->set_local_batch_size(4);
  const auto alone = Train("third", 1);
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_EQ(alone->resumed_from, 6);
  EXPECT_EQ(alone->step, 8);
}

TEST_F(ObjectStoreTest, ASpoiledObjectIsPutAsideAndTheOlderCheckpointTaken) {
  ASSERT_TRUE(TrainWhole().ok());
  TrainUntil("run", 4);
  const int64_t newest = checkpoint::ListCheckpoints(kUrl)->back();
  launch::testing::FlipBit(FileOf(newest, "rank-00001.bin"));
  const auto resumed = Train("run", 2);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_LT(*resumed->resumed_from, newest);
  EXPECT_GE(*resumed->resumed_from, 2);
  EXPECT_THAT(logs_, Contains(HasSubstr(absl::StrCat("the checkpoint of step ", newest, " is damaged"))));
  EXPECT_THAT(*checkpoint::ListPutAside(kUrl), ElementsAre(absl::StrCat("step-", newest, ".damaged")));
  EXPECT_EQ(Losses("run"), Losses("whole"));
}

TEST_F(ObjectStoreTest, ARankThatIsKilledCostsOnlyWhatWasNotSaved) {
  recipe().mutable_training()->set_steps(60);
  recipe().mutable_checkpoint()->set_interval(4);
  ASSERT_TRUE(TrainWhole().ok());
  SignalRank1(SIGKILL, 10);
  ASSERT_FALSE(Train("run", 2).ok());
  // As an upload leaves it whose process is killed.
  auto client = S3Client::Create("bucket").value();
  ASSERT_TRUE(client.BeginUpload("runs/tiny/step-61/rank-00001.bin").ok());
  callbacks_.metrics = nullptr;
  const auto resumed = Train("run", 2);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_GE(*resumed->resumed_from, 8);
  EXPECT_EQ(Losses("run"), Losses("whole"));
  EXPECT_THAT(*client.ListUploads(""), IsEmpty());
}

// The ranks wait in place, and go on.
TEST_F(ObjectStoreTest, AStoreThatIsAwayForSecondsIsWaitedFor) {
  ASSERT_TRUE(TrainWhole().ok());
  absl::Time ended = absl::InfiniteFuture();
  bool back = false;
  callbacks_.progress = [&](const v1::Progress& progress) {
    if (progress.phase() == "checkpoint" && ended == absl::InfiniteFuture()) {
      gateway_->End();
      ended = absl::Now();
    }
    if (back || absl::Now() - ended < absl::Seconds(3)) return;
    back = true;
    EXPECT_EQ(gateway_->StartAgain(), absl::OkStatus());
  };
  const auto outcome = Train("run", 2);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(back);
  EXPECT_THAT(*checkpoint::ListCheckpoints(kUrl), ElementsAre(2, 4, 6));
  EXPECT_EQ(Losses("run"), Losses("whole"));
}

// The run ends with the reason, as where a disk fails, and goes on from what was saved before.
TEST_F(ObjectStoreTest, AStoreThatStaysAwayEndsTheRunWhichGoesOnLater) {
  ASSERT_TRUE(TrainWhole().ok());
  setenv("AWS_MAX_ATTEMPTS", "2", 1);
  callbacks_.progress = [&](const v1::Progress& progress) {
    if (progress.phase() == "checkpoint" && progress.step() == 4) gateway_->End();
  };
  const absl::Status gone = Train("run", 2).status();
  EXPECT_TRUE(absl::IsUnavailable(gone) || absl::IsAborted(gone)) << gone;
  EXPECT_THAT(std::string(gone.message()), HasSubstr(absl::StrCat(" at ", gateway_->endpoint(), "/bucket")));
  const absl::Status still = Train("run", 2).status();
  EXPECT_TRUE(absl::IsUnavailable(still)) << still;
  callbacks_.progress = nullptr;
  ASSERT_EQ(gateway_->StartAgain(), absl::OkStatus());
  const auto resumed = Train("run", 2);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_GE(*resumed->resumed_from, 2);
  EXPECT_LE(*resumed->resumed_from, 4) << "it may have been saved before the store went";
  EXPECT_EQ(Losses("run"), Losses("whole"));
}

// Before a rank is started.
TEST_F(ObjectStoreTest, WhatTheStoreRefusesIsSaidAtOnce) {
  recipe().mutable_checkpoint()->set_folder("s3://no-such-bucket/runs");
  const absl::Status bucket = Train("run", 2).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(bucket)) << bucket;
  EXPECT_EQ(GetFieldViolation(bucket)->field(), "checkpoint.folder");
  recipe().mutable_checkpoint()->set_folder(kUrl);
  objectstore::UseKeys(objectstore::kTestAccess, "another");
  const absl::Status keys = Train("run", 2).status();
  EXPECT_TRUE(absl::IsPermissionDenied(keys)) << keys;
  EXPECT_THAT(std::string(keys.message()), HasSubstr("SignatureDoesNotMatch"));
  unsetenv("AWS_SECRET_ACCESS_KEY");
  const absl::Status none = Train("run", 2).status();
  EXPECT_TRUE(absl::IsPermissionDenied(none)) << none;
  EXPECT_EQ(GetFieldViolation(none)->field(), "AWS_SECRET_ACCESS_KEY");
  recipe().mutable_checkpoint()->set_folder("checkpoints");
  EXPECT_EQ(GetFieldViolation(Train("run", 2).status())->field(), "checkpoint.folder");
  EXPECT_THAT(pids_, IsEmpty());
}

TEST_F(ObjectStoreTest, ANewBeginningPutsAllAside) {
  recipe().mutable_checkpoint()->set_folder(kUrl);
  TrainUntil("run", 3);
  const std::vector<int64_t> saved = checkpoint::ListCheckpoints(kUrl).value();
  request_.fresh = true;
  const auto outcome = Train("run", 2);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->resumed_from, std::nullopt);
  EXPECT_EQ(*checkpoint::ListCheckpoints(absl::StrCat(kUrl, "/before-attempt-2")), saved);
  EXPECT_THAT(*checkpoint::ListCheckpoints(kUrl), ElementsAre(2, 4, 6));
}

// Each of two hosts has a disk of its own at the path of the run's folder.
TEST_F(ObjectStoreTest, HostsWithoutASharedFolderTrainWhatOneDoes) {
  ASSERT_TRUE(TrainWhole().ok());
  const std::string run = folder() + "/run";
  std::filesystem::create_directories(run);
  const auto listener = launch::ListenOnLoopback(0);
  ASSERT_TRUE(listener.ok()) << listener.status();
  close(listener->fd);
  request_.gang = launch::GangPlace{.hosts = 2, .host = 0, .address = "127.0.0.1", .port = listener->port, .device = "cpu"};
  const pid_t second = fork();
  if (second == 0) {
    request_.gang->host = 1;
    const absl::Status mounted = checkpoint::MountSmallFileSystem(run, 32 << 20);
    if (!mounted.ok()) std::fprintf(stderr, "%s\n", std::string(mounted.message()).c_str());
    const bool trained = mounted.ok() && Train("run", 1).ok();
    _exit(trained && std::filesystem::exists(run + "/logs/rank-1.log") && !std::filesystem::exists(run + "/run.json") ? 0 : 1);
  }
  const auto outcome = Train("run", 1);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  int status = -1;
  ASSERT_EQ(waitpid(second, &status, 0), second);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Losses("run"), Losses("whole"));
  EXPECT_THAT(*checkpoint::ListCheckpoints(kUrl), ElementsAre(2, 4, 6));
}

// No file of the run, and nothing that it said, has a key.
TEST_F(ObjectStoreTest, KeysAreWrittenNowhere) {
  recipe().mutable_checkpoint()->set_folder(kUrl);
  ASSERT_TRUE(Train("run", 2).ok());
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder() + "/run")) {
    if (!entry.is_regular_file()) continue;
    const auto contents = checkpoint::ReadFile(entry.path().string());
    ASSERT_TRUE(contents.ok()) << contents.status();
    EXPECT_EQ(contents->find(objectstore::kTestSecret), std::string::npos) << entry.path();
    EXPECT_EQ(contents->find(objectstore::kTestAccess), std::string::npos) << entry.path();
  }
}

}  // namespace
}  // namespace legoai::train

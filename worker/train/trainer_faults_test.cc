// What real trainer processes do when ranks end, disks are full, checkpoints are damaged, and verdicts on them come late.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/checkpoint/directory.h"
#include "core/checkpoint/files.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/testing/small_file_system.h"
#include "core/process/run_directory.h"
#include "worker/launch/run_training.h"
#include "worker/train/step_trace.h"
#include "worker/train/testing/trainer_run.h"

namespace legoai::train {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class TrainerFaultsTest : public testing::TrainerRun {};
class FaultsInBothModes : public testing::TrainerRunInBothModes {};
INSTANTIATE_TEST_SUITE_P(Modes, FaultsInBothModes, testing::BothModes(), testing::ModeName);

// As the service restarts a job: each attempt in a folder of its own, from what an earlier one has written, in another layout.
TEST_P(FaultsInBothModes, ALeasedAttemptGoesOnFromAnothersFolder) {
  recipe().mutable_checkpoint()->set_interval(2);
  recipe().mutable_checkpoint()->set_last_save_in_hf(true);
  ASSERT_TRUE(Train("whole", 2).ok());
  // While the ranks wait for the verdict on step 2, they are asked to stop.
  recipe().mutable_checkpoint()->set_max_pending_commits(0);
  callbacks_.commit = [this, asked = false](int64_t step,
                                            const std::vector<std::string>&) mutable -> std::optional<absl::Status> {
    if (step != 2 || std::exchange(asked, true)) return absl::OkStatus();
    stop_.Request(/*save=*/true);
    return std::nullopt;
  };
  request_.lease = launch::LeasedAttempt{.attempt = 1, .epoch = 5};
  const auto stopped = Train("epoch-5", 2).value();
  EXPECT_EQ(stopped.cause, v1::Exit::STOPPED);
  EXPECT_EQ(stopped.step, 3);
  callbacks_.commit = nullptr;
  request_.lease = {.attempt = 2, .epoch = 6, .resume_step = stopped.step, .resume_directory = Checkpoints("epoch-5")};
  request_.recipe.mutable_training()->set_local_batch_size(4);
  const auto resumed = Train("epoch-6", 1).value();
  EXPECT_THAT(*checkpoint::ListCheckpoints(Checkpoints("epoch-6")), Not(Contains(stopped.step)));
  auto losses = Losses("epoch-5");
  losses.merge(Losses("epoch-6"));
  const auto whole = Losses("whole");
  ASSERT_EQ(losses.size(), whole.size());
  for (const auto& [step, loss] : whole) EXPECT_NEAR(losses.at(step), loss, 1e-5) << step;

  // All steps are done and committed, and the export was cut short: it is made up for.
  ASSERT_FALSE(resumed.hf_directory.empty());
  std::filesystem::remove_all(resumed.hf_directory);
  request_.lease = {.attempt = 3, .epoch = 7, .resume_step = 6, .resume_directory = Checkpoints("epoch-6")};
  const auto exported = Train("epoch-7", 1).value();
  EXPECT_EQ(exported.cause, v1::Exit::FINISHED);
  EXPECT_EQ(exported.step, 6);
  EXPECT_EQ(exported.hf_directory, folder() + "/epoch-7/hf");
  EXPECT_TRUE(std::filesystem::exists(exported.hf_directory + "/model.safetensors"));
  EXPECT_TRUE(checkpoint::ListCheckpoints(Checkpoints("epoch-7"))->empty());
}

// However late the verdicts come, the training is the same to the last bit; and at every moment nothing is found that was not
// committed, nothing removed that may be needed, and no more pending than may be.
TEST_P(FaultsInBothModes, VerdictsThatComeLateChangeNothing) {
  constexpr int64_t kSteps = 40, kMost = 3, kKeep = 2;
  recipe().mutable_training()->set_steps(kSteps);
  recipe().mutable_checkpoint()->set_interval(1);
  recipe().mutable_checkpoint()->set_keep_latest_k(0);
  recipe().mutable_checkpoint()->set_last_save_in_hf(true);
  recipe().mutable_checkpoint()->set_max_pending_commits(kMost);
  ASSERT_TRUE(Train("whole", 2).ok());

  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  std::map<int64_t, absl::Time> due;
  std::vector<int64_t> committed;
  std::set<int64_t> denied;
  size_t most_pending = 0;
  callbacks_.commit = [&](int64_t step, const std::vector<std::string>& digests) -> std::optional<absl::Status> {
    EXPECT_EQ(digests.size(), 2u);
    const auto [at, fresh] = due.try_emplace(step, absl::Now() + absl::Milliseconds(random() % 400));
    most_pending = std::max(most_pending, due.size());
    for (const auto& [pending, time] : due) EXPECT_TRUE(checkpoint::IsPrepared(Checkpoints("late"), pending)) << pending;
    const auto found = *checkpoint::ListCheckpoints(Checkpoints("late"));
    for (const int64_t one : found) EXPECT_THAT(committed, Contains(one));
    for (size_t i = committed.size() - std::min<size_t>(committed.size(), kKeep); i < committed.size(); ++i) {
      // Committed a moment ago, it may not have its name yet.
      EXPECT_TRUE(checkpoint::IsPrepared(Checkpoints("late"), committed[i]) ||
                  *checkpoint::IsCommitted(Checkpoints("late"), committed[i]))
          << committed[i] << " at step " << step;
    }
    if (step != due.begin()->first || absl::Now() < at->second) return std::nullopt;
    due.erase(at);
    if (step < kSteps && random() % 8 == 0) {
      denied.insert(step);
      return absl::AbortedError("by lot");
    }
    committed.push_back(step);
    return absl::OkStatus();
  };
  recipe().mutable_checkpoint()->set_keep_latest_k(kKeep);
  request_.lease = launch::LeasedAttempt{.attempt = 1, .epoch = 5};
  const auto late = Train("late", 2).value();
  EXPECT_EQ(late.cause, v1::Exit::FINISHED);
  EXPECT_THAT(due, IsEmpty());
  EXPECT_EQ(committed.size() + denied.size(), static_cast<size_t>(kSteps));
  EXPECT_GT(most_pending, 1u) << "no verdict came late";
  EXPECT_LE(most_pending, static_cast<size_t>(kMost) + 1) << "one is waited for";
  EXPECT_EQ(Losses("late"), Losses("whole"));
  const auto kept = checkpoint::ListCheckpoints(Checkpoints("late")).value();
  EXPECT_THAT(kept, ElementsAre(*(committed.end() - 2), committed.back()));
  for (const int64_t step : denied) EXPECT_FALSE(std::filesystem::exists(checkpoint::StepDirectory(Checkpoints("late"), step)));
  for (const int64_t step : kept) {
    for (const char* file : {"/rank-00000.bin", "/rank-00001.bin"}) {
      const auto a = checkpoint::ReadFile(checkpoint::StepDirectory(Checkpoints("late"), step) + file);
      const auto b = checkpoint::ReadFile(checkpoint::StepDirectory(Checkpoints("whole"), step) + file);
      ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
      EXPECT_TRUE(*a == *b) << step << file;
    }
  }
  EXPECT_EQ(late.hf_directory, folder() + "/late/hf");
}

// What is denied in the end is not exported, and the training is over all the same.
TEST_P(FaultsInBothModes, ADenialAfterTheLastStepKeepsTheExportBack) {
  recipe().mutable_checkpoint()->set_interval(3);
  recipe().mutable_checkpoint()->set_last_save_in_hf(true);
  bool asked = false;
  callbacks_.commit = [&](int64_t step, const std::vector<std::string>&) -> std::optional<absl::Status> {
    if (step == 3) return absl::OkStatus();
    if (std::exchange(asked, true)) return absl::AbortedError("too late");
    return std::nullopt;
  };
  request_.lease = launch::LeasedAttempt{.attempt = 1, .epoch = 5};
  const auto outcome = Train("run", 2).value();
  EXPECT_EQ(outcome.cause, v1::Exit::FINISHED);
  EXPECT_EQ(outcome.hf_directory, "");
  EXPECT_THAT(*checkpoint::ListCheckpoints(Checkpoints("run")), ElementsAre(3));
  EXPECT_FALSE(std::filesystem::exists(checkpoint::StepDirectory(Checkpoints("run"), 6)));
  EXPECT_THAT(logs_, Contains(HasSubstr("step 6 was denied: ABORTED: too late")));
  EXPECT_THAT(logs_, Contains(HasSubstr("no Hugging Face folder is written")));
}

// Only reading every byte shows it: a rank says so, and the ranks are started again from the one before.
TEST_P(FaultsInBothModes, AFlippedBitCostsOneCheckpointAndNotTheRun) {
  recipe().mutable_checkpoint()->set_interval(2);
  recipe().mutable_training()->set_steps(9);
  ASSERT_TRUE(Train("whole", 2).ok());
  std::filesystem::copy(folder() + "/whole", folder() + "/run", std::filesystem::copy_options::recursive);
  for (const int64_t step : {8, 9}) std::filesystem::remove_all(checkpoint::StepDirectory(Checkpoints("run"), step));
  const std::string torn = checkpoint::StepDirectory(Checkpoints("run"), 6) + "/rank-00001.bin";
  std::string bytes = *checkpoint::ReadFile(torn);
  bytes[bytes.size() / 2] ^= 1;
  ASSERT_TRUE(checkpoint::WriteFile(torn, bytes).ok());
  const auto outcome = Train("run", 2).value();
  EXPECT_EQ(outcome.resumed_from, 4);
  EXPECT_EQ(Losses("run"), Losses("whole"));
  EXPECT_THAT(*checkpoint::ListCheckpoints(Checkpoints("run")), ElementsAre(2, 4, 6, 8, 9));
  EXPECT_TRUE(std::filesystem::exists(Checkpoints("run") + "/step-6.damaged"));
  const v1::RunAttempt attempt = (*launch::ReadRun(folder() + "/run"))->attempts(1);
  ASSERT_EQ(attempt.damaged_size(), 1);
  EXPECT_THAT(attempt.damaged(0).detail(), HasSubstr("rank-00001.bin"));
}

// The last checkpoint cannot be read back for the export: the one before it is gone on from, also where all was begun anew.
TEST_P(FaultsInBothModes, WhatCannotBeExportedIsTrainedAgainFromTheCheckpointBefore) {
  recipe().mutable_checkpoint()->set_interval(2);
  recipe().mutable_checkpoint()->set_last_save_in_hf(true);
  request_.fresh = true;
  bool flipped = false;
  callbacks_.commit = [&](int64_t step, const std::vector<std::string>&) -> std::optional<absl::Status> {
    if (step == 6 && !std::exchange(flipped, true)) {
      const std::string path = checkpoint::StepDirectory(Checkpoints("run"), 6) + "/rank-00000.bin";
      std::string bytes = *checkpoint::ReadFile(path);
      for (size_t i = 0; i < bytes.size(); i += 64) bytes[i] ^= 1;  // the export reads the weights alone
      EXPECT_TRUE(checkpoint::WriteFile(path, bytes).ok());
    }
    return absl::OkStatus();
  };
  const auto outcome = Train("run", 1).value();
  EXPECT_TRUE(flipped);
  EXPECT_EQ(outcome.cause, v1::Exit::FINISHED);
  EXPECT_EQ(outcome.resumed_from, 4);
  EXPECT_TRUE(std::filesystem::exists(folder() + "/run/checkpoints/step-6.damaged"));
  EXPECT_TRUE(std::filesystem::exists(launch::HuggingFacePath(folder() + "/run") + "/model.safetensors"));
}

// The ranks keep what they have learned, the half-written step is removed, and with room again all goes on.
TEST_P(FaultsInBothModes, ASaveThatDoesNotFitWaitsForRoom) {
  recipe().mutable_comm()->set_trace_buf_size(10);
  recipe().mutable_checkpoint()->set_interval(3);
  ASSERT_TRUE(Train("whole", 2).ok());
  std::filesystem::create_directories(folder() + "/run");
  EXPECT_TRUE(checkpoint::PassesInChild([&] {
    ASSERT_EQ(checkpoint::MountSmallFileSystem(folder() + "/run", 2 << 20), absl::OkStatus());
    const std::string filler = folder() + "/run/filler";
    bool filled = false;
    std::vector<std::string> waits;
    callbacks_.progress = [&](const v1::Progress& progress) {
      if (progress.step() == 2 && !std::exchange(filled, true)) {
        std::ofstream file(filler, std::ios::binary);
        for (const std::string block(4096, 'x'); file.write(block.data(), block.size()) && file.flush();) {
        }
      }
      if (progress.waits().empty()) return;
      waits.push_back(progress.waits());
      EXPECT_FALSE(std::filesystem::exists(checkpoint::StepDirectory(Checkpoints("run"), 3)));
      std::filesystem::remove(filler);
    };
    ASSERT_EQ(Train("run", 2).status(), absl::OkStatus());
    ASSERT_FALSE(waits.empty());
    EXPECT_THAT(waits[0], HasSubstr(" that a checkpoint takes"));
    // Metrics of the steps before could not be kept.
    for (const int64_t step : {5, 6}) EXPECT_EQ(Losses("run").at(step), Losses("whole").at(step)) << step;
    EXPECT_THAT(*checkpoint::ListCheckpoints(Checkpoints("run")), ElementsAre(3, 6));
  }));
}

// The disk is full of checkpoints that wait for the server's word: once it has come, older ones make room, and all goes on.
TEST_F(TrainerFaultsTest, VerdictsThatComeWhileASaveWaitsForRoomMakeIt) {
  recipe().mutable_comm()->set_trace_buf_size(10);
  recipe().mutable_training()->set_steps(30);
  recipe().mutable_checkpoint()->set_interval(1);
  recipe().mutable_checkpoint()->set_keep_latest_k(1);
  recipe().mutable_checkpoint()->set_max_pending_commits(100);
  request_.lease = launch::LeasedAttempt{.attempt = 1, .epoch = 5};
  std::filesystem::create_directories(folder() + "/run");
  EXPECT_TRUE(checkpoint::PassesInChild([&] {
    ASSERT_EQ(checkpoint::MountSmallFileSystem(folder() + "/run", 2 << 20), absl::OkStatus());
    bool full = false;
    callbacks_.progress = [&](const v1::Progress& progress) { full = full || !progress.waits().empty(); };
    callbacks_.commit = [&](int64_t, const std::vector<std::string>&) -> std::optional<absl::Status> {
      return full ? std::optional(absl::OkStatus()) : std::nullopt;
    };
    ASSERT_EQ(Train("run", 2).status(), absl::OkStatus());
    EXPECT_TRUE(full);
    EXPECT_THAT(*checkpoint::ListCheckpoints(Checkpoints("run")), ElementsAre(30));
  }));
}

// testing/measurement_faults.cc says which steps cannot be measured, and why.
TEST_F(TrainerFaultsTest, AStepThatCannotBeMeasuredIsTrainedAllTheSame) {
  recipe().mutable_checkpoint()->set_enable_checkpoint(false);
  recipe().mutable_parallelism()->set_data_parallel_shard_degree(2);
  for (const int64_t step : {3, 4, 5}) recipe().mutable_metrics()->add_trace_steps(step);
  ASSERT_TRUE(Train("whole", 2).ok());
  EXPECT_THAT(logs_, Not(Contains(HasSubstr("could not be timed"))));
  request_.trainer = "worker/train/trainer_with_measurement_faults";
  const auto outcome = Train("run", 2).value();
  EXPECT_EQ(outcome.cause, v1::Exit::FINISHED);
  EXPECT_EQ(Losses("run"), Losses("whole"));
  ASSERT_EQ(outcome.metrics.size(), 6u);
  for (const v1::StepMetrics& metrics : outcome.metrics) {
    const bool unmeasured = metrics.step() == 2 || metrics.step() == 3;
    EXPECT_EQ(metrics.ranks_size(), unmeasured ? 0 : 2) << metrics.DebugString();
    EXPECT_EQ(metrics.has_exposed_communication_share(), !unmeasured);
    EXPECT_GT(metrics.step_seconds(), 0);
    EXPECT_GT(metrics.tokens_per_second(), 0);
  }
  const auto told = [this](const std::string& text) {
    return std::count_if(logs_.begin(), logs_.end(), [&](const std::string& line) { return line.find(text) != line.npos; });
  };
  EXPECT_EQ(told("step 2 was trained and could not be timed (a step ended while it still timed a wait)"), 2) << "each rank";
  EXPECT_EQ(told("could not be timed"), 2) << "once";
  EXPECT_EQ(told("no trace of step 3: a step ended while it still timed a wait"), 1);
  EXPECT_EQ(told("no trace of step 4: "), 1);
  for (const int64_t step : {3, 4, 5}) EXPECT_EQ(std::filesystem::exists(StepTracePath(folder() + "/run", step, 0)), step == 5);
}

TEST_P(FaultsInBothModes, ARankThatIsKilledEndsAllAndIsNamed) {
  recipe().mutable_training()->set_steps(100000);
  recipe().mutable_checkpoint()->set_enable_checkpoint(false);
  SignalRank1(SIGKILL, /*step=*/3);
  const auto outcome = Train("run", 2);
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(outcome.status().message(), HasSubstr("rank 1"));
  EXPECT_THAT(outcome.status().message(), HasSubstr("was killed by signal 9"));
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(std::filesystem::exists(launch::FlightRingPath(folder() + "/run", rank) + ".json")) << rank;
  }
}

TEST_P(FaultsInBothModes, AStoppedRankIsFound) {
  recipe().mutable_training()->set_steps(100000);
  recipe().mutable_comm()->set_train_timeout_seconds(60);
  recipe().mutable_checkpoint()->set_enable_checkpoint(false);
  SignalRank1(SIGSTOP, /*step=*/3);
  const auto outcome = Train("run", 2);
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(outcome.status().message(), HasSubstr("rank 1"));
  EXPECT_THAT(outcome.status().message(), HasSubstr("the process is stopped (SIGSTOP)"));
}

// No room that is made helps: no file may grow beyond a few KiB.
TEST_F(TrainerFaultsTest, AFileThatMayNotGrowFailsAndKeepsWhatWasSaved) {
  recipe().mutable_checkpoint()->set_interval(3);
  ASSERT_TRUE(Train("run", 2).ok());
  recipe().mutable_training()->set_steps(9);
  recipe().mutable_comm()->set_trace_buf_size(10);
  auto limit = std::make_optional<checkpoint::FileSizeLimit>(50'000);
  const auto outcome = Train("run", 2);
  limit.reset();
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kOutOfRange) << outcome.status();
  EXPECT_THAT(*checkpoint::ListCheckpoints(Checkpoints("run")), ElementsAre(3, 6));
  const auto again = Train("run", 2).value();
  EXPECT_EQ(again.resumed_from, 6);
  EXPECT_EQ(again.step, 9);
}

TEST_F(TrainerFaultsTest, ATornCheckpointIsRefusedByName) {
  ASSERT_TRUE(Train("run", 1).ok());
  const std::string file = checkpoint::StepDirectory(Checkpoints("run"), 6) + "/rank-00000.bin";
  ASSERT_TRUE(std::filesystem::exists(file));
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(100).put('x');
  recipe().mutable_training()->set_steps(9);
  const auto outcome = Train("run", 1);
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kDataLoss) << outcome.status();
  EXPECT_THAT(outcome.status().message(), HasSubstr("rank-00000.bin"));
}

}  // namespace
}  // namespace legoai::train

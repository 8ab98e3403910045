// Each fault is put into a history and a folder without one, which break no rule.
#include "tests/scenarios/checkpoint_checker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>

#include "core/checkpoint/chunks.h"
#include "core/checkpoint/manifest.h"
#include "tests/scenarios/whole_history.h"

namespace legoai::scenarios {
namespace {

namespace fs = std::filesystem;

void ExpectBroken(const std::string& rule, const std::function<void(JobHistory*)>& spoil) {
  JobHistory history = Whole();
  spoil(&history);
  EXPECT_TRUE(Says(CheckCommits(history), rule)) << rule;
}

TEST(CommitsTest, FaultsAreFound) {
  EXPECT_EQ(CheckCommits(Whole()), std::vector<std::string>());
  ExpectBroken("committed in order", [](auto* h) { h->checkpoints[4].set_step(40); });
  ExpectBroken("committed in order", [](auto* h) { std::swap(h->checkpoints[0], h->checkpoints[1]); });
  ExpectBroken("committed in order", [](auto* h) { h->checkpoints[4].set_epoch(1); });
  // A zombie: of the old epoch, after the new one began; then of attempts that do not fit or are none.
  ExpectBroken("by the attempt under way: step 30", [](auto* h) { h->checkpoints[2].set_time_us(201); });
  ExpectBroken("by the attempt under way: step 40", [](auto* h) { h->checkpoints[3].set_time_us(199); });
  ExpectBroken("by the attempt under way: step 60", [](auto* h) { h->checkpoints[5].set_time_us(2'000'000); });
  ExpectBroken("by the attempt under way", [](auto* h) { h->checkpoints[2].set_attempt(2); });
  ExpectBroken("by the attempt under way", [](auto* h) { h->checkpoints[5].set_attempt(3); });
  ExpectBroken("by the attempt under way", [](auto* h) { h->checkpoints[5].set_attempt(0); });
  ExpectBroken("goes on from the last committed step: attempt 2", [](auto* h) { h->attempts[1].set_resume_step(20); });
  ExpectBroken("goes on from the last committed step: attempt 2", [](auto* h) { h->attempts[1].clear_resume_step(); });
  ExpectBroken("goes on from the last committed step: attempt 1", [](auto* h) { h->attempts[0].set_resume_step(10); });
  ExpectBroken("the committed step is that", [](auto* h) { h->job.set_committed_step(70); });
  ExpectBroken("has saved its last step", [](auto* h) {
    h->checkpoints.pop_back();
    h->job.set_committed_step(50);
  });
}

// The first attempt stopped after step 30, and saved it.
TEST(StopsTest, FaultsAreFound) {
  JobHistory whole = Whole();
  whole.attempts[0].set_state("stopped");
  whole.attempts[0].set_last_step(30);
  whole.attempts[0].set_saved_step(30);
  whole.transitions[6].set_to(v1::QUEUED);
  EXPECT_EQ(CheckStops(whole), std::vector<std::string>());
  const auto expect_broken = [&](const std::string& rule, const std::function<void(JobHistory*)>& spoil) {
    JobHistory history = whole;
    spoil(&history);
    EXPECT_TRUE(Says(CheckStops(history), rule)) << rule;
  };
  expect_broken("what a stop saves is the last step", [](auto* h) { h->attempts[0].set_last_step(31); });
  expect_broken("what a stop saves is the last step", [](auto* h) { h->attempts[0].set_state("failed"); });
  expect_broken("what a stop saves is committed", [](auto* h) { h->checkpoints.erase(h->checkpoints.begin() + 2); });
  expect_broken("what a stop saves is committed", [](auto* h) { h->checkpoints[2].set_epoch(2); });
  expect_broken("no step is done twice", [](auto* h) { h->attempts[1].set_resume_step(20); });
  expect_broken("only what is lost is a restart", [](auto* h) { h->job.set_restarts(1); });
  expect_broken("only what is lost is a restart", [](auto* h) { h->transitions[6].set_to(v1::RESTARTING); });
  JobHistory damaged = whole;
  damaged.checkpoints[2].set_damage("torn");
  damaged.attempts[1].set_resume_step(20);
  EXPECT_EQ(CheckStops(damaged), std::vector<std::string>());
}

// Steps 20 and 30 of the first epoch were found damaged, one after the other, and are saved again by the attempt that could
// begin.
TEST(CommitsTest, StepsBackAreOverDamagedCheckpointsAlone) {
  JobHistory whole = Whole();
  whole.attempts[1].set_resume_step(10);
  for (const int i : {1, 2}) {
    v1::Checkpoint again = whole.checkpoints[i];
    again.set_epoch(2), again.set_attempt(2), again.set_time_us(whole.checkpoints[3].time_us());
    whole.checkpoints[i].set_damage("torn");
    whole.checkpoints[i].set_damage_time_us(whole.attempts[1].start_time_us());
    whole.checkpoints.push_back(again);
  }
  std::sort(whole.checkpoints.begin(), whole.checkpoints.end(),
            [](const auto& a, const auto& b) { return std::pair(a.step(), a.epoch()) < std::pair(b.step(), b.epoch()); });
  whole.job.set_steps_back(2);
  EXPECT_EQ(CheckCommits(whole), std::vector<std::string>());
  JobHistory spoiled = whole;
  spoiled.job.set_steps_back(1);
  EXPECT_TRUE(Says(CheckCommits(spoiled), "counts 1, and damaged are 2"));
  spoiled = whole;
  spoiled.checkpoints[1].clear_damage(), spoiled.checkpoints[1].clear_damage_time_us();
  EXPECT_TRUE(Says(CheckCommits(spoiled), "committed in order: step 20 of epoch 2"));
  EXPECT_TRUE(Says(CheckCommits(spoiled), "attempt 2 of"));
  spoiled = whole;
  spoiled.checkpoints[1].set_damage_time_us(whole.attempts[1].start_time_us() + 1);
  EXPECT_TRUE(Says(CheckCommits(spoiled), "from 10, and 20 was committed"));
}

// The step that the first attempt saved last turned out damaged: the second went on from the one before, and saved it anew.
JobHistory SteppedBack() {
  JobHistory history = Whole();
  v1::Checkpoint& damaged = history.checkpoints[2];
  damaged.set_damage("a bit");
  damaged.set_damage_time_us(190);
  history.job.set_steps_back(1);
  history.attempts[1].set_resume_step(20);
  history.checkpoints[3].set_step(30);
  return history;
}

TEST(CommitsTest, WhatWasFoundDamagedIsPassedOver) {
  EXPECT_EQ(CheckCommits(SteppedBack()), std::vector<std::string>());
  const auto expect = [](const std::string& rule, const std::function<void(JobHistory*)>& spoil) {
    JobHistory history = SteppedBack();
    spoil(&history);
    EXPECT_TRUE(Says(CheckCommits(history), rule)) << rule;
  };
  expect("attempt 2 of projects/default/jobs/A from 30", [](auto* h) { h->attempts[1].set_resume_step(30); });
  expect("attempt 2 of projects/default/jobs/A from 10", [](auto* h) { h->attempts[1].set_resume_step(10); });
  expect("attempt 2 of projects/default/jobs/A from 20, and 30",
         [](auto* h) { h->checkpoints[2].set_damage_time_us(201); });  // it was not known yet
  expect("committed in order", [](auto* h) { h->checkpoints[2].clear_damage_time_us(); });
  expect("committed in order", [](auto* h) { std::swap(h->checkpoints[2], h->checkpoints[3]); });
  expect("the committed step is that", [](auto* h) { h->checkpoints[5].set_damage("a bit"); });
}

TEST(CommitsTest, ARetryGoesOnFromTheJobThatItTriesAgain) {
  JobHistory history = Whole();
  history.job.mutable_starts_from()->set_step(5);
  EXPECT_TRUE(Says(CheckCommits(history), "attempt 1 of projects/default/jobs/A from 0, and 5 was committed"));
  history.attempts[0].set_resume_step(5);
  EXPECT_EQ(CheckCommits(history), std::vector<std::string>());
  history.attempts[0].set_resume_step(2);
  EXPECT_TRUE(Says(CheckCommits(history), "attempt 1 of projects/default/jobs/A from 2"));
  history.job.set_steps_back(1);  // an earlier one of that job took its place
  EXPECT_EQ(CheckCommits(history), std::vector<std::string>());
}

TEST(CommitsTest, ARetryPassesOverWhatAnotherRetryHasFoundDamaged) {
  JobHistory history = Whole();
  history.job.mutable_starts_from()->set_step(5);
  history.attempts[0].set_resume_step(2);
  history.start = history.job.starts_from();
  EXPECT_TRUE(Says(CheckCommits(history), "attempt 1 of projects/default/jobs/A from 2"));
  history.start->set_damage_time_us(history.attempts[0].start_time_us() + 1);  // it was not known yet
  EXPECT_TRUE(Says(CheckCommits(history), "attempt 1 of projects/default/jobs/A from 2"));
  history.start->set_damage_time_us(history.attempts[0].start_time_us());
  EXPECT_EQ(CheckCommits(history), std::vector<std::string>());
  history.attempts[0].set_resume_step(7);
  EXPECT_TRUE(Says(CheckCommits(history), "attempt 1 of projects/default/jobs/A from 7"));
}

class CheckpointsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(root_);
    for (v1::Checkpoint& checkpoint : history_.checkpoints) {
      checkpoint.set_directory(root_);
      if (checkpoint.epoch() == 2) Save(&checkpoint, 4 * checkpoint.step());  // of the first epoch nothing is left
    }
  }

  void Save(v1::Checkpoint* checkpoint, int64_t next_sample) {
    const std::string directory = checkpoint::StepDirectory(root_, checkpoint->step());
    fs::create_directories(directory);
    std::vector<float> numbers(24);
    std::iota(numbers.begin(), numbers.end(), checkpoint->step());
    auto writer = checkpoint::ChunkWriter::Create(directory, 0);
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer->Append("a", v1::FLOAT32, {6, 4}, {{0, 0}, {3, 4}}, numbers.data()).ok());
    ASSERT_TRUE(writer->Append("a", v1::FLOAT32, {6, 4}, {{3, 0}, {3, 4}}, numbers.data() + 12).ok());
    ASSERT_TRUE(writer->Finish().ok());
    v1::CheckpointManifest manifest;
    manifest.set_step(checkpoint->step());
    manifest.set_next_sample(next_sample);
    ASSERT_TRUE(checkpoint::CollectChunks(directory, 1, manifest).ok());
    const auto digest = checkpoint::PrepareManifest(root_, manifest);
    ASSERT_TRUE(digest.ok()) << digest.status();
    checkpoint->set_digest(*digest);
    ASSERT_TRUE(checkpoint::CommitManifest(root_, checkpoint->step()).ok());
  }

  std::string File(int64_t step, const std::string& name) { return checkpoint::StepDirectory(root_, step) + "/" + name; }
  std::string Manifest(int64_t step) { return File(step, "manifest.pb"); }
  // One bit of the data, the size stays.
  void Flip(int64_t step) {
    std::fstream file(File(step, "rank-00000.bin"), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(60);
    const char old = static_cast<char>(file.get());
    file.seekp(60);
    file.put(static_cast<char>(old ^ 1));
  }
  std::vector<std::string> Check() { return CheckCheckpoints(history_, 2, root_ + "/scratch"); }

  const std::string root_ = ::testing::TempDir() + "/checkpoints";
  JobHistory history_ = Whole();
};

TEST_F(CheckpointsTest, TheLastOfTheNewestEpochAreDemanded) {
  EXPECT_EQ(Check(), std::vector<std::string>());
  fs::remove_all(checkpoint::StepDirectory(root_, 40));
  EXPECT_EQ(Check(), std::vector<std::string>());
  history_.checkpoints[4].set_remove_time_us(7);
  EXPECT_TRUE(Says(Check(), "is listed: step 50 of epoch 2"));
  history_.checkpoints[4].clear_remove_time_us();
  fs::remove(Manifest(50));
  EXPECT_TRUE(Says(Check(), "step 50 of epoch 2"));
}

TEST_F(CheckpointsTest, EveryByteIsRead) {
  for (const int64_t step : {50, 60}) {
    Flip(step);
    EXPECT_TRUE(Says(Check(), "step " + std::to_string(step))) << step;
    Flip(step);
    EXPECT_EQ(Check(), std::vector<std::string>());
    fs::resize_file(File(step, "rank-00000.bin"), 95);
    EXPECT_TRUE(Says(Check(), "step " + std::to_string(step))) << step;
    Save(&history_.checkpoints[step / 10 - 1], 4 * step);
  }
}

TEST_F(CheckpointsTest, WhatIsKnownToBeDamagedNeedNotLoad) {
  Flip(60);
  fs::remove_all(checkpoint::StepDirectory(root_, 50));
  EXPECT_TRUE(Says(Check(), "step 50"));
  for (const int i : {4, 5}) history_.checkpoints[i].set_damage("torn");
  EXPECT_EQ(Check(), std::vector<std::string>());
}

TEST_F(CheckpointsTest, AnotherStateThanWasCommittedIsFound) {
  v1::Checkpoint copy = history_.checkpoints[4];
  Save(&copy, 4 * 50 + 1);  // whole, but a sample was left out
  EXPECT_TRUE(Says(Check(), "is not the one that was committed"));
  history_.checkpoints[4] = copy;
  EXPECT_TRUE(Says(Check(), "goes on with sample 201 instead of 200"));
  Save(&history_.checkpoints[4], 4 * 50);
  EXPECT_EQ(Check(), std::vector<std::string>());
  history_.checkpoints[4].clear_digest();
  EXPECT_TRUE(Says(Check(), "is not the one that was committed"));
}

TEST_F(CheckpointsTest, TheVeryLastMayBePreparedAndMustBeWhole) {
  fs::rename(Manifest(60), Manifest(60) + ".tmp");
  EXPECT_EQ(Check(), std::vector<std::string>());
  Flip(60);
  EXPECT_TRUE(Says(Check(), "step 60 of epoch 2"));
  Flip(60);
  std::ofstream(Manifest(60) + ".tmp") << "torn";
  EXPECT_TRUE(Says(Check(), "step 60 of epoch 2"));
  fs::remove_all(checkpoint::StepDirectory(root_, 60));
  EXPECT_TRUE(Says(Check(), "step 60 of epoch 2"));
}

// Trainers go on while the server is away, and it commits what they left in order.
TEST_F(CheckpointsTest, TheLastInARowMayBePreparedAndNoneBeforeOneThatIsInItsPlace) {
  for (const int64_t step : {60, 50}) fs::rename(Manifest(step), Manifest(step) + ".tmp");
  EXPECT_EQ(Check(), std::vector<std::string>());
  Flip(50);
  EXPECT_TRUE(Says(Check(), "step 50 of epoch 2"));
  Flip(50);
  fs::rename(Manifest(60) + ".tmp", Manifest(60));
  EXPECT_TRUE(Says(Check(), "step 50 of epoch 2"));
  fs::rename(Manifest(50) + ".tmp", Manifest(50));
  EXPECT_EQ(Check(), std::vector<std::string>());
}

TEST_F(CheckpointsTest, WhatIsListedAndThereMustBeWholeThoughItIsNotDemanded) {
  Flip(40);
  EXPECT_TRUE(Says(Check(), "step 40 of epoch 2"));
  history_.checkpoints[3].set_remove_time_us(7);
  EXPECT_EQ(Check(), std::vector<std::string>());
  history_.checkpoints[3].clear_remove_time_us();
  fs::remove(Manifest(40));  // its removal has begun
  EXPECT_EQ(Check(), std::vector<std::string>());
  Save(&history_.checkpoints[1], 4 * 20);
  EXPECT_EQ(Check(), std::vector<std::string>());
  Flip(20);
  EXPECT_TRUE(Says(Check(), "step 20 of epoch 1"));
}

TEST_F(CheckpointsTest, EarlierEpochsAreDemandedUntilALaterOneHasAsManyAsAreKept) {
  history_.checkpoints.resize(4);  // one of the second epoch
  EXPECT_TRUE(Says(Check(), "step 20 of epoch 1"));
  EXPECT_TRUE(Says(Check(), "step 30 of epoch 1"));
  EXPECT_FALSE(Says(Check(), "step 10 of epoch 1"));
  for (const int i : {1, 2}) Save(&history_.checkpoints[i], 4 * history_.checkpoints[i].step());
  EXPECT_EQ(Check(), std::vector<std::string>());
  history_.checkpoints[2].set_remove_time_us(7);
  EXPECT_TRUE(Says(Check(), "is listed: step 30 of epoch 1"));
  history_.checkpoints[2].clear_remove_time_us();
  EXPECT_TRUE(Says(CheckCheckpoints(history_, 0, root_ + "/scratch"), "step 10 of epoch 1")) << "all are kept";
}

TEST_F(CheckpointsTest, WhatIsSpoiledMustBeFoundBeforeAnybodyGoesOnFromIt) {
  Flip(50);
  Spoiled spoiled = {{checkpoint::StepDirectory(root_, 50), 250}};
  const auto check = [&] { return CheckCheckpoints(history_, 2, root_ + "/scratch", &spoiled); };
  EXPECT_EQ(check(), std::vector<std::string>());
  // A third attempt goes on from it, and saves.
  history_.checkpoints.pop_back();
  v1::Attempt& third = history_.attempts.emplace_back();
  third.set_attempt(3), third.set_epoch(3), third.set_start_time_us(300), third.set_resume_step(50);
  v1::Checkpoint next = history_.checkpoints.back();
  next.set_step(60), next.set_epoch(3), next.set_attempt(3), next.set_time_us(310);
  Save(&next, 4 * 60);
  history_.checkpoints.push_back(next);
  EXPECT_TRUE(Says(check(), "nobody goes on from what does not load: attempt 3 from step 50"));
  spoiled.begin()->second = 305;  // it had been loaded by then
  EXPECT_EQ(check(), std::vector<std::string>());
  spoiled.begin()->second = 250;
  Flip(50);  // the bit was none that counts
  EXPECT_EQ(check(), std::vector<std::string>());
  Flip(50);
  history_.checkpoints[4].set_damage("a bit"), history_.checkpoints[4].set_damage_time_us(290);
  EXPECT_EQ(check(), std::vector<std::string>());
  spoiled.clear();
  EXPECT_TRUE(Says(check(), "nothing is called damaged that is whole: step 50 of epoch 2"));
}

TEST_F(CheckpointsTest, OnlyTheVeryLastMayBePrepared) {
  fs::rename(Manifest(50), Manifest(50) + ".tmp");
  EXPECT_TRUE(Says(Check(), "step 50 of epoch 2"));
}

}  // namespace
}  // namespace legoai::scenarios

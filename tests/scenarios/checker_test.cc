// The checker finds what it is there to find: each fault is put into a history without one.
#include "tests/scenarios/checker.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "worker/checkpoint/manifest.h"

namespace legoai::scenarios {
namespace {

constexpr char kJob[] = "projects/default/jobs/A";

void Add(JobHistory* history, v1::JobState to) {
  v1::Job& job = history->job;
  v1::Transition& transition = history->transitions.emplace_back();
  transition.set_from(job.state());
  transition.set_to(to);
  job.set_version(job.version() + 2);  // one without a row of the history lies between
  transition.set_version(job.version());
  job.set_state(to);
  if (to == v1::LEASED) {
    job.set_epoch(job.epoch() + 1);
    job.set_attempts(job.attempts() + 1);
    v1::Attempt& attempt = history->attempts.emplace_back();
    attempt.set_attempt(job.attempts());
    attempt.set_epoch(job.epoch());
    attempt.set_start_time_us(100 * job.epoch());
    attempt.add_placements()->set_worker("workers/a");
    attempt.mutable_placements(0)->set_slots(2);
  }
  if (to == v1::RESTARTING || IsFinalState(to)) history->attempts.back().set_end_time_us(100 * job.epoch() + 50);
  transition.set_epoch(job.epoch());
}

// Two attempts, then success.
JobHistory Whole() {
  JobHistory history;
  history.job.set_name(kJob);
  history.job.mutable_spec()->mutable_recipe()->mutable_training()->set_steps(40);
  history.job.mutable_progress()->set_step(40);
  for (const v1::JobState state : {v1::SUBMITTED, v1::PLANNING, v1::QUEUED, v1::LEASED, v1::STARTING, v1::RUNNING, v1::RESTARTING,
                                   v1::LEASED, v1::RUNNING, v1::SUCCEEDED}) {
    Add(&history, state);
  }
  return history;
}

StoreView ViewOf(const JobHistory& history) {
  StoreView view;
  view.jobs[kJob] = history;
  view.submissions["request-1"] = kJob;
  view.slots["workers/a"] = 2;
  return view;
}

bool Says(const std::vector<std::string>& rules, const std::string& part) {
  for (const std::string& rule : rules) {
    if (rule.find(part) != std::string::npos) return true;
  }
  return false;
}

void ExpectBroken(const std::string& rule, const std::function<void(JobHistory*)>& spoil) {
  JobHistory history = Whole();
  spoil(&history);
  EXPECT_TRUE(Says(CheckHistory(history), rule)) << rule;
}

TEST(CheckerTest, AWholeHistoryBreaksNoRule) {
  EXPECT_EQ(CheckHistory(Whole()), std::vector<std::string>());
  EXPECT_EQ(CheckSlots(ViewOf(Whole())), std::vector<std::string>());
}

TEST(CheckerTest, FaultsOfAHistoryAreFound) {
  ExpectBroken("versions strictly increase", [](auto* h) { h->transitions[4].set_version(h->transitions[3].version()); });
  ExpectBroken("versions strictly increase", [](auto* h) { h->job.set_version(1); });
  ExpectBroken("transitions follow each other", [](auto* h) { h->transitions.erase(h->transitions.begin() + 4); });
  ExpectBroken("legal table", [](auto* h) { h->transitions[2].set_to(v1::RUNNING); });
  ExpectBroken("leaves a final state", [](auto* h) { Add(h, v1::RESTARTING); });
  ExpectBroken("epochs of leases strictly increase", [](auto* h) { h->transitions[7].set_epoch(1); });
  ExpectBroken("epochs of leases strictly increase", [](auto* h) { h->attempts[1].set_epoch(1); });
  ExpectBroken("runs twice at once", [](auto* h) { h->attempts[0].clear_end_time_us(); });
  ExpectBroken("runs twice at once", [](auto* h) { h->attempts[1].set_start_time_us(120); });
  ExpectBroken("open exactly while", [](auto* h) { h->attempts[1].clear_end_time_us(); });
  ExpectBroken("every lease is an attempt", [](auto* h) { h->attempts.pop_back(); });
  ExpectBroken("that of its last transition", [](auto* h) { h->job.set_state(v1::CANCELLED); });
  ExpectBroken("done all its steps", [](auto* h) { h->job.mutable_progress()->set_step(39); });
  ExpectBroken("no job fails", [](auto* h) { h->job.set_state(v1::FAILED); });
}

TEST(CheckerTest, SlotsThatAreGivenTwiceAreFound) {
  StoreView view = ViewOf(Whole());
  for (const char* name : {"B", "C"}) {
    JobHistory running;
    running.job.set_name(name);
    for (const v1::JobState state : {v1::SUBMITTED, v1::PLANNING, v1::QUEUED, v1::LEASED}) Add(&running, state);
    EXPECT_EQ(CheckSlots(view), std::vector<std::string>());
    view.jobs[name] = running;
  }
  EXPECT_TRUE(Says(CheckSlots(view), "slots are given once: workers/a has 2, and open attempts hold 4"));
}

TEST(CheckerTest, WhatClientsWereToldIsHeldAgainstTheStore) {
  const JobHistory whole = Whole();
  Told told;
  told.Sent("request-1");
  told.Accepted("request-1", whole.job);
  told.Heard({}, whole.job);
  told.CancelAcknowledged(kJob);
  EXPECT_EQ(CheckTold(ViewOf(whole), told), std::vector<std::string>());

  EXPECT_TRUE(Says(CheckTold(StoreView(), told), "no acknowledged job is lost"));
  StoreView view = ViewOf(whole);
  view.submissions["request-2"] = kJob;
  EXPECT_TRUE(Says(CheckTold(view, told), "one request_id per job"));
  view = ViewOf(whole);
  view.jobs["B"] = whole;
  EXPECT_TRUE(Says(CheckTold(view, told), "nobody asked for B"));
  view = ViewOf(whole);
  view.jobs[kJob].job.set_version(3);
  EXPECT_TRUE(Says(CheckTold(view, told), "what was told is durable"));
  view = ViewOf(whole);
  view.jobs[kJob].job.set_state(v1::RUNNING);
  EXPECT_TRUE(Says(CheckTold(view, told), "no job leaves a final state"));
  EXPECT_TRUE(Says(CheckTold(view, told), "a cancellation that was acknowledged stays"));
}

TEST(CheckerTest, AnswersThatContradictEarlierOnesAreFound) {
  const JobHistory whole = Whole();
  Told told;
  told.Accepted("request-1", whole.job);
  told.Heard({}, whole.job);
  const auto before = told.Known();
  v1::Job older = whole.job;
  older.set_version(1);
  told.Heard({}, older);  // asked for earlier: no fault
  EXPECT_EQ(told.Broken(), std::vector<std::string>());
  told.Heard(before, older);
  EXPECT_TRUE(Says(told.Broken(), "versions never go back"));
  v1::Job other = whole.job;
  other.set_state(v1::RUNNING);
  told.Heard(before, other);
  EXPECT_TRUE(Says(told.Broken(), "a final state never changes"));
  other.set_name("B");
  told.Accepted("request-1", other);
  EXPECT_TRUE(Says(told.Broken(), "one job per request_id"));
}

class CheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(root_);
    history_ = Whole();
    for (const int64_t epoch : {1, 2}) {
      for (const int64_t step : {10, 20, 30}) Commit(epoch, 30 * (epoch - 1) + step);
    }
  }

  // A checkpoint without tensors. Of an earlier epoch there is a row alone.
  void Commit(int64_t epoch, int64_t step) {
    v1::Checkpoint& checkpoint = history_.checkpoints.emplace_back();
    checkpoint.set_step(step);
    checkpoint.set_epoch(epoch);
    checkpoint.set_directory(root_);
    history_.job.set_committed_step(step);
    if (epoch < 2) return;
    Prepare(step);
    ASSERT_TRUE(checkpoint::CommitManifest(root_, step).ok());
  }
  void Prepare(int64_t step) {
    std::filesystem::create_directories(checkpoint::StepDirectory(root_, step));
    v1::CheckpointManifest manifest;
    manifest.set_step(step);
    ASSERT_TRUE(checkpoint::PrepareManifest(root_, manifest).ok());
  }
  std::string Manifest(int64_t step) { return checkpoint::StepDirectory(root_, step) + "/manifest.pb"; }
  std::vector<std::string> Check() { return CheckCheckpoints(history_, 2, root_ + "/scratch"); }

  const std::string root_ = ::testing::TempDir() + "/checkpoints";
  JobHistory history_;
};

TEST_F(CheckpointTest, TheLastOfTheNewestEpochAreDemanded) {
  EXPECT_EQ(Check(), std::vector<std::string>());
  std::filesystem::remove_all(checkpoint::StepDirectory(root_, 40));
  EXPECT_EQ(Check(), std::vector<std::string>());
  std::filesystem::remove(Manifest(50));
  EXPECT_TRUE(Says(Check(), "step 50 of epoch 2"));
}

TEST_F(CheckpointTest, TheVeryLastMayBePreparedAndMustBeWhole) {
  std::filesystem::rename(Manifest(60), Manifest(60) + ".tmp");
  EXPECT_EQ(Check(), std::vector<std::string>());
  std::ofstream(Manifest(60) + ".tmp") << "torn";
  EXPECT_TRUE(Says(Check(), "step 60 of epoch 2"));
  std::filesystem::remove_all(checkpoint::StepDirectory(root_, 60));
  EXPECT_TRUE(Says(Check(), "step 60 of epoch 2"));
}

TEST_F(CheckpointTest, TheCommittedStepIsTheLastCheckpoint) {
  history_.job.set_committed_step(70);
  EXPECT_TRUE(Says(Check(), "the committed step"));
}

}  // namespace
}  // namespace legoai::scenarios

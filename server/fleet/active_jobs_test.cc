// How long a job will still run, as far as the server can know.
#include "server/fleet/active_jobs.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>

#include "server/store/sqlite_store.h"

namespace legoai::server {
namespace {

constexpr int64_t kSecond = 1'000'000;
constexpr char kName[] = "projects/default/jobs/01J00000000000000000000001";

class ActiveJobsTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "/active-jobs-XXXXXX";
    ASSERT_NE(mkdtemp(directory_.data()), nullptr);
    auto store = store::OpenSqliteStore(directory_ + "/store.db");
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    job_.set_name(kName);
    job_.set_version(1);
    job_.mutable_spec()->mutable_recipe()->mutable_training()->set_steps(100);
    job_.mutable_chosen()->set_step_time_seconds(2);
    const absl::Status stored = store_->Write([&](store::Transaction& write) { return write.InsertJob(job_, std::nullopt); });
    ASSERT_TRUE(stored.ok()) << stored;
    jobs_ = std::make_unique<ActiveJobs>(store_.get());
  }
  void TearDown() override {
    store_.reset();
    std::filesystem::remove_all(directory_);
  }

  // The job as it is at this second.
  const ActiveJob& See(int64_t second, v1::JobState state, int64_t epoch, int64_t step = 0, double step_seconds = 0) {
    job_.set_state(state);
    job_.set_epoch(epoch);
    job_.set_update_time_us(second * kSecond);
    if (step > 0) {
      job_.mutable_progress()->set_step(step);
      job_.mutable_progress()->set_step_seconds(step_seconds);
      job_.mutable_progress()->set_update_time_us(second * kSecond);
    }
    const int64_t expected = job_.version();
    job_.set_version(expected + 1);
    const absl::Status stored = store_->Write([&](store::Transaction& write) { return write.UpdateJob(job_, expected); });
    EXPECT_TRUE(stored.ok()) << stored;
    jobs_->Changed(kName);
    EXPECT_TRUE(jobs_->Refresh().ok());
    return *jobs_->Find(kName);
  }

  std::string directory_;
  std::unique_ptr<store::Store> store_;
  std::unique_ptr<ActiveJobs> jobs_;
  v1::Job job_;
};

TEST_F(ActiveJobsTest, TimeLeftIsPredictedThenMeasuredWithItsPauses) {
  EXPECT_EQ(See(10, v1::QUEUED, 0).time_left, absl::Seconds(200));
  EXPECT_EQ(See(20, v1::LEASED, 1).time_left, absl::Seconds(200));
  EXPECT_EQ(See(90, v1::RUNNING, 1, 10, 3).time_left, absl::Seconds(270)) << "one report: by what it says of a step";
  EXPECT_EQ(See(190, v1::RUNNING, 1, 20, 3).time_left, absl::Seconds(800)) << "ten steps took 100 s, with what was between";
  EXPECT_EQ(See(195, v1::RUNNING, 1, 60, 3).time_left, absl::Seconds(120)) << "reports that came late, and at once";
}

TEST_F(ActiveJobsTest, WhatIsLostWithAnAttemptIsDoneAgain) {
  See(10, v1::LEASED, 1);
  See(20, v1::RUNNING, 1, 40, 1);
  job_.set_committed_step(30);
  EXPECT_EQ(See(30, v1::RESTARTING, 1).time_left, absl::Seconds(140)) << "70 steps, as slowly as was predicted";
  EXPECT_EQ(See(40, v1::LEASED, 2).time_left, absl::Seconds(140));
  EXPECT_EQ(See(60, v1::RUNNING, 2, 31, 3).time_left, absl::Seconds(207)) << "its pace is that of this attempt";
}

TEST_F(ActiveJobsTest, TheLongestStartIsThatFromALeaseToTheFirstSteps) {
  EXPECT_EQ(jobs_->longest_start(), absl::ZeroDuration());
  See(10, v1::LEASED, 1);
  See(12, v1::STARTING, 1);
  See(40, v1::RUNNING, 1, 1, 1);
  EXPECT_EQ(jobs_->longest_start(), absl::Seconds(30));
  See(900, v1::RUNNING, 1, 2, 1);
  See(910, v1::RESTARTING, 1);
  See(920, v1::LEASED, 2);
  See(925, v1::RUNNING, 2, 2, 1);
  EXPECT_EQ(jobs_->longest_start(), absl::Seconds(30));
}

}  // namespace
}  // namespace legoai::server

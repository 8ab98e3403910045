// What a retry begins with, as RetryJob decides it.
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/rpc/testing/test_service.h"

namespace legoai::server {
namespace {

class RetryTest : public ::testing::Test {
 protected:
  void SetUp() override { old_ = service_.Create("the first").name(); }

  void Save(const std::string& job, int64_t step, const std::string& damage = "", bool gone = false) {
    v1::Checkpoint checkpoint;
    checkpoint.set_name(absl::StrCat(job, "/checkpoints/", step));
    checkpoint.set_step(step);
    checkpoint.set_epoch(1);
    checkpoint.set_attempt(1);
    checkpoint.set_directory("/runs/old/epoch-1/checkpoints");
    checkpoint.set_digest("d");
    checkpoint.set_damage(damage);
    if (gone) checkpoint.set_remove_time_us(1);
    service_.Write([&](store::Transaction& transaction) { return transaction.PutCheckpoint(job, checkpoint); });
  }
  void Fail(const std::string& job) { service_.Move(job, {v1::FAILED}); }
  absl::StatusOr<v1::Job> Retry(const std::string& job, std::optional<int64_t> from = std::nullopt, bool fresh = false,
                                const std::string& id = "") {
    v1::RetryJobRequest request;
    request.set_name(job);
    request.set_request_id(id);
    request.set_fresh(fresh);
    if (from) request.set_from_step(*from);
    return service_.control().RetryJob(request);
  }
  // What it says of itself, after "tries JOB again; ".
  std::string Says(const absl::StatusOr<v1::Job>& job, const std::string& of) {
    EXPECT_TRUE(job.ok()) << job.status();
    if (!job.ok()) return "";
    const std::string begin = absl::StrCat("tries ", of, " again; ");
    EXPECT_EQ(job->reason().rfind(begin, 0), 0u) << job->reason();
    return job->reason().substr(begin.size());
  }
  static void ExpectFault(const absl::Status& status, absl::StatusCode code, const std::string& part) {
    testing::ExpectFault(status, code, "from_step", part);
  }

  testing::TestService service_;
  std::string old_;
};

TEST_F(RetryTest, ItGoesOnFromTheLastCheckpoint) {
  for (const int64_t step : {100, 200, 400}) Save(old_, step);
  Fail(old_);
  const auto job = Retry(old_);
  EXPECT_EQ(Says(job, old_), "goes on from step 400");
  EXPECT_EQ(job->starts_from().step(), 400);
  EXPECT_EQ(job->starts_from().directory(), "/runs/old/epoch-1/checkpoints");
  EXPECT_EQ(job->starts_from().digest(), "d");
  EXPECT_EQ(job->retry_of(), old_);
  EXPECT_FALSE(job->has_committed_step()) << "it has none of its own";
  EXPECT_EQ(service_.Get(job->name()).starts_from().step(), 400) << "it is stored";
}

TEST_F(RetryTest, ItsHistoryAndItsLogBeginWithThat) {
  Save(old_, 400);
  Fail(old_);
  const v1::Job job = *Retry(old_);
  v1::ListTransitionsRequest transitions;
  transitions.set_parent(job.name());
  EXPECT_EQ(service_.control().ListTransitions(transitions)->transitions(0).reason(), job.reason());
  v1::ListLogsRequest logs;
  logs.set_parent(job.name());
  EXPECT_EQ(service_.control().ListLogs(logs)->lines(0).text(),
            absl::StrCat("job submitted: tries ", old_, " again; goes on from step 400"));
}

TEST_F(RetryTest, WithoutACheckpointItBeginsAnewAndSaysWhy) {
  Fail(old_);
  const auto job = Retry(old_);
  EXPECT_EQ(Says(job, old_), "begins anew, for it has no checkpoint");
  EXPECT_FALSE(job->has_starts_from());
}

TEST_F(RetryTest, DamagedOnesArePassedOver) {
  Save(old_, 100);
  Save(old_, 200, "a bit is flipped in rank-0");
  Fail(old_);
  EXPECT_EQ(Says(Retry(old_), old_), "goes on from step 100, for that of step 200 is damaged");
  Save(old_, 100, "no manifest");
  // To begin anew would be to lose them in silence.
  ExpectFault(Retry(old_).status(), absl::StatusCode::kFailedPrecondition,
              "step 200: a bit is flipped in rank-0; step 100: no manifest");
  EXPECT_EQ(Says(Retry(old_, std::nullopt, /*fresh=*/true), old_), "begins anew, as was asked for");
}

// What looked like damage may have been a disk that was away: whoever goes on from it finds out.
TEST_F(RetryTest, ADamagedOneIsTriedOnceMoreWhenAskedFor) {
  Save(old_, 100);
  Save(old_, 200, "rank-00000.bin: cannot read: Input/output error");
  Fail(old_);
  const auto job = Retry(old_, 200);
  EXPECT_EQ(
      Says(job, old_),
      "goes on from step 200, as was asked for, though it was found damaged (rank-00000.bin: cannot read: Input/output error)");
  EXPECT_EQ(job->starts_from().step(), 200);
  EXPECT_EQ(job->starts_from().damage(), "");
  EXPECT_TRUE(job->starts_from().take_back()) << "its folder has another name since";
  EXPECT_EQ(service_.Get(old_).committed_step(), 200);
  EXPECT_EQ(Says(Retry(old_), old_), "goes on from step 200");
}

TEST_F(RetryTest, FromAStepThatIsKeptAndWhole) {
  Save(old_, 100);
  Save(old_, 200, "", /*gone=*/true);
  Save(old_, 300, "a bit is flipped in rank-0");
  Save(old_, 400);
  Fail(old_);
  const auto job = Retry(old_, 100);
  EXPECT_EQ(Says(job, old_), "goes on from step 100");
  EXPECT_EQ(job->starts_from().step(), 100);
  ExpectFault(Retry(old_, 200).status(), absl::StatusCode::kNotFound, "there are those of steps 400, 100");
  ExpectFault(Retry(old_, 0).status(), absl::StatusCode::kNotFound, "there are those of steps 400, 100");
  ExpectFault(Retry(old_, -1).status(), absl::StatusCode::kNotFound, "there are those of steps 400, 100");
}

TEST_F(RetryTest, FreshBeginsAnewAndGoesWithNoStep) {
  Save(old_, 400);
  Fail(old_);
  const auto job = Retry(old_, std::nullopt, /*fresh=*/true);
  EXPECT_EQ(Says(job, old_), "begins anew, as was asked for");
  EXPECT_FALSE(job->has_starts_from());
  ExpectFault(Retry(old_, 400, /*fresh=*/true).status(), absl::StatusCode::kInvalidArgument, "fresh");
}

TEST_F(RetryTest, ARetryWithoutCheckpointsOfItsOwnHandsOnWhatItWasMadeFor) {
  Save(old_, 300);
  Save(old_, 400);
  Fail(old_);
  const std::string second = Retry(old_, 300)->name();
  service_.Move(second, {v1::CANCELLED});
  const auto third = Retry(second);
  EXPECT_EQ(Says(third, second), absl::StrCat("goes on from step 300 of ", old_));
  EXPECT_EQ(third->starts_from().name(), absl::StrCat(old_, "/checkpoints/300"));
  EXPECT_EQ(third->retry_of(), second);
  ExpectFault(Retry(second, 400).status(), absl::StatusCode::kNotFound, "there are those of steps 300");
}

TEST_F(RetryTest, TheSameRequestIdWithAnotherWishIsRefused) {
  Save(old_, 300);
  Save(old_, 400);
  Fail(old_);
  const std::string name = Retry(old_, 300, false, "request-1")->name();
  EXPECT_EQ(Retry(old_, 300, false, "request-1")->name(), name);
  EXPECT_EQ(Retry(old_, 400, false, "request-1").status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Retry(old_, std::nullopt, true, "request-1").status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Retry(old_, std::nullopt, false, "request-1").status().code(), absl::StatusCode::kAlreadyExists);
}

}  // namespace
}  // namespace legoai::server

// The handlers against the embedded store.
#include "server/rpc/control_plane.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "proto/testing/assert_ok.h"
#include "server/jobs/names.h"
#include "server/jobs/testing/example_submission.h"
#include "server/jobs/transition.h"
#include "server/rpc/testing/test_service.h"

namespace legoai::server {
namespace {

using testing::ExampleSubmission;
using testing::ExpectFault;

constexpr char kNobody[] = "projects/default/jobs/01ARZ3NDEKTSV4RRFFQ69G5FAV";

class ControlPlaneTest : public ::testing::Test {
 protected:
  ControlPlane& control() { return service_.control(); }

  v1::ListJobsResponse List(const std::string& filter = "", int64_t size = 0, const std::string& token = "") {
    v1::ListJobsRequest request;
    request.set_parent("projects/default");
    request.set_filter(filter);
    request.set_page_size(size);
    request.set_page_token(token);
    auto response = control().ListJobs(request);
    EXPECT_TRUE(response.ok()) << response.status();
    return response.value_or(v1::ListJobsResponse());
  }
  absl::StatusOr<v1::Job> Cancel(const std::string& name, const std::string& reason = "") {
    v1::CancelJobRequest request;
    request.set_name(name);
    request.set_reason(reason);
    return control().CancelJob(request);
  }
  absl::StatusOr<v1::Job> Retry(const std::string& name, const std::string& request_id = "") {
    v1::RetryJobRequest request;
    request.set_name(name);
    request.set_request_id(request_id);
    return control().RetryJob(request);
  }
  std::optional<v1::WatchJobResponse> Look(const std::string& name, int64_t after, WatchState* seen = nullptr) {
    v1::WatchJobRequest request;
    request.set_name(name);
    request.set_after_version(after);
    auto news = control().PollJob(request, seen);
    EXPECT_TRUE(news.ok()) << news.status();
    return news.ok() ? *news : std::nullopt;
  }

  testing::TestService service_;
};

TEST_F(ControlPlaneTest, ASubmissionIsAJobAtOnce) {
  ASSERT_OK_AND_ASSIGN(const auto job, control().CreateJob(ExampleSubmission()));
  EXPECT_TRUE(ParseJobName("name", job.name()).ok()) << job.name();
  EXPECT_EQ(job.state(), v1::SUBMITTED);
  EXPECT_EQ(job.version(), 1);
  EXPECT_EQ(job.epoch(), 0);
  EXPECT_GT(job.create_time_us(), 0);
  EXPECT_EQ(job.spec().resources().pool(), "default");
  EXPECT_EQ(service_.fleet().job_changes, 1);
  EXPECT_EQ(service_.Get(job.name()).SerializeAsString(), job.SerializeAsString());
  v1::ListTransitionsRequest request;
  request.set_parent(job.name());
  ASSERT_OK_AND_ASSIGN(const auto history, control().ListTransitions(request));
  ASSERT_EQ(history.transitions_size(), 1);
  EXPECT_EQ(history.transitions(0).to(), v1::SUBMITTED);
  EXPECT_EQ(history.transitions(0).version(), 1);
}

TEST_F(ControlPlaneTest, WhatIsOnlyCheckedIsNotKept) {
  v1::CreateJobRequest request = ExampleSubmission("request-1");
  request.set_validate_only(true);
  ASSERT_OK_AND_ASSIGN(const auto job, control().CreateJob(request));
  EXPECT_EQ(job.name(), "");
  EXPECT_EQ(job.spec().policy().max_restarts(), 3);
  EXPECT_EQ(List().total_size(), 0);
  EXPECT_EQ(service_.fleet().job_changes, 0);
  request.mutable_spec()->mutable_recipe()->mutable_training()->clear_seq_len();
  ExpectFault(control().CreateJob(request).status(), absl::StatusCode::kInvalidArgument, "spec.recipe.training.seq_len");
}

TEST_F(ControlPlaneTest, TheSameRequestIsTheSameJob) {
  ASSERT_OK_AND_ASSIGN(const auto first, control().CreateJob(ExampleSubmission("request-1")));
  service_.Move(first.name(), {v1::PLANNING});
  ASSERT_OK_AND_ASSIGN(const auto second, control().CreateJob(ExampleSubmission("request-1")));
  EXPECT_EQ(second.name(), first.name());
  EXPECT_EQ(second.state(), v1::PLANNING) << "the job as it is";
  EXPECT_EQ(List().total_size(), 1);
  v1::CreateJobRequest other = ExampleSubmission("request-1");
  other.mutable_spec()->mutable_policy()->set_priority(1);
  ExpectFault(control().CreateJob(other).status(), absl::StatusCode::kAlreadyExists, "request_id", first.name());
  // Another project has its own.
  v1::CreateJobRequest elsewhere = ExampleSubmission("request-1");
  elsewhere.set_parent("projects/other");
  ASSERT_OK_AND_ASSIGN(const auto third, control().CreateJob(elsewhere));
  EXPECT_NE(third.name(), first.name());
  EXPECT_EQ(List().total_size(), 1);
}

TEST_F(ControlPlaneTest, TheSameRequestFromManyThreadsIsOneJob) {
  std::vector<std::thread> threads;
  std::vector<std::string> names(16);
  for (size_t i = 0; i < names.size(); ++i) {
    threads.emplace_back([&, i] {
      const auto job = control().CreateJob(ExampleSubmission("request-1"));
      names[i] = job.ok() ? job->name() : std::string(job.status().message());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), 1u);
  EXPECT_EQ(List().total_size(), 1);
}

TEST_F(ControlPlaneTest, CancellingEndsWhatHasNoLeaseAtOnce) {
  const std::vector<std::vector<v1::JobState>> paths = {
      {}, {v1::PLANNING}, {v1::PLANNING, v1::QUEUED}, {v1::PLANNING, v1::QUEUED, v1::LEASED, v1::RESTARTING}};
  for (const auto& path : paths) {
    const std::string name = service_.Create().name();
    service_.Move(name, path);
    ASSERT_OK_AND_ASSIGN(const auto job, Cancel(name, "no longer needed"));
    EXPECT_EQ(job.state(), v1::CANCELLED);
    EXPECT_EQ(job.reason(), "was cancelled: no longer needed");
    EXPECT_EQ(job.outcome().error().code(), static_cast<int>(absl::StatusCode::kCancelled));
    EXPECT_TRUE(job.has_end_time_us());
  }
}

TEST_F(ControlPlaneTest, CancellingAsksWhatRunsToStop) {
  for (const std::vector<v1::JobState>& more : std::vector<std::vector<v1::JobState>>{{}, {v1::STARTING}, {v1::RUNNING}}) {
    const std::string name = service_.Create().name();
    service_.Move(name, {v1::PLANNING, v1::QUEUED, v1::LEASED});
    service_.Move(name, more);
    const int wakes = service_.fleet().job_changes;
    ASSERT_OK_AND_ASSIGN(const auto job, Cancel(name));
    EXPECT_EQ(job.state(), v1::CANCELLING);
    EXPECT_FALSE(job.has_outcome());
    EXPECT_EQ(service_.fleet().job_changes, wakes + 1);
    ASSERT_OK_AND_ASSIGN(const auto again, Cancel(name, "again"));
    EXPECT_EQ(again.SerializeAsString(), job.SerializeAsString()) << "asked once is enough";
  }
}

TEST_F(ControlPlaneTest, CancellingLeavesTheEndAsItIs) {
  const std::string name = service_.Create().name();
  const v1::Job before = service_.Move(name, {v1::PLANNING, v1::QUEUED, v1::LEASED, v1::RUNNING, v1::SUCCEEDED});
  ASSERT_OK_AND_ASSIGN(const auto job, Cancel(name));
  EXPECT_EQ(job.SerializeAsString(), before.SerializeAsString());
  ExpectFault(Cancel(kNobody).status(), absl::StatusCode::kNotFound, "name");
  ExpectFault(Cancel("nonsense").status(), absl::StatusCode::kInvalidArgument, "name");
  ExpectFault(Cancel(name, std::string(501, 'a')).status(), absl::StatusCode::kInvalidArgument, "reason");
}

TEST_F(ControlPlaneTest, RetryIsANewJobOfAFailedOne) {
  const std::string name = service_.Create("the first").name();
  ExpectFault(Retry(name).status(), absl::StatusCode::kFailedPrecondition, "name", "is submitted");
  service_.Move(name, {v1::FAILED});
  ASSERT_OK_AND_ASSIGN(const auto job, Retry(name, "request-1"));
  EXPECT_NE(job.name(), name);
  EXPECT_EQ(job.retry_of(), name);
  EXPECT_EQ(job.state(), v1::SUBMITTED);
  EXPECT_EQ(job.spec().SerializeAsString(), service_.Get(name).spec().SerializeAsString());
  EXPECT_EQ(Retry(name, "request-1")->name(), job.name());
  EXPECT_NE(Retry(name)->name(), job.name()) << "without a request_id each is another one";
  // A request_id is used once, whatever for.
  ExpectFault(control().CreateJob(ExampleSubmission("request-1")).status(), absl::StatusCode::kAlreadyExists, "request_id");
  service_.Move(job.name(), {v1::CANCELLED});
  ExpectFault(Retry(job.name(), "request-1").status(), absl::StatusCode::kAlreadyExists, "request_id");
  EXPECT_TRUE(Retry(job.name()).ok());
  ExpectFault(Retry(kNobody).status(), absl::StatusCode::kNotFound, "name");
}

TEST_F(ControlPlaneTest, PagesGiveEveryJobOnceTheLatestFirst) {
  std::vector<std::string> names;
  for (int i = 0; i < 23; ++i) names.push_back(service_.Create("job " + std::to_string(i)).name());
  std::vector<std::string> listed;
  std::string token;
  int64_t size = 5;
  do {
    const auto page = List("", size, token);
    EXPECT_GE(page.total_size(), 23);
    for (const v1::Job& job : page.jobs()) {
      listed.push_back(job.name());
      EXPECT_EQ(job.spec().model().config_json(), "");
      EXPECT_EQ(job.spec().model().hidden_size(), 32);
    }
    token = page.next_page_token();
    size = 7;
    service_.Create("later than the first page");
  } while (!token.empty() && listed.size() < 100);
  EXPECT_EQ(listed, std::vector<std::string>(names.rbegin(), names.rend()));
}

TEST_F(ControlPlaneTest, FiltersAndTheirTokens) {
  const std::string a = service_.Create("Alpha one").name(), b = service_.Create("beta").name(),
                    c = service_.Create("ALPHA two").name();
  service_.Move(b, {v1::FAILED});
  EXPECT_EQ(List("state = active").total_size(), 2);
  EXPECT_EQ(List("state = failed").jobs(0).name(), b);
  EXPECT_EQ(List("display_name : alpha").total_size(), 2);
  EXPECT_EQ(List("state = failed AND state = active").total_size(), 0);
  const auto page = List("display_name : alpha", 1);
  ASSERT_EQ(page.jobs_size(), 1);
  EXPECT_EQ(page.jobs(0).name(), c);
  v1::ListJobsRequest request;
  request.set_parent("projects/default");
  request.set_page_token(page.next_page_token());
  ExpectFault(control().ListJobs(request).status(), absl::StatusCode::kInvalidArgument, "page_token", "another query");
  request.set_filter("display_name : alpha");
  EXPECT_EQ(control().ListJobs(request)->jobs(0).name(), a);
  request.set_parent("projects/other");
  ExpectFault(control().ListJobs(request).status(), absl::StatusCode::kInvalidArgument, "page_token", "another query");
  request.set_page_token("");
  request.set_page_size(-1);
  ExpectFault(control().ListJobs(request).status(), absl::StatusCode::kInvalidArgument, "page_size");
  request.set_filter("priority > 3");
  ExpectFault(control().ListJobs(request).status(), absl::StatusCode::kInvalidArgument, "filter");
}

TEST_F(ControlPlaneTest, TheHistoryComesInPages) {
  const std::string name = service_.Create().name();
  service_.Move(name, {v1::PLANNING, v1::QUEUED, v1::LEASED, v1::STARTING, v1::RUNNING});
  v1::ListTransitionsRequest request;
  request.set_parent(name);
  request.set_page_size(4);
  ASSERT_OK_AND_ASSIGN(const auto first, control().ListTransitions(request));
  ASSERT_EQ(first.transitions_size(), 4);
  request.set_page_token(first.next_page_token());
  const auto second = control().ListTransitions(request);
  ASSERT_EQ(second->transitions_size(), 2);
  EXPECT_EQ(second->transitions(1).to(), v1::RUNNING);
  EXPECT_EQ(second->next_page_token(), "");
  request.set_parent(service_.Create().name());
  ExpectFault(control().ListTransitions(request).status(), absl::StatusCode::kInvalidArgument, "page_token");
}

TEST_F(ControlPlaneTest, AttemptsAndCheckpointsComeInPages) {
  const std::string name = service_.Create().name();
  service_.Write([&](store::Transaction& transaction) -> absl::Status {
    for (int number = 1; number <= 3; ++number) {
      v1::Attempt attempt;
      attempt.set_attempt(number);
      if (absl::Status status = transaction.PutAttempt(name, attempt); !status.ok()) return status;
      v1::Checkpoint checkpoint;
      checkpoint.set_step(10);  // the same step saved in three epochs: the step alone is no place to go on from
      checkpoint.set_epoch(number);
      checkpoint.set_attempt(number);
      if (absl::Status status = transaction.PutCheckpoint(name, checkpoint); !status.ok()) return status;
    }
    return absl::OkStatus();
  });
  v1::ListAttemptsRequest attempts;
  attempts.set_parent(name);
  attempts.set_page_size(2);
  ASSERT_OK_AND_ASSIGN(const auto first, control().ListAttempts(attempts));
  ASSERT_EQ(first.attempts_size(), 2);
  attempts.set_page_token(first.next_page_token());
  const auto second = control().ListAttempts(attempts);
  ASSERT_EQ(second->attempts_size(), 1);
  EXPECT_EQ(second->attempts(0).attempt(), 3);
  EXPECT_EQ(second->next_page_token(), "");
  v1::ListCheckpointsRequest checkpoints;
  checkpoints.set_parent(name);
  checkpoints.set_page_size(1);
  for (int epoch = 1; epoch <= 3; ++epoch) {
    ASSERT_OK_AND_ASSIGN(const auto page, control().ListCheckpoints(checkpoints));
    ASSERT_EQ(page.checkpoints_size(), 1);
    EXPECT_EQ(page.checkpoints(0).epoch(), epoch);
    EXPECT_EQ(page.next_page_token().empty(), epoch == 3);
    checkpoints.set_page_token(page.next_page_token());
  }
  checkpoints.set_page_token(first.next_page_token());
  ExpectFault(control().ListCheckpoints(checkpoints).status(), absl::StatusCode::kInvalidArgument, "page_token", "another query");
}

TEST_F(ControlPlaneTest, WhatIsNotThereYetIsSaid) {
  const std::string name = service_.Create().name();
  v1::GetPlanRequest plan;
  plan.set_name(name + "/plan");
  ExpectFault(control().GetPlan(plan).status(), absl::StatusCode::kNotFound, "name", "no plan yet");
  v1::GetFlightRecordRequest record;
  record.set_name(name);
  ExpectFault(control().GetFlightRecord(record).status(), absl::StatusCode::kNotFound, "name", "no flight record");
  record.set_name(name + "/flightRecord");
  ExpectFault(control().GetFlightRecord(record).status(), absl::StatusCode::kNotFound, "name", "no flight record");
  service_.Write([&](store::Transaction& transaction) {
    v1::PlanResult result;
    result.set_explanation("because");
    return transaction.PutPlan(name, result);
  });
  EXPECT_EQ(control().GetPlan(plan)->explanation(), "because");
  plan.set_name(name);
  EXPECT_EQ(control().GetPlan(plan)->explanation(), "because");
  v1::ListAttemptsRequest attempts;
  attempts.set_parent(name);
  EXPECT_EQ(control().ListAttempts(attempts)->attempts_size(), 0);
  attempts.set_parent(kNobody);
  ExpectFault(control().ListAttempts(attempts).status(), absl::StatusCode::kNotFound, "parent");
}

TEST_F(ControlPlaneTest, MetricsAreThinnedOut) {
  const std::string name = service_.Create().name();
  service_.Write([&](store::Transaction& transaction) -> absl::Status {
    for (int step = 1; step <= 3000; ++step) {
      v1::StepMetrics metrics;
      metrics.set_attempt(1);
      metrics.set_step(step);
      metrics.set_loss(5.0 / step);
      if (step % 500 == 0) metrics.set_validation_loss(1);
      if (absl::Status status = transaction.AppendMetrics(name, metrics); !status.ok()) return status;
    }
    return absl::OkStatus();
  });
  v1::QueryMetricsRequest request;
  request.set_name(name);
  ASSERT_OK_AND_ASSIGN(auto all, control().QueryMetrics(request));
  EXPECT_EQ(all.steps(), 3000);
  EXPECT_LE(all.points_size(), 1000);
  EXPECT_GE(all.points_size(), 990);
  request.set_max_points(100000);
  EXPECT_LE(control().QueryMetrics(request)->points_size(), 1000);
  request.set_max_points(20);
  request.set_after_step(1000);
  const auto few = control().QueryMetrics(request);
  EXPECT_EQ(few->steps(), 2000);
  EXPECT_LE(few->points_size(), 20);
  EXPECT_EQ(few->points(0).step(), 1001);
  EXPECT_EQ(few->points().rbegin()->step(), 3000);
  int held_out = 0;
  for (const auto& point : few->points()) held_out += point.has_validation_loss();
  EXPECT_EQ(held_out, 4);
  request.set_max_points(-1);
  ExpectFault(control().QueryMetrics(request).status(), absl::StatusCode::kInvalidArgument, "max_points");
}

TEST_F(ControlPlaneTest, LogsAreFollowed) {
  const std::string name = service_.Create().name();
  service_.Write([&](store::Transaction& transaction) -> absl::Status {
    for (int i = 0; i < 10; ++i) {
      v1::LogLine line;
      line.set_attempt(1 + i / 5);
      if (i % 2 == 0) line.set_rank(i % 4);
      line.set_text("line " + std::to_string(i));
      if (absl::Status status = transaction.AppendLog(name, line); !status.ok()) return status;
    }
    return absl::OkStatus();
  });
  v1::ListLogsRequest request;
  request.set_parent(name);
  request.set_page_size(4);
  std::vector<std::string> texts;
  for (;;) {
    ASSERT_OK_AND_ASSIGN(const auto page, control().ListLogs(request));
    for (const auto& line : page.lines()) texts.push_back(line.text());
    if (page.lines().empty()) {
      EXPECT_EQ(page.last_sequence(), request.after_sequence());
      break;
    }
    request.set_after_sequence(page.last_sequence());
  }
  ASSERT_EQ(texts.size(), 10u);
  EXPECT_EQ(texts[9], "line 9");
  request.set_after_sequence(0);
  request.set_tail(true);
  const auto tail = control().ListLogs(request);
  ASSERT_EQ(tail->lines_size(), 4);
  EXPECT_EQ(tail->lines(0).text(), "line 6");
  request.set_rank(2);
  request.set_attempt(1);
  EXPECT_EQ(control().ListLogs(request)->lines_size(), 1);
}

TEST_F(ControlPlaneTest, AWatchSeesEveryChange) {
  const v1::Job job = service_.Create();
  auto news = Look(job.name(), 0);
  ASSERT_TRUE(news);
  EXPECT_EQ(news->job().version(), 1);
  EXPECT_EQ(news->transitions_size(), 1);
  EXPECT_FALSE(Look(job.name(), 1));
  service_.Move(job.name(), {v1::PLANNING, v1::QUEUED});
  news = Look(job.name(), 1);
  ASSERT_TRUE(news);
  EXPECT_EQ(news->job().state(), v1::QUEUED);
  ASSERT_EQ(news->transitions_size(), 2);
  EXPECT_EQ(news->transitions(0).to(), v1::PLANNING);
  service_.Touch(job.name(), [](v1::Job* it) { it->set_queue_position(2); });
  news = Look(job.name(), 3);
  ASSERT_TRUE(news);
  EXPECT_EQ(news->transitions_size(), 0);
  EXPECT_EQ(news->job().queue_position(), 2);
  // A version that the store does not have, as after a restored backup: the job as it is.
  EXPECT_TRUE(Look(job.name(), 99));
  Cancel(job.name()).IgnoreError();
  news = Look(job.name(), service_.Get(job.name()).version());
  ASSERT_TRUE(news) << "nothing follows a final state that could wake this watch";
  EXPECT_EQ(news->job().state(), v1::CANCELLED);
}

TEST_F(ControlPlaneTest, PlanningShowsInAWatchOnceEach) {
  const std::string name = service_.Create().name();
  const int64_t version = service_.Move(name, {v1::PLANNING}).version();
  WatchState seen;
  EXPECT_FALSE(Look(name, version, &seen));
  v1::PlanningProgress progress;
  progress.set_captured(3);
  progress.set_elapsed_seconds(0.5);
  service_.notifier().SetPlanning(name, progress);
  const auto news = Look(name, version, &seen);
  ASSERT_TRUE(news);
  EXPECT_EQ(news->planning().captured(), 3);
  EXPECT_FALSE(Look(name, version, &seen));
  EXPECT_FALSE(Look(name, version, nullptr));
  service_.notifier().ClearPlanning(name);
  EXPECT_FALSE(Look(name, version, &seen));
}

// Why a job waits is not stored: whoever asks is told as of now.
TEST_F(ControlPlaneTest, WhyAJobWaitsIsSaidByTheFleetWhereverAJobIsShown) {
  const v1::Job job = service_.Create();
  std::string reason = "busy";
  service_.fleet().describe_wait = [&](v1::Job* it) {
    if (it->state() != v1::SUBMITTED) return false;
    it->set_reason(reason);
    it->set_queue_position(7);
    return true;
  };
  EXPECT_EQ(service_.Get(job.name()).reason(), "busy");
  EXPECT_EQ(List().jobs(0).queue_position(), 7);
  WatchState seen;
  auto news = Look(job.name(), 1, &seen);
  ASSERT_TRUE(news);
  EXPECT_EQ(news->job().reason(), "busy");
  EXPECT_FALSE(Look(job.name(), 1, &seen)) << "it has been told";
  reason = "busier";
  news = Look(job.name(), 1, &seen);
  ASSERT_TRUE(news);
  EXPECT_EQ(news->job().reason(), "busier");
  EXPECT_EQ(news->job().version(), 1);
  EXPECT_EQ(news->transitions_size(), 0);
  EXPECT_FALSE(Look(job.name(), 1, &seen));
}

TEST_F(ControlPlaneTest, TheModelsConfigIsInTheFirstMessageOfAWatchAlone) {
  const v1::Job job = service_.Create();
  ASSERT_FALSE(job.spec().model().config_json().empty());
  WatchState seen;
  EXPECT_EQ(Look(job.name(), 0, &seen)->job().spec().model().config_json(), job.spec().model().config_json());
  service_.Move(job.name(), {v1::PLANNING});
  v1::Job later = Look(job.name(), 1, &seen)->job();
  EXPECT_EQ(later.spec().model().config_json(), "");
  later.mutable_spec()->mutable_model()->set_config_json(job.spec().model().config_json());
  EXPECT_EQ(later.SerializeAsString(), service_.Get(job.name()).SerializeAsString()) << "all else is there";
  WatchState of_another;
  EXPECT_NE(Look(job.name(), 1, &of_another)->job().spec().model().config_json(), "");
}

TEST_F(ControlPlaneTest, AWatchOfAJobWithALongHistoryGetsTheLatestOfIt) {
  const std::string name = service_.Create().name();
  service_.Write([&](store::Transaction& transaction) -> absl::Status {
    auto job = transaction.GetJob(name);
    for (int i = 0; i < 1250; ++i) {
      for (v1::JobState state : {v1::PLANNING, v1::SUBMITTED}) {
        if (absl::Status status = Move(transaction, &**job, state, "again", 1); !status.ok()) return status;
      }
    }
    return absl::OkStatus();
  });
  const auto news = Look(name, 0);
  ASSERT_EQ(news->transitions_size(), 1000);
  EXPECT_EQ(news->job().version(), 2501);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(news->transitions(i).version(), 1502 + i);
}

TEST_F(ControlPlaneTest, OfChecksListsHaveOnlyWhatHasNotPassed) {
  v1::Worker worker;
  worker.set_name("workers/checked");
  v1::MachineCheck& check = *worker.mutable_health()->mutable_check();
  check.set_number(3);
  for (int slot = 0; slot < 4; ++slot) {
    v1::CheckResult& result = *check.add_results();
    result.add_slots(slot);
    result.set_passed(slot != 2);
  }
  v1::Worker unchecked;
  unchecked.set_name("workers/unchecked");
  service_.fleet().SetWorkers({worker, unchecked});
  ASSERT_OK_AND_ASSIGN(const auto list, control().ListWorkers(v1::ListWorkersRequest()));
  ASSERT_EQ(list.workers_size(), 2);
  EXPECT_EQ(list.workers(0).health().check().number(), 3);
  ASSERT_EQ(list.workers(0).health().check().results_size(), 1);
  EXPECT_EQ(list.workers(0).health().check().results(0).slots(0), 2);
  EXPECT_FALSE(list.workers(1).has_health());
  v1::GetWorkerRequest get;
  get.set_name("workers/checked");
  EXPECT_EQ(control().GetWorker(get)->health().check().results_size(), 4);
}

TEST_F(ControlPlaneTest, WorkersAreListedFilteredAndDrained) {
  std::vector<v1::Worker> workers(5);
  for (size_t i = 0; i < workers.size(); ++i) {
    workers[i].set_name("workers/node-" + std::to_string(i));
    workers[i].set_pool(i < 3 ? "default" : "other");
    workers[i].set_state(v1::READY);
  }
  service_.fleet().SetWorkers(workers);
  v1::ListWorkersRequest request;
  request.set_page_size(2);
  std::vector<std::string> names;
  do {
    ASSERT_OK_AND_ASSIGN(const auto page, control().ListWorkers(request));
    for (const auto& worker : page.workers()) names.push_back(worker.name());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_EQ(names,
            (std::vector<std::string>{"workers/node-0", "workers/node-1", "workers/node-2", "workers/node-3", "workers/node-4"}));
  v1::DrainWorkerRequest drain;
  drain.set_name("workers/node-1");
  EXPECT_EQ(control().DrainWorker(drain)->state(), v1::DRAINING);
  request.set_filter("state = draining AND pool = default");
  EXPECT_EQ(control().ListWorkers(request)->workers_size(), 1);
  drain.set_undo(true);
  EXPECT_EQ(control().DrainWorker(drain)->state(), v1::READY);
  drain.set_name("workers/nobody");
  ExpectFault(control().DrainWorker(drain).status(), absl::StatusCode::kNotFound, "name");
  v1::CheckWorkerRequest check;
  check.set_name("workers/node-1");
  EXPECT_TRUE(control().CheckWorker(check).ok());
  check.set_name("workers/nobody");
  ExpectFault(control().CheckWorker(check).status(), absl::StatusCode::kNotFound, "name");
  check.set_name("node-1");
  ExpectFault(control().CheckWorker(check).status(), absl::StatusCode::kInvalidArgument, "name");
  v1::GetWorkerRequest get;
  get.set_name("workers/node-4");
  EXPECT_EQ(control().GetWorker(get)->pool(), "other");
  get.set_name("node-4");
  ExpectFault(control().GetWorker(get).status(), absl::StatusCode::kInvalidArgument, "name", "workers/NAME");
}

v1::Cluster Cluster() {
  v1::Cluster cluster;
  cluster.set_name("cpu:1x1");
  cluster.mutable_device()->set_type("cpu");
  return cluster;
}

TEST_F(ControlPlaneTest, PlansAndSimulationsAreCheckedFirst) {
  v1::SimulateRequest simulate;
  auto fault = [&](const std::string& field, const std::string& part = "") {
    ExpectFault(control().Simulate(simulate, [] { return false; }).status(), absl::StatusCode::kInvalidArgument, field, part);
  };
  fault("request");
  simulate.mutable_request()->set_chrome_trace_path("/etc/passwd");
  fault("request.chrome_trace_path", "server");
  simulate.mutable_request()->clear_chrome_trace_path();
  simulate.mutable_request()->set_dump_passes_directory("/etc");
  fault("request.dump_passes_directory", "server");
  simulate.mutable_request()->clear_dump_passes_directory();
  simulate.mutable_request()->set_cost_mode(v1::COST_BENCHMARK);
  fault("request.cost_mode", "server");
  simulate.mutable_request()->clear_cost_mode();
  fault("request.model.name");
  simulate.mutable_request()->mutable_model()->set_name("gpt2");
  *simulate.mutable_request()->mutable_cluster() = Cluster();
  ASSERT_FALSE(control().Simulate(simulate, [] { return false; }).ok());
  v1::PlanRequest plan;
  plan.mutable_model()->set_name("gpt5");
  const absl::Status status = control().Plan(
      plan, [](const auto&) { return true; }, [] { return false; });
  ExpectFault(status, absl::StatusCode::kInvalidArgument, "model.name", "gpt2");
}

TEST_F(ControlPlaneTest, TheServerSaysWhatItIs) {
  ASSERT_OK_AND_ASSIGN(const auto info, control().GetServerInfo({}));
  EXPECT_EQ(info.store(), "sqlite");
  EXPECT_GT(info.schema_version(), 0);
  EXPECT_FALSE(info.build_version().empty());
}

}  // namespace
}  // namespace legoai::server

// Traces of steps, and rows of ranks, as users get them: against the embedded store and a fleet that writes what a test says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/hardware/catalog.h"
#include "proto/testing/assert_ok.h"
#include "server/fleet/offers.h"
#include "server/rpc/predicted_traces.h"
#include "server/rpc/testing/test_service.h"

namespace legoai::server {
namespace {

using testing::ExpectFault;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kNobody[] = "projects/default/jobs/01ARZ3NDEKTSV4RRFFQ69G5FAV";

v1::Worker SomeWorker(double flops = 9e10) {
  v1::Worker worker;
  worker.set_name("workers/node-1");
  worker.set_slots(4);
  worker.set_host_cores(4);
  worker.set_host_memory_bytes(int64_t{16} << 30);
  *worker.mutable_device() = *sim::FindDevice("cpu");
  for (v1::PeakFlops& peak : *worker.mutable_device()->mutable_peak_flops()) peak.set_flops_per_second(flops);
  return worker;
}

class TraceCallsTest : public ::testing::Test {
 protected:
  ControlPlane& control() { return service_.control(); }

  void Put(const std::string& job, int64_t attempt, int64_t step, int64_t rank, const std::string& gzip) {
    v1::StepTraceInfo info;
    info.set_name(absl::StrCat(job, "/stepTraces/", attempt, "-", step, "-", rank));
    info.set_attempt(attempt);
    info.set_step(step);
    info.set_rank(rank);
    info.set_bytes(static_cast<int64_t>(gzip.size()));
    v1::TraceFile file;
    file.set_file_name(absl::StrCat(step, ".json.gz"));
    file.set_trace_gzip(gzip);
    service_.Write([&](store::Transaction& transaction) { return transaction.PutStepTrace(job, info, file); });
  }
  absl::StatusOr<v1::TraceFile> Get(const std::string& name) {
    v1::GetStepTraceRequest request;
    request.set_name(name);
    return control().GetStepTrace(request);
  }
  absl::StatusOr<v1::TraceFile> Predict(const std::string& job, const std::string& end = "/predictedTrace") {
    v1::GetPredictedTraceRequest request;
    request.set_name(job + end);
    return control().GetPredictedTrace(request, [] { return false; });
  }
  // A job with a recipe, planned for two slots of such a worker.
  std::string PlannedJob(const v1::Worker& worker) {
    const std::string job = service_.Create().name();
    service_.Write([&](store::Transaction& transaction) {
      v1::PlanResult plan;
      plan.set_cluster(ClusterName(SlotKind(worker), 2));
      return transaction.PutPlan(job, plan);
    });
    service_.Touch(job, [](v1::Job* row) {
      row->mutable_chosen()->mutable_recipe()->mutable_training()->set_seq_len(77);
      row->set_world_size(2);
    });
    return job;
  }
  // The fleet writes this as the trace of whatever it simulates.
  void Simulates(const std::string& trace) {
    service_.fleet().simulate = [this, trace](const v1::SimRequest& request, const auto&) -> absl::StatusOr<v1::Estimate> {
      ++simulations_;
      asked_ = request;
      std::ofstream(request.chrome_trace_path()) << trace;
      return v1::Estimate();
    };
  }

  testing::TestService service_;
  std::atomic<int> simulations_ = 0;
  v1::SimRequest asked_;
};

TEST_F(TraceCallsTest, MeasuredTracesAreListedAndGiven) {
  const std::string job = service_.Create().name();
  v1::ListStepTracesRequest request;
  request.set_parent(job);
  EXPECT_THAT(control().ListStepTraces(request)->step_traces(), IsEmpty());
  Put(job, 2, 5, 0, "later");
  Put(job, 1, 5, 1, "of rank 1");
  Put(job, 1, 5, 0, "of rank 0");
  std::vector<std::string> names;
  const auto listed = control().ListStepTraces(request);
  for (const auto& info : listed->step_traces()) names.push_back(info.name());
  EXPECT_THAT(names, ElementsAre(job + "/stepTraces/1-5-0", job + "/stepTraces/1-5-1", job + "/stepTraces/2-5-0"));
  EXPECT_EQ(Get(names[1])->trace_gzip(), "of rank 1");
  EXPECT_EQ(Get(names[1])->file_name(), "5.json.gz");
  ExpectFault(Get(job + "/stepTraces/1-6-0").status(), absl::StatusCode::kNotFound, "name", "no such trace");
  ExpectFault(Get(absl::StrCat(kNobody, "/stepTraces/1-6-0")).status(), absl::StatusCode::kNotFound, "name", "no such job");
  ExpectFault(Get(job + "/stepTraces/1-6").status(), absl::StatusCode::kInvalidArgument, "name", "ATTEMPT-STEP-RANK");
  request.set_parent(kNobody);
  ExpectFault(control().ListStepTraces(request).status(), absl::StatusCode::kNotFound, "parent");
}

TEST_F(TraceCallsTest, ThePredictedTraceIsSimulatedOnceForTheSlotsOfThePlan) {
  service_.fleet().SetWorkers({SomeWorker()});
  const std::string job = PlannedJob(SomeWorker());
  Simulates("a trace");
  ASSERT_OK_AND_ASSIGN(const auto file, Predict(job));
  EXPECT_EQ(file.trace_gzip(), "a trace");
  EXPECT_EQ(file.file_name(), job.substr(job.rfind('/') + 1) + "-predicted.json.gz");
  EXPECT_EQ(asked_.recipe().training().seq_len(), 77);
  EXPECT_EQ(asked_.model().name(), service_.Get(job).spec().model().name());
  EXPECT_EQ(asked_.cluster().devices_per_node(), 2);
  EXPECT_EQ(asked_.cluster().name(), ClusterName(SlotKind(SomeWorker()), 2));
  EXPECT_FALSE(std::filesystem::exists(asked_.chrome_trace_path())) << "nothing is left behind";
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(asked_.chrome_trace_path()).parent_path()));
  EXPECT_EQ(Predict(job, "")->trace_gzip(), "a trace");
  EXPECT_EQ(simulations_, 1) << "kept";
  service_.Touch(job, [](v1::Job* row) { row->mutable_chosen()->mutable_recipe()->mutable_training()->set_seq_len(78); });
  EXPECT_TRUE(Predict(job).ok());
  EXPECT_EQ(simulations_, 2) << "of another recipe";
}

TEST_F(TraceCallsTest, WhatCannotBePredictedIsSaid) {
  service_.fleet().SetWorkers({SomeWorker()});
  Simulates("a trace");
  ExpectFault(Predict(service_.Create().name()).status(), absl::StatusCode::kNotFound, "name", "is submitted and has no recipe");
  ExpectFault(Predict(kNobody).status(), absl::StatusCode::kNotFound, "name", "no such job");
  const std::string elsewhere = PlannedJob(SomeWorker(/*flops=*/5e12));
  ExpectFault(Predict(elsewhere).status(), absl::StatusCode::kNotFound, "name", "no worker of that kind");
  EXPECT_EQ(simulations_, 0);
  const std::string job = PlannedJob(SomeWorker());
  service_.fleet().simulate = [](const auto&, const auto&) -> absl::StatusOr<v1::Estimate> {
    return absl::ResourceExhaustedError("32 plans and simulations wait already");
  };
  EXPECT_THAT(Predict(job).status().message(), HasSubstr("wait already"));
  service_.fleet().simulate = [](const auto&, const auto&) { return v1::Estimate(); };  // and writes nothing
  EXPECT_EQ(Predict(job).status().code(), absl::StatusCode::kUnavailable);
  Simulates(std::string(kPredictedTraceBytes + 1, 'x'));
  const absl::Status large = Predict(job).status();
  EXPECT_EQ(large.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(large.message(), HasSubstr("lego simulate --trace"));
  Simulates("at last");
  EXPECT_EQ(Predict(job)->trace_gzip(), "at last") << "no failure is kept";
}

TEST_F(TraceCallsTest, RowsOfRanksAreThoseOfTheLatestReportsAndBounded) {
  const std::string job = service_.Create().name();
  const auto append = [&](int64_t step, int64_t ranks) {
    v1::StepMetrics metrics;
    metrics.set_attempt(1);
    metrics.set_step(step);
    metrics.set_hfu(0.5);
    for (int64_t rank = 0; rank < ranks; ++rank) metrics.add_ranks()->set_rank(rank);
    service_.Write([&](store::Transaction& transaction) { return transaction.AppendMetrics(job, metrics); });
  };
  const auto steps = [&](int64_t most) {
    v1::QueryMetricsRequest request;
    request.set_name(job);
    request.set_after_step(1000);  // says nothing of these
    request.set_max_rank_reports(most);
    std::vector<int64_t> steps;
    const auto answer = control().QueryMetrics(request);
    for (const auto& report : answer->rank_reports()) steps.push_back(report.step());
    return steps;
  };
  for (int64_t step = 1; step <= 3; ++step) append(step, 512);
  EXPECT_THAT(steps(0), IsEmpty());
  EXPECT_THAT(steps(2), ElementsAre(2, 3));
  v1::QueryMetricsRequest request;
  request.set_name(job);
  const auto points = control().QueryMetrics(request);
  EXPECT_EQ(points->points_size(), 3);
  EXPECT_EQ(points->points(2).ranks_size(), 1);
  EXPECT_EQ(points->points(2).hfu(), 0.5);
  append(4, 3000);
  EXPECT_THAT(steps(16), ElementsAre(2, 3, 4)) << "3,000 + 2 * 512 rows; with those of 1 they were more than 4,096";
  append(5, 5000);
  EXPECT_THAT(steps(16), ElementsAre(5));
  request.set_max_rank_reports(-1);
  ExpectFault(control().QueryMetrics(request).status(), absl::StatusCode::kInvalidArgument, "max_rank_reports");
}

// Who asks while it is being made waits, and nothing is made twice.
TEST(PredictedTracesTest, ManyAskAndOneSimulates) {
  std::atomic<int> simulations = 0;
  PredictedTraces traces([&](const v1::SimRequest& request, const auto&) -> absl::StatusOr<v1::Estimate> {
    ++simulations;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::ofstream(request.chrome_trace_path()) << "a trace";
    return v1::Estimate();
  });
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] { EXPECT_EQ(*traces.Get(v1::SimRequest(), [] { return false; }), "a trace"); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(simulations, 1);
}

TEST(PredictedTracesTest, TheOldestGoWhereTheRoomIsTaken) {
  int simulations = 0;
  PredictedTraces traces([&](const v1::SimRequest& request, const auto&) -> absl::StatusOr<v1::Estimate> {
    ++simulations;
    std::ofstream(request.chrome_trace_path()) << std::string(kPredictedTraceBytes, 'x');
    return v1::Estimate();
  });
  const auto get = [&](uint64_t id) {
    v1::SimRequest request;
    request.set_id(id);
    return traces.Get(request, [] { return false; }).status();
  };
  constexpr int kFit = kPredictedTracesBytes / kPredictedTraceBytes - 1;  // with their keys one more is too much
  for (int id = 1; id <= kFit; ++id) EXPECT_TRUE(get(id).ok());
  EXPECT_TRUE(get(1).ok());
  EXPECT_EQ(simulations, kFit);
  EXPECT_TRUE(get(100).ok());  // takes the place of 2, which nobody has asked for since
  EXPECT_TRUE(get(1).ok());
  EXPECT_EQ(simulations, kFit + 1);
  EXPECT_TRUE(get(2).ok());
  EXPECT_EQ(simulations, kFit + 2);
}

}  // namespace
}  // namespace legoai::server

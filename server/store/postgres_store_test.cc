// The store on PostgreSQL meets the contract, on a real server; what it costs in round trips, and that no statement looks at more
// rows than it must.
#include "server/store/postgres_store.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/store/contract_test.h"
#include "server/store/postgres_schema.h"
#include "server/store/postgres_statements.h"
#include "server/store/sqlite_store.h"
#include "server/store/testing/postgres_server.h"

namespace legoai::store {
namespace {

// A schema for each folder, whose name lies in it.
std::string UrlOf(const std::string& folder) {
  static int schemas = 0;
  std::string schema;
  std::ifstream(folder + "/schema") >> schema;
  if (schema.empty()) {
    schema = absl::StrCat("schema_", ++schemas);
    std::ofstream(folder + "/schema") << schema;
  }
  return PostgresServer::OfThisProcess().Url(schema);
}

}  // namespace

const Backend kPostgres = {
    .name = "postgresql",
    .open = [](const std::string& folder) { return OpenPostgresStore(UrlOf(folder)); },
    .open_other = [](const std::string& folder) { return OpenSqliteStore(folder + "/other.db"); },
};
INSTANTIATE_TEST_SUITE_P(Postgres, StoreContract, testing::Values(kPostgres), BackendName);
INSTANTIATE_TEST_SUITE_P(PostgresAndSqlite, StoreComparison, testing::Values(kPostgres), BackendName);

namespace {

class PostgresStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    static int schemas = 0;
    url_ = PostgresServer::OfThisProcess().Url(absl::StrCat("trips_", ++schemas));
    PostgresOptions options;
    options.on_round_trip = [this] { ++round_trips_; };
    auto store = OpenPostgresStore(url_, options);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    for (int64_t number = 1; number <= 4; ++number) {
      ASSERT_TRUE(store_->Write([&](Transaction& t) { return t.InsertJob(MakeJob(number), {}); }).ok());
    }
    // Each reader sets itself up when it is opened.
    ASSERT_TRUE(store_->Read([](ReadTransaction& t) { return t.GetJob(JobName(1)).status(); }).ok());
  }

  int64_t TripsOfWrite(const std::function<absl::Status(Transaction&)>& work,
                       absl::StatusCode expected = absl::StatusCode::kOk) {
    const int64_t before = round_trips_;
    EXPECT_EQ(store_->Write(work).code(), expected);
    return round_trips_ - before;
  }
  int64_t TripsOfRead(const std::function<absl::Status(ReadTransaction&)>& work) {
    const int64_t before = round_trips_;
    const absl::Status status = store_->Read(work);
    EXPECT_TRUE(status.ok()) << status;
    return round_trips_ - before;
  }

  std::atomic<int64_t> round_trips_ = 0;
  std::string url_;
  std::unique_ptr<Store> store_;
};

absl::Status Transit(Transaction& t, int64_t number) {
  absl::StatusOr<std::optional<v1::Job>> job = t.GetJob(JobName(number));
  if (!job.ok()) return job.status();
  const v1::Job next = Next(**job, v1::RUNNING);
  v1::Transition transition;
  transition.set_job(next.name());
  transition.set_version(next.version());
  RETURN_IF_ERROR(t.UpdateJob(next, next.version() - 1));
  RETURN_IF_ERROR(t.AppendTransition(transition));
  return t.AppendLog(next.name(), {});
}

TEST_F(PostgresStoreTest, SaysWhatItIs) {
  EXPECT_EQ(store_->Backend(), "postgresql");
  EXPECT_EQ(store_->SchemaVersion(), 3);
}

// As the table in postgres_transaction.h says.
TEST_F(PostgresStoreTest, ATransitionCostsThreeRoundTrips) {
  for (int i = 0; i < 5; ++i) EXPECT_EQ(TripsOfWrite([](Transaction& t) { return Transit(t, 1); }), 3);
}

TEST_F(PostgresStoreTest, ASubmissionCostsThreeRoundTrips) {
  for (int64_t i = 100; i < 105; ++i) {
    EXPECT_EQ(TripsOfWrite([i](Transaction& t) {
                const Submission submission{"projects/default", absl::StrCat("request-", i), "x"};
                if (const auto found = t.FindSubmission(submission.project, submission.request_id); !found.ok())
                  return found.status();
                RETURN_IF_ERROR(t.InsertJob(MakeJob(i), submission));
                return t.AppendLog(JobName(i), {});
              }),
              3);
  }
}

TEST_F(PostgresStoreTest, ChangesAloneCostTwoRoundTrips) {
  EXPECT_EQ(TripsOfWrite([](Transaction& t) {
              v1::StepMetrics metrics;
              metrics.add_ranks();
              v1::StepTraceInfo info;
              const v1::FlightDump dump;
              RETURN_IF_ERROR(t.PutAttempt(JobName(1), {}));
              RETURN_IF_ERROR(t.PutCheckpoint(JobName(1), {}));
              RETURN_IF_ERROR(t.PutPlan(JobName(1), {}));
              RETURN_IF_ERROR(t.PutCachedPlan({}));
              RETURN_IF_ERROR(t.AppendMetrics(JobName(1), metrics));
              RETURN_IF_ERROR(t.PutStepTrace(JobName(1), info, {}));
              RETURN_IF_ERROR(t.AppendLog(JobName(1), {}));
              RETURN_IF_ERROR(t.PutFlightRecord(JobName(1), {}, &dump));
              RETURN_IF_ERROR(t.PutWorker({}));
              RETURN_IF_ERROR(t.SetTelemetrySequence("i", 1));
              return t.DeleteWorker("w");
            }),
            2);
  // One more for every 256 changes, so that no buffer grows without an end.
  EXPECT_EQ(TripsOfWrite([](Transaction& t) {
              absl::Status status;
              for (int i = 0; i < 600 && status.ok(); ++i) status = t.AppendLog(JobName(1), {});
              return status;
            }),
            4);
}

TEST_F(PostgresStoreTest, QuestionsCostOneRoundTripEach) {
  const std::string job = JobName(1);
  const JobQuery all{.project = "projects/default"}, some{.project = "projects/default", .states = {v1::QUEUED, v1::RUNNING}};
  const std::vector<std::function<absl::Status(ReadTransaction&)>> questions = {
      [&](ReadTransaction& t) { return t.GetJob(job).status(); },
      [&](ReadTransaction& t) { return t.ListJobs(all).status(); },
      [&](ReadTransaction& t) { return t.ListJobs(some).status(); },
      [&](ReadTransaction& t) { return t.CountJobs(all).status(); },
      [&](ReadTransaction& t) { return t.CountJobs(some).status(); },
      [&](ReadTransaction& t) { return t.CountJobsByState().status(); },
      [&](ReadTransaction& t) { return t.ListProjects().status(); },
      [&](ReadTransaction& t) { return t.JobsInStates({v1::QUEUED, v1::RUNNING}).status(); },
      [&](ReadTransaction& t) { return t.FindSubmission("projects/default", "r").status(); },
      [&](ReadTransaction& t) { return t.ListTransitions(job, 0, 9).status(); },
      [&](ReadTransaction& t) { return t.ListAttempts(job).status(); },
      [&](ReadTransaction& t) { return t.ListCheckpoints(job).status(); },
      [&](ReadTransaction& t) { return t.ListKeptCheckpoints(job).status(); },
      [&](ReadTransaction& t) { return t.GetPlan(job).status(); },
      [&](ReadTransaction& t) { return t.GetCachedPlan("plan:1").status(); },
      [&](ReadTransaction& t) { return t.ForEachMetrics(job, 0, [](const v1::StepMetrics&) {}); },
      [&](ReadTransaction& t) { return t.ListRankReports(job, 9).status(); },
      [&](ReadTransaction& t) { return t.ListStepTraces(job).status(); },
      [&](ReadTransaction& t) { return t.GetStepTrace(job, 1, 1, 0).status(); },
      [&](ReadTransaction& t) { return t.ListLogs({.job = job}).status(); },
      [&](ReadTransaction& t) { return t.GetFlightRecord(job).status(); },
      [&](ReadTransaction& t) { return t.ListWorkers().status(); },
      [&](ReadTransaction& t) { return t.GetWorker("w").status(); },
      [&](ReadTransaction& t) { return t.TelemetrySequence("i").status(); },
  };
  for (size_t i = 0; i < questions.size(); ++i) EXPECT_EQ(TripsOfRead(questions[i]), 1) << "question " << i;
  EXPECT_EQ(TripsOfRead([&](ReadTransaction& t) {
              absl::Status status;
              for (size_t i = 0; i < questions.size() && status.ok(); ++i) status = questions[i](t);
              return status;
            }),
            static_cast<int64_t>(questions.size()));
  EXPECT_EQ(TripsOfRead([](ReadTransaction&) { return absl::OkStatus(); }), 0);
}

TEST_F(PostgresStoreTest, MetricsComeInPages) {
  ASSERT_TRUE(store_
                  ->Write([](Transaction& t) {
                    v1::StepMetrics metrics;
                    absl::Status status;
                    for (const int64_t attempt : {1, 2}) {
                      metrics.set_attempt(attempt);
                      for (int64_t step = attempt == 1 ? 1 : 2501; step <= 5000 && status.ok(); ++step) {
                        metrics.set_step(step);
                        status = t.AppendMetrics(JobName(1), metrics);
                      }
                    }
                    return status;
                  })
                  .ok());
  std::vector<int64_t> steps;
  EXPECT_EQ(TripsOfRead([&](ReadTransaction& t) {
              return t.ForEachMetrics(JobName(1), 0, [&](const v1::StepMetrics& one) { steps.push_back(one.step()); });
            }),
            5);  // 2,500 of each attempt count: two pages each
  ASSERT_EQ(steps.size(), 5000u);
  for (int64_t i = 0; i < 5000; ++i) ASSERT_EQ(steps[i], i + 1);
}

TEST_F(PostgresStoreTest, ARefusedChangeIsDoneAgainWithEveryAnswer) {
  int runs = 0;
  EXPECT_EQ(TripsOfWrite(
                [&](Transaction& t) {
                  ++runs;
                  RETURN_IF_ERROR(t.PutPlan(JobName(1), {}));
                  return t.InsertJob(MakeJob(2), {});
                },
                absl::StatusCode::kAlreadyExists),
            1 + 2);  // taken for done; then each change by itself
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(TripsOfWrite([](Transaction& t) { return t.PutPlan(JobName(99), {}); }, absl::StatusCode::kNotFound), 1 + 1);
}

// While the first function runs, the others come: together they cost what each asks, and the end once.
TEST_F(PostgresStoreTest, WritesThatWaitAreCommittedTogether) {
  constexpr int kThreads = 4;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  int64_t least = 1000;
  while (least > 3 + kThreads - 1 + 2 && std::chrono::steady_clock::now() < deadline) {
    std::atomic<int> coming = 0;
    const int64_t before = round_trips_;
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        ++coming;
        EXPECT_TRUE(store_
                        ->Write([&](Transaction& t) {
                          while (coming < kThreads) std::this_thread::yield();
                          return Transit(t, i + 1);
                        })
                        .ok());
      });
    }
    for (std::thread& thread : threads) thread.join();
    least = std::min<int64_t>(least, round_trips_ - before);
  }
  EXPECT_LE(least, 3 + kThreads - 1 + 2) << "of " << 3 * kThreads << " alone";
}

// No operation looks at more rows than it must: PostgreSQL's own plan of every statement goes by an index.
class PostgresPlan : public PostgresStoreTest {
 protected:
  void SetUp() override {
    PostgresStoreTest::SetUp();
    auto target = ParsePostgresTarget(url_);
    auto connection = PostgresConnection::Open(*target, {}, nullptr);
    ASSERT_TRUE(connection.ok()) << connection.status();
    connection_ = *std::move(connection);
  }
  // The plan of a statement that is prepared with values of any kind.
  std::string Explain(const PostgresStatement& statement) {
    static std::set<std::string> texts;  // statements keep what they are given
    std::string nulls;
    const std::string text = statement.text;
    int parameters = 0;
    while (absl::StrContains(text, absl::StrCat("$", parameters + 1))) ++parameters;
    for (int i = 0; i < parameters; ++i) absl::StrAppend(&nulls, i == 0 ? "(" : ", ", "NULL");
    if (parameters > 0) nulls += ")";
    const absl::Status prepared =
        connection_->RunScript(absl::StrCat("PREPARE plan_", statement.name, " AS ", text));
    EXPECT_TRUE(prepared.ok()) << prepared;
    const std::string& explain = *texts.insert(absl::StrCat("EXPLAIN EXECUTE plan_", statement.name, nulls)).first;
    statements_.push_back(std::make_unique<PostgresStatement>(PostgresStatement{explain.c_str(), explain.c_str()}));
    const auto answers = connection_->RoundTrip({{statements_.back().get(), PostgresValues()}});
    EXPECT_TRUE(answers.status.ok()) << answers.status;
    std::string plan;
    if (!answers.status.ok()) return plan;
    for (int64_t row = 0; row < answers.rows[0].size(); ++row) plan += std::string(answers.rows[0].Text(row, 0)) + "\n";
    return plan;
  }

  std::unique_ptr<PostgresConnection> connection_;
  std::vector<std::unique_ptr<PostgresStatement>> statements_;
};

TEST_F(PostgresPlan, EveryStatementSearchesAnIndex) {
  int searches = 0;
  for (const PostgresStatement* statement : postgres::kPlanned) {
    const std::string plan = Explain(*statement);
    EXPECT_FALSE(absl::StrContains(plan, "Seq Scan")) << statement->name << "\n" << plan;
    searches += absl::StrContains(plan, "Index");
  }
  EXPECT_GT(searches, 40);
  // The test can fail.
  constexpr PostgresStatement kSlow = {"slow", "SELECT value FROM jobs WHERE create_time_us = 1"};
  EXPECT_TRUE(absl::StrContains(Explain(kSlow), "Seq Scan")) << Explain({"slow_2", kSlow.text});
}

// What is sorted is what is given: a page of each state, the traces of a job that stay; never what lies behind an index.
TEST_F(PostgresPlan, ListsAreReadInOrder) {
  const std::set<std::string> sorts = {"list_jobs_in_states", "jobs_in_states", "trim_rank_reports"};
  for (const PostgresStatement* statement : postgres::kPlanned) {
    const std::string plan = Explain(*statement);
    EXPECT_EQ(absl::StrContains(plan, "Sort"), sorts.contains(statement->name)) << statement->name << "\n" << plan;
  }
}

}  // namespace
}  // namespace legoai::store

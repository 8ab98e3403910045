// The embedded store meets the contract, and makes writes of several threads durable together.
#include "server/store/sqlite_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/store/contract_test.h"
#include "server/store/database.h"
#include "server/store/schema.h"
#include "server/store/sqlite_transaction.h"

namespace legoai::store {

INSTANTIATE_TEST_SUITE_P(Sqlite, StoreContract,
                         testing::Values(Backend{
                             "sqlite", [](const std::string& folder) { return OpenSqliteStore(folder + "/store.db"); }}),
                         BackendName);

namespace {

namespace fs = std::filesystem;

class SqliteStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = absl::StrCat(testing::TempDir(), "/sqlite-store-", getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    auto store = OpenSqliteStore(folder_ + "/store.db");
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  void TearDown() override {
    store_.reset();
    fs::remove_all(folder_);
  }
  // Every commit adds at least one page to the log, which is emptied only when it is much longer than in these tests.
  int64_t LogBytes() const { return static_cast<int64_t>(fs::file_size(folder_ + "/store.db-wal")); }
  // Always the same row: one page a commit.
  absl::Status PutWorker(const std::function<void()>& before = [] {}) {
    return store_->Write([&](Transaction& t) {
      before();
      v1::Worker worker;
      worker.set_name("workers/w");
      return t.PutWorker(worker);
    });
  }

  std::string folder_;
  std::unique_ptr<Store> store_;
};

TEST_F(SqliteStoreTest, SaysWhatItIs) {
  EXPECT_EQ(store_->Backend(), "sqlite");
  EXPECT_EQ(store_->SchemaVersion(), 5);
}

TEST_F(SqliteStoreTest, WritesThatWaitAreCommittedTogether) {
  constexpr int kThreads = 8;
  ASSERT_TRUE(PutWorker().ok());
  const int64_t before = LogBytes();
  ASSERT_TRUE(PutWorker().ok());
  const int64_t one = LogBytes() - before;
  ASSERT_GT(one, 0);
  // While the first function runs, the others come. That one comes too late is possible, in every round it is not.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  bool together = false;
  while (!together && std::chrono::steady_clock::now() < deadline) {
    const int64_t start = LogBytes();
    std::atomic<int> coming = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        ++coming;
        EXPECT_TRUE(PutWorker([&] {
                      while (coming < kThreads) std::this_thread::yield();
                    }).ok());
      });
    }
    for (std::thread& thread : threads) thread.join();
    const int64_t written = LogBytes() - start;
    together = written > 0 && written <= one * kThreads / 2;
  }
  EXPECT_TRUE(together);
}

// No operation looks at more rows than it must: SQLite's own plan of every statement that the operations prepare searches by an
// index, and sorts nothing.

// All operations that read or change, with every kind of query.
void RunAll(Transaction& t) {
  v1::Job job;
  job.set_name("projects/p/jobs/1");
  job.set_version(1);
  EXPECT_TRUE(t.InsertJob(job, Submission{"projects/p", "r", "c"}).ok());
  job.set_version(2);
  EXPECT_TRUE(t.UpdateJob(job, 1).ok());
  job.set_version(3);
  job.set_state(v1::RUNNING);
  EXPECT_TRUE(t.UpdateJob(job, 2).ok());
  v1::Transition transition;
  transition.set_job(job.name());
  EXPECT_TRUE(t.AppendTransition(transition).ok());
  EXPECT_TRUE(t.PutAttempt(job.name(), {}).ok());
  EXPECT_TRUE(t.PutCheckpoint(job.name(), {}).ok());
  EXPECT_TRUE(t.PutPlan(job.name(), {}).ok());
  EXPECT_TRUE(t.PutCachedPlan({}).ok());
  EXPECT_TRUE(t.GetCachedPlan("key").ok());
  v1::StepMetrics metrics;
  metrics.add_ranks();
  EXPECT_TRUE(t.AppendMetrics(job.name(), metrics).ok());
  v1::StepTraceInfo too_large;
  too_large.set_bytes(kStepTraceBytes + 1);
  EXPECT_TRUE(t.PutStepTrace(job.name(), too_large, {}).ok());
  EXPECT_TRUE(t.AppendLog(job.name(), {}).ok());
  const v1::FlightDump dump;
  EXPECT_TRUE(t.PutFlightRecord(job.name(), {}, &dump).ok());
  EXPECT_TRUE(t.PutWorker({}).ok());
  EXPECT_TRUE(t.SetTelemetrySequence("i", 1).ok());

  for (const std::vector<v1::JobState>& states : {std::vector<v1::JobState>{}, {v1::RUNNING, v1::QUEUED}}) {
    EXPECT_TRUE(t.ListJobs({.project = "projects/p", .states = states}).ok());
    EXPECT_TRUE(t.CountJobs({.project = "projects/p", .states = states}).ok());
    EXPECT_TRUE(t.CountJobs({.project = "projects/p", .states = states, .display_name_contains = "x"}).ok());
  }
  EXPECT_TRUE(t.JobsInStates({v1::RUNNING}).ok());
  EXPECT_TRUE(t.GetJob(job.name()).ok());
  EXPECT_TRUE(t.FindSubmission("projects/p", "r").ok());
  EXPECT_TRUE(t.ListTransitions(job.name(), 0, 1).ok());
  EXPECT_TRUE(t.ListAttempts(job.name()).ok());
  EXPECT_TRUE(t.ListCheckpoints(job.name()).ok());
  EXPECT_TRUE(t.ListKeptCheckpoints(job.name()).ok());
  EXPECT_TRUE(t.GetPlan(job.name()).ok());
  EXPECT_TRUE(t.ForEachMetrics(job.name(), 0, [](const v1::StepMetrics&) {}).ok());
  EXPECT_TRUE(t.ListRankReports(job.name(), 1).ok());
  EXPECT_TRUE(t.ListStepTraces(job.name()).ok());
  EXPECT_TRUE(t.GetStepTrace(job.name(), 1, 1, 0).ok());
  for (bool tail : {false, true}) EXPECT_TRUE(t.ListLogs({.job = job.name(), .tail = tail}).ok());
  EXPECT_TRUE(t.GetFlightRecord(job.name()).ok());
  EXPECT_TRUE(t.GetWorker("w").ok());
  EXPECT_TRUE(t.TelemetrySequence("i").ok());
  EXPECT_TRUE(t.DeleteWorker("w").ok());
}

// A store on which every operation has run once, and a connection of its own beside it.
class QueryPlan : public testing::Test {
 protected:
  void SetUp() override {
    const std::string path = absl::StrCat(testing::TempDir(), "/query-plan-", getpid(), ".db");
    std::filesystem::remove(path);
    auto database = Database::Open(path, Database::Use::kWrite);
    ASSERT_TRUE(database.ok()) << database.status();
    database_ = *std::move(database);
    ASSERT_TRUE(PrepareSchema(*database_).ok());
    SqliteTransaction transaction(*database_);
    RunAll(transaction);
    ASSERT_EQ(sqlite3_open(path.c_str(), &connection_), SQLITE_OK);
  }
  void TearDown() override { sqlite3_close(connection_); }

  // The steps of SQLite's plan.
  std::vector<std::string> Explain(const std::string& sql) const {
    sqlite3_stmt* statement = nullptr;
    EXPECT_EQ(sqlite3_prepare_v2(connection_, ("EXPLAIN QUERY PLAN " + sql).c_str(), -1, &statement, nullptr), SQLITE_OK) << sql;
    std::vector<std::string> steps;
    while (sqlite3_step(statement) == SQLITE_ROW)
      steps.emplace_back(reinterpret_cast<const char*>(sqlite3_column_text(statement, 3)));
    sqlite3_finalize(statement);
    return steps;
  }

  std::unique_ptr<Database> database_;

 private:
  sqlite3* connection_ = nullptr;
};

TEST_F(QueryPlan, EveryStatementSearchesAnIndex) {
  int searches = 0;
  for (const std::string& sql : database_->StatementTexts()) {
    if (absl::StrContains(sql, "sqlite_schema") || absl::StrContains(sql, "PRAGMA") || absl::StrContains(sql, "pragma")) continue;
    for (const std::string& step : Explain(sql)) {
      EXPECT_FALSE(absl::StartsWith(step, "SCAN")) << step << " in " << sql;
      EXPECT_FALSE(absl::StrContains(step, "TEMP B-TREE")) << step << " in " << sql;
      searches += absl::StartsWith(step, "SEARCH");
    }
  }
  EXPECT_GT(searches, 20);
  // The test can fail.
  EXPECT_TRUE(absl::StartsWith(Explain("SELECT value FROM jobs WHERE create_time_us = 1").at(0), "SCAN"));
}

// What a filter looks at is in the index: rows are read for the result alone.
TEST_F(QueryPlan, CountsReadNoRows) {
  int counts = 0;
  for (const std::string& sql : database_->StatementTexts()) {
    if (!absl::StrContains(sql, "COUNT(*) FROM jobs") && !absl::StrContains(sql, "SELECT ulid, id FROM jobs")) continue;
    const std::vector<std::string> steps = Explain(sql);
    ASSERT_EQ(steps.size(), 1u);
    EXPECT_TRUE(absl::StrContains(steps[0], "USING COVERING INDEX")) << steps[0] << " in " << sql;
    ++counts;
  }
  EXPECT_EQ(counts, 4);
}

// A commit looks at the checkpoints that are kept: those that were removed, of a long run nearly all, are not even passed by.
TEST_F(QueryPlan, RemovedCheckpointsCostNothing) {
  int lists = 0;
  for (const std::string& sql : database_->StatementTexts()) {
    if (!absl::StrContains(sql, "removed = 0")) continue;
    const std::string step = Explain(sql).at(0);
    EXPECT_TRUE(absl::StrContains(step, "USING INDEX kept_checkpoints")) << step << " in " << sql;
    ++lists;
  }
  EXPECT_EQ(lists, 1);
}

}  // namespace
}  // namespace legoai::store

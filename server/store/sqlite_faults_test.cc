// What can be wrong with the file of the embedded store: who it is told to, and that nothing is lost.
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/checkpoint/testing/small_file_system.h"
#include "proto/errors.h"
#include "proto/testing/assert_ok.h"
#include "server/store/database.h"
#include "server/store/schema.h"
#include "server/store/sqlite_store.h"
#include "server/store/sqlite_transaction.h"
#include "server/store/testing/must_read.h"

namespace legoai::store {
namespace {

namespace fs = std::filesystem;

v1::Job MakeJob(int64_t number, size_t bytes) {
  v1::Job job;
  job.set_name(absl::StrCat("projects/default/jobs/", 100'000 + number));
  job.set_version(1);
  job.mutable_spec()->mutable_model()->set_config_json(std::string(bytes, 'x'));
  return job;
}

absl::Status Insert(Store& store, int64_t number, size_t bytes = 10) {
  return store.Write([&](Transaction& t) { return t.InsertJob(MakeJob(number, bytes), {}); });
}

int64_t Count(Store& store) {
  return MustRead(store, [](ReadTransaction& t) { return t.CountJobs({.project = "projects/default"}); });
}

class SqliteFaults : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = absl::StrCat(testing::TempDir(), "/faults-", getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    path_ = folder_ + "/store.db";
  }
  void TearDown() override { fs::remove_all(folder_); }

  void Sql(const std::string& sql) {
    sqlite3* connection = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &connection), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(connection, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(connection);
    sqlite3_close(connection);
  }
  void MakeStoreWithAJob() {
    ASSERT_OK_AND_ASSIGN(const auto store, OpenSqliteStore(path_));
    ASSERT_TRUE(Insert(*store, 1).ok());
  }
  // The error of opening it says all `parts`, and names the field and the path.
  void ExpectRefused(absl::StatusCode code, const std::vector<std::string>& parts) {
    const absl::Status status = OpenSqliteStore(path_).status();
    EXPECT_EQ(status.code(), code) << status;
    const auto violation = GetFieldViolation(status);
    ASSERT_TRUE(violation) << status;
    EXPECT_EQ(violation->field(), "store");
    EXPECT_EQ(violation->value(), path_);
    for (const std::string& part : parts) EXPECT_TRUE(absl::StrContains(violation->remedy(), part)) << part << " in " << status;
  }

  std::string folder_, path_;
};

TEST_F(SqliteFaults, ANewerVersionIsRefusedAndLeftAlone) {
  MakeStoreWithAJob();
  Sql("UPDATE meta SET value = 99 WHERE key = 'schema_version'");
  ExpectRefused(absl::StatusCode::kFailedPrecondition,
                {"schema version 99", absl::StrCat("up to ", SchemaVersion()), "start the server that wrote it"});
  Sql(absl::StrCat("UPDATE meta SET value = ", SchemaVersion(), " WHERE key = 'schema_version'"));
  ASSERT_OK_AND_ASSIGN(const auto store, OpenSqliteStore(path_));
  EXPECT_EQ(Count(*store), 1);
}

TEST_F(SqliteFaults, AnOlderVersionIsBroughtUpToDate) {
  MakeStoreWithAJob();
  std::vector<std::string_view> later(Migrations().begin(), Migrations().end());
  later.insert(later.end(), {"CREATE TABLE more (id INTEGER PRIMARY KEY)",
                             "INSERT INTO more VALUES (5); ALTER TABLE more ADD COLUMN text TEXT"});
  {
    const auto database = Database::Open(path_, Database::Use::kWrite);
    ASSERT_TRUE(PrepareSchema(**database, later).ok());
    Statement row = (*database)->Query("SELECT (SELECT value FROM meta), (SELECT id FROM more), (SELECT COUNT(*) FROM jobs)");
    ASSERT_TRUE(row.Next()) << row.status();
    EXPECT_EQ(row.Int(0), SchemaVersion() + 2);
    EXPECT_EQ(row.Int(1), 5);
    EXPECT_EQ(row.Int(2), 1);
  }
  const auto again = Database::Open(path_, Database::Use::kWrite);
  EXPECT_TRUE(PrepareSchema(**again, later).ok());
}

// Version 1 did not mark those that were removed.
TEST_F(SqliteFaults, CheckpointsOfTheFirstVersionAreKeptOrRemovedAsTheyWere) {
  {
    const auto database = Database::Open(path_, Database::Use::kWrite);
    ASSERT_TRUE(PrepareSchema(**database, Migrations().first(1)).ok());
    ASSERT_TRUE(SqliteTransaction(**database).InsertJob(MakeJob(1, 10), {}).ok());
    v1::Checkpoint checkpoint;
    for (const int64_t step : {2, 1}) {
      checkpoint.set_step(step);
      ASSERT_TRUE((*database)
                      ->Run("INSERT INTO checkpoints (job, step, epoch, value) SELECT id, ?1, 0, ?2 FROM jobs", step, checkpoint)
                      .ok());
      checkpoint.set_remove_time_us(5);
    }
  }
  ASSERT_OK_AND_ASSIGN(const auto store, OpenSqliteStore(path_));
  const auto steps = [&](auto list) {
    std::vector<int64_t> steps;
    const auto listed = MustRead(*store, [&](ReadTransaction& t) { return (t.*list)(MakeJob(1, 10).name()); });
    for (const v1::Checkpoint& one : listed) steps.push_back(one.step());
    return steps;
  };
  EXPECT_EQ(steps(&ReadTransaction::ListCheckpoints), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(steps(&ReadTransaction::ListKeptCheckpoints), (std::vector<int64_t>{2}));
}

TEST_F(SqliteFaults, AMigrationThatFailsChangesNothing) {
  MakeStoreWithAJob();
  std::vector<std::string_view> broken(Migrations().begin(), Migrations().end());
  broken.insert(broken.end(), {"CREATE TABLE more (id INTEGER PRIMARY KEY)", "CREATE TABLE jobs (a)"});
  {
    const auto database = Database::Open(path_, Database::Use::kWrite);
    const absl::Status status = PrepareSchema(**database, broken);
    EXPECT_TRUE(absl::StrContains(status.message(), "jobs already exists")) << status;
    EXPECT_FALSE((*database)->in_transaction());
    EXPECT_FALSE((*database)->Query("SELECT * FROM more").status().ok());
  }
  ASSERT_OK_AND_ASSIGN(const auto store, OpenSqliteStore(path_));
  EXPECT_EQ(Count(*store), 1);
}

TEST_F(SqliteFaults, AnotherProgramsDatabaseIsRefused) {
  Sql("CREATE TABLE bookmarks (url TEXT)");
  ExpectRefused(absl::StatusCode::kFailedPrecondition, {"of another program"});
  Sql("CREATE TABLE meta (key TEXT, value TEXT)");
  ExpectRefused(absl::StatusCode::kFailedPrecondition, {"of another program"});
  Sql("DROP TABLE meta; CREATE TABLE meta (version TEXT)");
  ExpectRefused(absl::StatusCode::kFailedPrecondition, {"of another program"});
}

TEST_F(SqliteFaults, WhatIsNoDatabaseIsRefused) {
  std::ofstream(path_) << std::string(10'000, 'x');
  ExpectRefused(absl::StatusCode::kDataLoss, {"damaged or no store", "backup"});
  EXPECT_EQ(fs::file_size(path_), 10'000u);
}

TEST_F(SqliteFaults, ADamagedRowIsNamed) {
  MakeStoreWithAJob();
  ASSERT_OK_AND_ASSIGN(auto store, OpenSqliteStore(path_));
  Sql("UPDATE jobs SET value = x'ff'");
  const absl::Status status =
      store->Read([](ReadTransaction& t) { return t.ListJobs({.project = "projects/default"}).status(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "jobs")) << status;
  store.reset();
  ExpectRefused(absl::StatusCode::kDataLoss, {"a row of the table jobs cannot be read", "--repair"});
}

TEST_F(SqliteFaults, AFolderThatIsNotThere) {
  path_ = folder_ + "/none/store.db";
  ExpectRefused(absl::StatusCode::kPermissionDenied, {"No such file or directory", "folder must be there"});
}

TEST_F(SqliteFaults, ASecondServerIsToldWhoHasIt) {
  ASSERT_OK_AND_ASSIGN(auto store, OpenSqliteStore(path_));
  const std::string pid = absl::StrCat("process ", getpid());
  ExpectRefused(absl::StatusCode::kFailedPrecondition, {pid, "end that server first"});
  ASSERT_TRUE(Insert(*store, 1).ok());  // the first one goes on
  store.reset();
  EXPECT_TRUE(OpenSqliteStore(path_).ok());
}

// Runs `test` where `folder_` is a file system of `bytes`.
#define ON_SMALL_FILE_SYSTEM(bytes, test)                                          \
  const pid_t child = fork();                                                      \
  if (child == 0) {                                                                \
    const absl::Status mounted = checkpoint::MountSmallFileSystem(folder_, bytes); \
    EXPECT_TRUE(mounted.ok()) << mounted;                                          \
    if (mounted.ok()) test();                                                      \
    _exit(HasFailure() ? 1 : 0);                                                   \
  }                                                                                \
  int child_status = 0;                                                            \
  ASSERT_EQ(waitpid(child, &child_status, 0), child);                              \
  EXPECT_EQ(child_status, 0);

TEST_F(SqliteFaults, AFullDiskLosesNothingAndTheStoreGoesOn){
    ON_SMALL_FILE_SYSTEM(4 << 20,
                         [&] {
                           std::ofstream(folder_ + "/other") << std::string(1 << 20, 'x');
                           int64_t durable = 0;
                           {
                             ASSERT_OK_AND_ASSIGN(const auto store, OpenSqliteStore(path_));
                             absl::Status status;
                             while (durable < 1000 && (status = Insert(*store, durable, 20'000)).ok()) ++durable;
                             EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
                             EXPECT_TRUE(absl::StrContains(status.message(), "the disk is full")) << status;
                             EXPECT_EQ(GetFieldViolation(status).value_or(v1::FieldViolation()).value(), path_);
                             EXPECT_GT(durable, 10);
                             EXPECT_EQ(Count(*store), durable);
                             // Nothing of a transaction is kept: not the small job before the large one either.
                             EXPECT_EQ(store
                                           ->Write([&](Transaction& t) {
                                             EXPECT_TRUE(t.InsertJob(MakeJob(5000, 10), {}).ok());
                                             return t.InsertJob(MakeJob(5001, 3 << 20), {});
                                           })
                                           .code(),
                                       absl::StatusCode::kResourceExhausted);
                             EXPECT_EQ(Count(*store), durable);
                             fs::remove(folder_ + "/other");
                             EXPECT_TRUE(Insert(*store, durable++, 20'000).ok());
                             EXPECT_EQ(Count(*store), durable);
                           }
                           ASSERT_OK_AND_ASSIGN(const auto store, OpenSqliteStore(path_));
                           EXPECT_EQ(Count(*store), durable);
                         })}

// An error that the function passes over is an error all the same.
TEST_F(SqliteFaults, AFullDiskCannotBeOverlooked){
    ON_SMALL_FILE_SYSTEM(2 << 20,
                         [&] {
                           ASSERT_OK_AND_ASSIGN(const auto store, OpenSqliteStore(path_));
                           // More than the cache of changed pages holds: the statement itself fails, not the commit.
                           const absl::Status status = store->Write([&](Transaction& t) {
                             for (int64_t i = 0; i < 12; ++i) (void)t.InsertJob(MakeJob(i, 8 << 20), {});
                             return absl::OkStatus();
                           });
                           EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
                           EXPECT_EQ(Count(*store), 0);
                           EXPECT_TRUE(Insert(*store, 1).ok());
                         })}

// Writes that are made durable together: one that is too large fails alone.
TEST_F(SqliteFaults, OnAFullDiskTheSmallOnesOfAGroupSucceed) {
  ON_SMALL_FILE_SYSTEM(4 << 20, [&] {
    ASSERT_OK_AND_ASSIGN(const auto store, OpenSqliteStore(path_));
    std::atomic<int64_t> durable = 0;
    std::vector<std::thread> threads;
    for (int64_t thread = 0; thread < 6; ++thread) {
      threads.emplace_back([&, thread] {
        for (int64_t i = 0; i < 20; ++i) {
          const bool large = thread == 0;
          const absl::Status status = Insert(*store, thread * 100 + i, large ? 6 << 20 : 10);
          EXPECT_EQ(status.code(), large ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kOk) << status;
          durable += status.ok();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(durable, 100);
    EXPECT_EQ(Count(*store), 100);
  })
}

}  // namespace
}  // namespace legoai::store

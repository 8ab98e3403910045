// What can go wrong between the store and its PostgreSQL, on a real server: what users are told, that nothing is lost that was
// answered, and that nothing is done twice.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "proto/testing/assert_ok.h"
#include "server/store/open_store.h"
#include "server/store/postgres_schema.h"
#include "server/store/postgres_store.h"
#include "server/store/testing/cutting_proxy.h"
#include "server/store/testing/fault_jobs.h"
#include "server/store/testing/must_read.h"
#include "server/store/testing/postgres_server.h"

namespace legoai::store {
namespace {

namespace fs = std::filesystem;

// One transition: the job's version, a row of its history, a line of its log.
absl::Status Transit(Transaction& t, int64_t number) {
  ASSIGN_OR_RETURN(auto job, t.GetJob(MakeJob(number).name()));
  v1::Job next = *job;
  next.set_version(next.version() + 1);
  v1::Transition transition;
  transition.set_job(next.name());
  transition.set_version(next.version());
  RETURN_IF_ERROR(t.UpdateJob(next, next.version() - 1));
  RETURN_IF_ERROR(t.AppendTransition(transition));
  return t.AppendLog(next.name(), {});
}

// The job has had exactly so many transitions.
void ExpectTransitions(Store& store, int64_t number, int64_t transitions) {
  const std::string name = MakeJob(number).name();
  EXPECT_EQ(MustRead(store, [&](ReadTransaction& t) { return t.GetJob(name); })->version(), 1 + transitions);
  EXPECT_EQ(MustRead(store, [&](ReadTransaction& t) { return t.ListTransitions(name, 0, 1'000'000); }).size(), transitions);
  const LogQuery lines{.job = name, .limit = 1'000'000};
  EXPECT_EQ(MustRead(store, [&](ReadTransaction& t) { return t.ListLogs(lines); }).size(), transitions);
}

// Several threads that make transitions, each of a job of its own, and count those that were answered with OK.
class Load {
 public:
  static constexpr int kThreads = 4;
  explicit Load(Store& store) : store_(store) {
    for (int i = 0; i < kThreads; ++i) EXPECT_TRUE(Insert(store, i).ok());
    for (int i = 0; i < kThreads; ++i) {
      threads_.emplace_back([this, i] {
        while (!end_) {
          const absl::Status status = store_.Write([i](Transaction& t) { return Transit(t, i); });
          // Refused, and then not done.
          EXPECT_TRUE(status.ok() || absl::IsUnavailable(status)) << status;
          ++(status.ok() ? done_[i] : refused_);
          const absl::Status read = store_.Read([i](ReadTransaction& t) { return t.GetJob(MakeJob(i).name()).status(); });
          EXPECT_TRUE(read.ok() || absl::IsUnavailable(read)) << read;
        }
      });
    }
  }
  int64_t done() const { return done_[0] + done_[1] + done_[2] + done_[3]; }
  // `more` transitions are done.
  void Await(int64_t more) const {
    const int64_t enough = done() + more;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    while (done() < enough && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    EXPECT_GE(done(), enough);
  }
  void EndAndCheck() {
    end_ = true;
    for (std::thread& thread : threads_) thread.join();
    for (int i = 0; i < kThreads; ++i) ExpectTransitions(store_, i, done_[i]);
    std::cout << done() << " transitions, " << refused_ << " refused\n";
  }

 private:
  Store& store_;
  std::atomic<bool> end_ = false;
  std::atomic<int64_t> done_[kThreads] = {}, refused_ = 0;
  std::vector<std::thread> threads_;
};

class PostgresFaults : public testing::Test {
 protected:
  void SetUp() override {
    static int schemas = 0;
    schema_ = absl::StrCat("faults_", ++schemas);
    url_ = server().Url(schema_);
  }
  static PostgresServer& server() { return PostgresServer::OfThisProcess(); }
  absl::StatusOr<std::unique_ptr<Store>> Open() { return OpenPostgresStore(url_, Short()); }
  std::string Sql(const std::string& sql) {
    const auto answer = server().Sql(absl::StrCat("SET search_path = ", schema_, "; ", sql));
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.value_or("");
  }
  std::unique_ptr<PostgresConnection> Connect() {
    auto connection = PostgresConnection::Open(*ParsePostgresTarget(url_), Short().times, nullptr);
    EXPECT_TRUE(connection.ok()) << connection.status();
    return *std::move(connection);
  }
  static void ExpectRefused(const absl::Status& status, absl::StatusCode code, const std::vector<std::string>& parts) {
    EXPECT_EQ(status.code(), code) << status;
    const auto violation = GetFieldViolation(status);
    ASSERT_TRUE(violation) << status;
    EXPECT_EQ(violation->field(), "store");
    for (const std::string& part : parts) EXPECT_TRUE(absl::StrContains(status.message(), part)) << part << " in " << status;
  }

  std::string schema_, url_;
};

TEST_F(PostgresFaults, ANewerVersionIsRefusedAndLeftAlone) {
  {
    ASSERT_OK_AND_ASSIGN(const auto store, Open());
    ASSERT_TRUE(Insert(*store, 1).ok());
  }
  Sql("UPDATE meta SET value = 99 WHERE key = 'schema_version'");
  ExpectRefused(Open().status(), absl::StatusCode::kFailedPrecondition,
                {"schema version 99", absl::StrCat("up to ", PostgresSchemaVersion()), "start the server that wrote it"});
  Sql(absl::StrCat("UPDATE meta SET value = ", PostgresSchemaVersion(), " WHERE key = 'schema_version'"));
  ASSERT_OK_AND_ASSIGN(const auto store, Open());
  EXPECT_EQ(Count(*store), 1);
}

TEST_F(PostgresFaults, AnOlderVersionIsBroughtUpToDateOrLeftAsItWas) {
  { ASSERT_OK_AND_ASSIGN(const auto store, Open()); }
  std::vector<std::string_view> later(PostgresMigrations().begin(), PostgresMigrations().end());
  later.insert(later.end(), {"CREATE TABLE more (id BIGINT)", "INSERT INTO more VALUES (5); CREATE TABLE jobs (a BIGINT)"});
  const auto connection = Connect();
  const absl::Status broken = PreparePostgresSchema(*connection, later);
  EXPECT_TRUE(absl::StrContains(broken.message(), "already exists")) << broken;
  EXPECT_EQ(Sql("SELECT value FROM meta WHERE key = 'schema_version'"), absl::StrCat(PostgresSchemaVersion()));
  EXPECT_EQ(Sql(absl::StrCat("SELECT COUNT(*) FROM pg_tables WHERE tablename = 'more' AND schemaname = '", schema_, "'")), "0");
  later.back() = "INSERT INTO more VALUES (5); ALTER TABLE more ADD COLUMN text TEXT";
  const absl::Status done = PreparePostgresSchema(*connection, later);
  EXPECT_TRUE(done.ok()) << done;
  EXPECT_EQ(Sql("SELECT value FROM meta WHERE key = 'schema_version'"), absl::StrCat(PostgresSchemaVersion() + 2));
  EXPECT_EQ(Sql("SELECT id FROM more WHERE text IS NULL"), "5");
  EXPECT_TRUE(PreparePostgresSchema(*connection, later).ok());
}

TEST_F(PostgresFaults, WhatIsNoPlaceForAStoreIsRefused) {
  Sql("CREATE TABLE bookmarks (url TEXT)");
  ExpectRefused(Open().status(), absl::StatusCode::kFailedPrecondition, {"of another program"});
  Sql("CREATE TABLE meta (key TEXT, value BIGINT)");
  ExpectRefused(Open().status(), absl::StatusCode::kFailedPrecondition, {"of another program"});
  Sql("DROP SCHEMA " + schema_ + " CASCADE");
  ExpectRefused(Open().status(), absl::StatusCode::kFailedPrecondition, {"CREATE SCHEMA"});
  ExpectRefused(OpenPostgresStore(server().UrlAs("postgres", "x", "nothing"), Short()).status(), absl::StatusCode::kNotFound,
                {"3D000", "createdb"});
  ASSERT_TRUE(server().Sql("CREATE DATABASE plain ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0").ok());
  ExpectRefused(OpenPostgresStore(server().UrlAs("postgres", "x", "plain"), Short()).status(),
                absl::StatusCode::kFailedPrecondition, {"SQL_ASCII", "UTF8"});
}

TEST_F(PostgresFaults, NoPasswordIsEverShown) {
  const std::string secret = "tr0ub4dor";
  std::ofstream(server().folder() + "/data/pg_hba.conf") << "local all guarded scram-sha-256\nlocal all all trust\n";
  ASSERT_TRUE(server().Sql("CREATE USER guarded PASSWORD 'another'").ok());
  ASSERT_TRUE(server().Sql("SELECT pg_reload_conf()").ok());
  // The first process reads it by itself, some time later.
  absl::Status denied;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!absl::StrContains(denied.message(), "28P01") && std::chrono::steady_clock::now() < until) {
    denied = OpenPostgresStore(server().UrlAs("guarded", secret, "postgres"), Short()).status();
  }
  ExpectRefused(denied, absl::StatusCode::kPermissionDenied, {"28P01", "user=guarded", "PGPASSWORD"});
  std::vector<absl::Status> errors = {denied};
  const std::vector<std::string> bad_urls = {"postgresql://u:" + secret + "@h/db?nothing=1",
                                             "postgresql://" + secret + "@[::1/db",
                                             "postgresql:" + secret,
                                             "mysql://u:" + secret + "@h/db",
                                             "sqlite",
                                             "host=h password=" + secret};
  for (const std::string& bad : bad_urls) {
    errors.push_back(OpenStore(bad, {}, Short()).status());
    EXPECT_TRUE(absl::IsInvalidArgument(errors.back())) << errors.back();
    errors.push_back(StoreText(bad).status());
  }
  const std::string nowhere = "postgresql://u:" + secret + "@/db?host=%2Fnowhere&sslpassword=" + secret;
  errors.push_back(OpenPostgresStore(nowhere, Short()).status());
  EXPECT_TRUE(absl::IsUnavailable(errors.back())) << errors.back();
  for (const absl::Status& error : errors) {
    EXPECT_FALSE(error.ok());
    EXPECT_FALSE(absl::StrContains(error.ToString(), secret)) << error;
  }
  EXPECT_EQ(*StoreText("postgresql://u:" + secret + "@h:77/db"), "postgresql: host=h port=77 dbname=db user=u");
}

TEST_F(PostgresFaults, ASecondServerIsToldWhoHasIt) {
  ASSERT_OK_AND_ASSIGN(auto store, Open());
  ExpectRefused(Open().status(), absl::StatusCode::kFailedPrecondition,
                {absl::StrCat("process ", getpid()), "end that server first"});
  ASSERT_TRUE(Insert(*store, 1).ok());  // the first one goes on
  store.reset();
  EXPECT_TRUE(Open().ok());
}

// As after a network that was cut, when another server leads.
TEST_F(PostgresFaults, AServerWhoseTermIsOverChangesNothing) {
  std::atomic<int> told = 0;
  PostgresOptions options = Short();
  options.on_superseded = [&](const absl::Status&) { ++told; };
  ASSERT_OK_AND_ASSIGN(auto store, OpenPostgresStore(url_, options));
  ASSERT_TRUE(Insert(*store, 1).ok());
  Sql("UPDATE leader SET term = term + 1");
  for (int i = 0; i < 2; ++i)
    ExpectRefused(Insert(*store, 2), absl::StatusCode::kUnavailable, {"another server has taken the store over"});
  EXPECT_EQ(told, 1);
  EXPECT_EQ(Count(*store), 1);
  // The same after the connection was lost.
  Sql("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'legoai-server'");
  EXPECT_TRUE(absl::IsUnavailable(Insert(*store, 2)));
  EXPECT_EQ(Count(*store), 1);
}

// As another server's after a restored backup: what was answered is not there.
TEST_F(PostgresFaults, ADatabaseThatWentBackIsNotWrittenTo) {
  ASSERT_OK_AND_ASSIGN(auto store, Open());
  for (int64_t i = 1; i <= 3; ++i) ASSERT_TRUE(Insert(*store, i).ok());
  Sql("UPDATE leader SET sequence = sequence - 1");
  Sql("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'legoai-server'");
  ExpectRefused(Insert(*store, 4), absl::StatusCode::kUnavailable, {"restoring a backup"});
  EXPECT_EQ(Count(*store), 3);
}

TEST_F(PostgresFaults, ADatabaseThatRestartsCostsLatency) {
  ASSERT_OK_AND_ASSIGN(auto store, Open());
  Load load(*store);
  for (int i = 0; i < 4; ++i) {
    load.Await(100);
    server().EndImmediately();
    const absl::Status again = server().StartAgain();
    ASSERT_TRUE(again.ok()) << again;
  }
  load.Await(100);
  load.EndAndCheck();
}

TEST_F(PostgresFaults, ADatabaseThatIsAwayForLongIsARefusalAndThenGoesOn) {
  ASSERT_OK_AND_ASSIGN(auto store, Open());
  ASSERT_TRUE(Insert(*store, 1).ok());
  PostgresOutage outage(server());
  ExpectRefused(Insert(*store, 2), absl::StatusCode::kUnavailable, {"check that the database runs"});
  EXPECT_TRUE(absl::IsUnavailable(store->Read([](ReadTransaction& t) { return t.ListWorkers().status(); })));
  ASSERT_TRUE(outage.End().ok());
  EXPECT_TRUE(Insert(*store, 3).ok());
  EXPECT_EQ(Count(*store), 2);
}

TEST_F(PostgresFaults, ADatabaseThatStandsStillCostsLatencyOrARefusal) {
  ASSERT_OK_AND_ASSIGN(auto store, Open());
  Load load(*store);
  for (const int milliseconds : {200, 5000}) {  // within what is waited for, and beyond
    load.Await(50);
    const std::vector<pid_t> stopped = server().Backends();
    for (const pid_t backend : stopped) kill(backend, SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    for (const pid_t backend : stopped) kill(backend, SIGCONT);
  }
  load.Await(50);
  load.EndAndCheck();
}

TEST_F(PostgresFaults, ConnectionsThatAreEndedAreReplaced) {
  ASSERT_OK_AND_ASSIGN(auto store, Open());
  ASSERT_TRUE(Insert(*store, 1).ok());
  EXPECT_EQ(Count(*store), 1);
  for (int64_t i = 2; i < 6; ++i) {
    Sql("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'legoai-server'");
    EXPECT_EQ(Count(*store), i - 1);
    EXPECT_TRUE(Insert(*store, i).ok());
  }
}

// A store behind a proxy that cuts its connections.
class PostgresCuts : public PostgresFaults {
 protected:
  void SetUp() override {
    PostgresFaults::SetUp();
    folder_ = "/tmp/legoai-proxy-XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    proxy_ = std::make_unique<CuttingProxy>(folder_, server().folder());
    std::string host = folder_;
    host.replace(0, 5, "%2Ftmp%2F");
    url_ = absl::StrCat("postgresql://postgres@/postgres?host=", host, "&port=5432&options=-csearch_path%3D", schema_);
    ASSERT_OK_AND_ASSIGN(store_, Open());
    ASSERT_TRUE(Insert(*store_, 1).ok());
  }
  void TearDown() override {
    store_.reset();
    proxy_.reset();
    fs::remove_all(folder_);
  }
  absl::Status TransitCounted() {
    return store_->Write([this](Transaction& t) {
      ++runs_;
      return Transit(t, 1);
    });
  }

  std::string folder_;
  std::unique_ptr<CuttingProxy> proxy_;
  std::unique_ptr<Store> store_;
  int runs_ = 0;
};

TEST_F(PostgresCuts, ACommitWhoseAnswerIsLostIsDoneOnce) {
  for (int64_t i = 1; i <= 5; ++i) {
    runs_ = 0;
    proxy_->CutNextCommit(CuttingProxy::Cut::kAfterCommit);
    const absl::Status status = TransitCounted();
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(proxy_->cut());
    EXPECT_EQ(runs_, 1) << "it had been kept";
    ExpectTransitions(*store_, 1, i);
  }
}

TEST_F(PostgresCuts, ACommitThatNeverArrivedIsDoneAgain) {
  for (int64_t i = 1; i <= 5; ++i) {
    runs_ = 0;
    proxy_->CutNextCommit(CuttingProxy::Cut::kBeforeCommit);
    const absl::Status status = TransitCounted();
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(proxy_->cut());
    EXPECT_EQ(runs_, 2);
    ExpectTransitions(*store_, 1, i);
  }
}

// Others are refused meanwhile; this one is not answered before it is known.
TEST_F(PostgresCuts, ADoubtOutlastsThePatience) {
  for (const CuttingProxy::Cut when : {CuttingProxy::Cut::kAfterCommit, CuttingProxy::Cut::kBeforeCommit}) {
    const int64_t before = MustRead(*store_, [](ReadTransaction& t) { return t.GetJob(MakeJob(1).name()); })->version() - 1;
    proxy_->RefuseNew(true);
    proxy_->CutNextCommit(when);
    std::atomic<bool> answered = false;
    std::thread writes([&] {
      const absl::Status status = TransitCounted();
      EXPECT_TRUE(status.ok()) << status;
      answered = true;
    });
    std::this_thread::sleep_for(absl::ToChronoMilliseconds(Short().patience + absl::Seconds(1)));
    EXPECT_FALSE(answered);
    proxy_->RefuseNew(false);
    writes.join();
    ExpectTransitions(*store_, 1, before + 1);
  }
}

// What was in doubt is there, or not, when the next server comes; nothing of this one is done in between.
TEST_F(PostgresCuts, ADoubtEndsWithTheServer) {
  std::atomic<bool> ends = false;
  std::atomic<int> reasons = 0, superseded = 0;
  std::set<std::string> distinct;  // of the reasons
  PostgresOptions options = Short();
  options.ends = [&] { return ends.load(); };
  options.on_superseded = [&](const absl::Status&) { ++superseded; };
  options.on_trouble = [&](const std::string& what) {
    if (!absl::StrContains(what, "there is no connection")) return;
    distinct.insert(what);
    ++reasons;
  };
  int64_t kept = 0;
  for (const CuttingProxy::Cut when : {CuttingProxy::Cut::kAfterCommit, CuttingProxy::Cut::kBeforeCommit}) {
    store_.reset();
    ASSERT_OK_AND_ASSIGN(store_, OpenPostgresStore(url_, options));
    ends = false, reasons = 0, distinct.clear();
    proxy_->RefuseNew(true);
    proxy_->CutNextCommit(when);
    absl::Status status;
    std::thread writes([&] { status = TransitCounted(); });
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (reasons == 0 && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    EXPECT_GE(reasons, 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // some more tries, which tell nothing new
    ends = true;
    writes.join();
    ExpectRefused(status, absl::StatusCode::kUnavailable, {"it is not known whether this was kept"});
    EXPECT_EQ(reasons, static_cast<int>(distinct.size())) << "each is told once";
    proxy_->RefuseNew(false);
    ExpectRefused(Insert(*store_, 2), absl::StatusCode::kUnavailable, {"this server ends"});
    EXPECT_EQ(superseded, 0);
    kept += when == CuttingProxy::Cut::kAfterCommit;
    ExpectTransitions(*store_, 1, kept);
  }
  store_.reset();  // it calls what ends here
}

TEST_F(PostgresCuts, WhateverIsCutIsDoneOnce) {
  const unsigned seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  store_.reset();
  Sql("TRUNCATE jobs, job_counts");
  ASSERT_OK_AND_ASSIGN(store_, Open());
  Load load(*store_);
  for (int i = 0; i < 60; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));
    switch (random() % 3) {
      case 0: proxy_->CutAll(); break;
      case 1: proxy_->CutNextCommit(CuttingProxy::Cut::kAfterCommit); break;
      default: proxy_->CutNextCommit(CuttingProxy::Cut::kBeforeCommit);
    }
  }
  load.Await(20);
  load.EndAndCheck();
}

TEST_F(PostgresFaults, WhoLocksTheTablesIsARefusal) {
  ASSERT_OK_AND_ASSIGN(auto store, Open());
  ASSERT_TRUE(Insert(*store, 1).ok());
  {
    const auto other = Connect();
    ASSERT_TRUE(other->RunScript("BEGIN; LOCK TABLE jobs").ok());
    ExpectRefused(Insert(*store, 2), absl::StatusCode::kUnavailable, {"55P03", "another session locks"});
  }
  EXPECT_TRUE(Insert(*store, 2).ok());
  EXPECT_EQ(Count(*store), 2);
}

TEST_F(PostgresFaults, ADamagedRowIsNamedAndNothingIsWrittenAnyMore) {
  PostgresOptions options = Short();
  std::atomic<int> told = 0;
  options.on_damage = [&](const absl::Status&) { ++told; };
  ASSERT_OK_AND_ASSIGN(const auto store, OpenPostgresStore(url_, options));
  ASSERT_TRUE(Insert(*store, 1).ok());
  Sql("UPDATE jobs SET value = '\\xff'");
  ExpectRefused(store->Read([](ReadTransaction& t) { return t.ListJobs({.project = "projects/default"}).status(); }),
                absl::StatusCode::kDataLoss, {"list_jobs", "restore a backup"});
  EXPECT_EQ(told, 1);
  EXPECT_EQ(Insert(*store, 2).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Count(*store), 1);
}

// As a disk does, or memory: the first page of a table is no page any more.
TEST_F(PostgresFaults, DamageThatPostgresqlReportsIsTheEndOfAllWriting) {
  v1::Worker worker;
  worker.set_name("workers/a");
  const auto put = [&](Transaction& t) { return t.PutWorker(worker); };
  {
    ASSERT_OK_AND_ASSIGN(const auto store, Open());
    ASSERT_TRUE(Insert(*store, 1).ok());
    ASSERT_TRUE(store->Write(put).ok());
  }
  const auto damage = [&](const std::string& table) {
    Sql("CHECKPOINT");
    const std::string path = server().folder() + "/data/" + Sql("SELECT pg_relation_filepath('" + table + "')");
    server().EndImmediately();
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file << std::string(24, '\xff') << std::flush;
    EXPECT_TRUE(file.good()) << path;
    ASSERT_TRUE(server().StartAgain().ok());
  };
  std::atomic<int> told = 0;
  PostgresOptions options = Short();
  options.on_damage = [&](const absl::Status& status) {
    ExpectRefused(status, absl::StatusCode::kDataLoss, {"XX001", "restore a backup"});
    ++told;
  };
  damage("workers");
  {
    ASSERT_OK_AND_ASSIGN(const auto store, OpenPostgresStore(url_, options));
    ASSERT_TRUE(Insert(*store, 2).ok()) << "nothing has met it yet";
    const absl::Status read = store->Read([](ReadTransaction& t) { return t.ListWorkers().status(); });
    ExpectRefused(read, absl::StatusCode::kDataLoss, {"XX001"});
    EXPECT_EQ(told, 1);
    ExpectRefused(Insert(*store, 3), absl::StatusCode::kDataLoss, {"nothing is written any more"});
    EXPECT_EQ(Count(*store), 2);
  }
  {
    ASSERT_OK_AND_ASSIGN(const auto store, OpenPostgresStore(url_, options));
    ExpectRefused(store->Write(put), absl::StatusCode::kDataLoss, {"XX001"});
    EXPECT_EQ(told, 2);
    ExpectRefused(Insert(*store, 3), absl::StatusCode::kDataLoss, {"nothing is written any more"});
    EXPECT_EQ(told, 2);
    EXPECT_EQ(Count(*store), 2);
  }
  for (const std::string table : {"leader", "meta"}) {
    damage(table);
    ExpectRefused(OpenPostgresStore(url_, options).status(), absl::StatusCode::kDataLoss, {"XX001"});
  }
  EXPECT_EQ(told, 4);
}

TEST_F(PostgresFaults, TextsThatAreNoneAreRefused) {
  ASSERT_OK_AND_ASSIGN(const auto store, Open());
  for (const std::string& bad : {std::string("a\0b", 3), std::string("\xff")}) {
    EXPECT_EQ(store->Read([&](ReadTransaction& t) { return t.GetWorker(bad).status(); }).code(),
              absl::StatusCode::kInvalidArgument);
    v1::Worker worker;
    worker.set_name(bad);
    EXPECT_EQ(store->Write([&](Transaction& t) { return t.PutWorker(worker); }).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(Insert(*store, 1).ok());
}

}  // namespace
}  // namespace legoai::store

// A store whose files are damaged: it is noticed at the start and nothing is written, what is whole is saved, and damage that is
// met while it is open ends the writing. The oracles are what was put in, and SQLite's own list of pages (dbstat).
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "proto/testing/assert_ok.h"
#include "server/store/repair.h"
#include "server/store/sqlite_store.h"

namespace legoai::store {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kJobs = 600;
constexpr size_t kPageBytes = 4096;
constexpr char kProject[] = "projects/default";

std::string JobName(int64_t number) { return absl::StrCat(kProject, "/jobs/", 100'000 + number); }

// A job with something of every kind.
absl::Status Put(Transaction& t, int64_t number) {
  v1::Job job;
  job.set_name(JobName(number));
  job.set_version(2);
  job.set_create_time_us(number);
  job.mutable_spec()->set_display_name(absl::StrCat("Job ", number));
  job.mutable_spec()->mutable_model()->set_config_json(std::string(300, static_cast<char>('a' + number % 26)));
  absl::Status status = t.InsertJob(job, Submission{kProject, absl::StrCat("request-", number), "digest"});
  v1::Transition transition;
  transition.set_job(job.name());
  transition.set_version(2);
  transition.set_reason(absl::StrCat("because of ", number));
  v1::Attempt attempt;
  attempt.set_attempt(1 + number % 3);
  attempt.set_state("running");
  v1::Checkpoint checkpoint;
  checkpoint.set_step(10 * number);
  checkpoint.set_epoch(3);
  v1::PlanResult plan;
  plan.set_explanation(std::string(number % 40 == 0 ? 30'000 : 20, 'p'));  // also over several pages
  v1::StepMetrics metrics;
  metrics.set_attempt(attempt.attempt());
  metrics.set_step(number + 1);
  for (int rank = 0; rank < 2; ++rank) metrics.add_ranks()->set_rank(rank);
  v1::StepTraceInfo info;
  info.set_attempt(attempt.attempt());
  info.set_step(number + 1);
  info.set_rank(number % 3);
  info.set_bytes(number);
  v1::TraceFile trace;
  trace.set_trace_gzip(std::string(number % 40 == 0 ? 30'000 : 20, 't'));
  v1::LogLine line;
  line.set_text(absl::StrCat("line of ", number));
  if (number % 2) line.set_rank(number);
  v1::FlightRecord record;
  record.set_attempt(attempt.attempt());
  v1::FlightDump dump;
  dump.set_rank(number % 5);
  dump.set_world_size(8);
  v1::Worker worker;
  worker.set_name(absl::StrCat("workers/w", number % 50));
  v1::StoredToken token;
  token.mutable_token()->set_name(absl::StrCat("tokens/t", number % 50));
  token.set_secret_sha256(absl::StrCat("digest ", number % 50));
  for (const absl::Status& next :
       {t.AppendTransition(transition), t.PutAttempt(job.name(), attempt), t.PutCheckpoint(job.name(), checkpoint),
        t.PutPlan(job.name(), plan), t.AppendMetrics(job.name(), metrics), t.AppendLog(job.name(), line),
        t.PutFlightRecord(job.name(), record, &dump), t.PutWorker(worker), t.PutToken(token),
        t.PutStepTrace(job.name(), info, trace), t.SetTelemetrySequence(absl::StrCat("i", number), 7)}) {
    if (status.ok()) status = next;
  }
  return status;
}

template <class M>
std::string Text(const absl::StatusOr<M>& messages) {
  std::string text = messages.ok() ? "" : messages.status().ToString();
  if (messages.ok()) {
    for (const auto& one : *messages) absl::StrAppend(&text, one.SerializeAsString(), "|");
  }
  return text;
}

std::string TracesText(ReadTransaction& t, const std::string& job) {
  const auto infos = t.ListStepTraces(job);
  std::string text = Text(infos);
  for (const v1::StepTraceInfo& info : infos.ok() ? *infos : std::vector<v1::StepTraceInfo>()) {
    const auto file = t.GetStepTrace(job, info.attempt(), info.step(), info.rank());
    absl::StrAppend(&text, file.ok() && *file ? (*file)->SerializeAsString() : "no trace");
  }
  return text;
}

// By job, all that the store has of it.
std::map<std::string, std::string> Dump(Store& store) {
  std::map<std::string, std::string> dump;
  const absl::Status status = store.Read([&](ReadTransaction& t) {
    auto jobs = t.ListJobs({.project = kProject, .limit = 10 * kJobs});
    if (!jobs.ok()) return jobs.status();
    for (const v1::Job& job : *jobs) {
      std::string& text = dump[job.name()];
      const auto plan = t.GetPlan(job.name());
      const auto record = t.GetFlightRecord(job.name());
      const std::string id = job.name().substr(job.name().size() - 6);
      const auto earlier = t.FindSubmission(kProject, absl::StrCat("request-", std::stol(id) - 100'000));
      text = absl::StrCat(job.SerializeAsString(), Text(t.ListTransitions(job.name(), 0, 100)), Text(t.ListAttempts(job.name())),
                          Text(t.ListCheckpoints(job.name())), Text(t.ListLogs({.job = job.name()})),
                          Text(t.ListRankReports(job.name(), kRankReports)), TracesText(t, job.name()),
                          plan.ok() && *plan ? (*plan)->SerializeAsString() : "no plan",
                          record.ok() && *record ? (*record)->SerializeAsString() : "no record",
                          earlier.ok() && *earlier ? (*earlier)->job : "no submission");
      const absl::Status read = t.ForEachMetrics(
          job.name(), 0, [&](const v1::StepMetrics& metrics) { absl::StrAppend(&text, metrics.SerializeAsString()); });
      if (!read.ok()) return read;
    }
    dump["workers and tokens"] = absl::StrCat(Text(t.ListWorkers()), Text(t.ListTokens()));
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  return dump;
}

struct Page {
  int64_t number = 0, cells = 0;
};

class DamageTest : public testing::Test {
 protected:
  // The store is made once; each test damages a copy.
  static void SetUpTestSuite() {
    made_ = new std::string(absl::StrCat(testing::TempDir(), "/damage-", getpid()));
    fs::remove_all(*made_);
    fs::create_directories(*made_ + "/made");
    ASSERT_OK_AND_ASSIGN(const auto store, OpenSqliteStore(*made_ + "/made/store.db"));
    for (int64_t from = 0; from < kJobs; from += 50) {
      const absl::Status status = store->Write([&](Transaction& t) {
        for (int64_t i = from; i < from + 50; ++i) {
          if (absl::Status put = Put(t, i); !put.ok()) return put;
        }
        return absl::OkStatus();
      });
      ASSERT_TRUE(status.ok()) << status;
    }
    oracle_ = new std::map<std::string, std::string>(Dump(*store));
    ASSERT_EQ(oracle_->size(), size_t{kJobs + 1});
    // As a crash leaves it, with a log.
    fs::create_directories(*made_ + "/crashed");
    for (const char* suffix : {"", "-wal"}) fs::copy(*made_ + "/made/store.db" + suffix, *made_ + "/crashed/store.db" + suffix);
  }
  static void TearDownTestSuite() {
    fs::remove_all(*made_);
    delete made_;
    delete oracle_;
  }
  void SetUp() override { Copy("made"); }

  void Copy(const std::string& from) {
    const std::string folder = *made_ + "/copy";
    fs::remove_all(folder);
    fs::copy(*made_ + "/" + from, folder);
    path_ = folder + "/store.db";
  }
  std::string Bytes(const std::string& suffix = "") const {
    std::ifstream in(path_ + suffix, std::ios::binary);
    std::stringstream all;
    all << in.rdbuf();
    return all.str();
  }
  void Overwrite(size_t at, const std::string& bytes, const std::string& suffix = "") {
    std::fstream out(path_ + suffix, std::ios::binary | std::ios::in | std::ios::out);
    out.seekp(static_cast<std::streamoff>(at));
    out << bytes;
  }
  void Garbage(int64_t page) {
    std::mt19937 random(17);
    std::string bytes(kPageBytes, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    Overwrite(static_cast<size_t>(page - 1) * kPageBytes, bytes);
  }
  // Of a tree, as SQLite knows them; in a read-only connection that leaves nothing behind.
  std::vector<Page> Pages(const std::string& tree, const std::string& type) {
    std::vector<Page> pages;
    sqlite3* connection = nullptr;
    EXPECT_EQ(sqlite3_open_v2(absl::StrCat("file:", path_, "?immutable=1").c_str(), &connection,
                              SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, nullptr),
              SQLITE_OK);
    const std::string sql = absl::StrCat("SELECT pageno, ncell FROM dbstat WHERE name = '", tree, "' AND pagetype = '", type,
                                         "' AND path <> '/' ORDER BY pageno");
    EXPECT_EQ(sqlite3_exec(
                  connection, sql.c_str(),
                  [](void* list, int, char** values, char**) {
                    static_cast<std::vector<Page>*>(list)->push_back({std::stol(values[0]), std::stol(values[1])});
                    return 0;
                  },
                  &pages, nullptr),
              SQLITE_OK)
        << sqlite3_errmsg(connection);
    sqlite3_close(connection);
    return pages;
  }

  void ExpectRefused(const std::string& what) {
    const std::string database = Bytes(), log = Bytes("-wal");
    const absl::Status status = OpenSqliteStore(path_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    const auto violation = GetFieldViolation(status);
    ASSERT_TRUE(violation) << status;
    EXPECT_EQ(violation->field(), "store");
    EXPECT_EQ(violation->value(), path_);
    for (const std::string& part : {what, std::string("nothing is written"), std::string("backup"), std::string("--repair")})
      EXPECT_TRUE(absl::StrContains(violation->remedy(), part)) << part << " in " << status;
    EXPECT_TRUE(Bytes() == database) << "the database was changed";
    EXPECT_TRUE(Bytes("-wal") == log) << "the log was changed";
  }
  // What was saved, which lies at path_ afterwards; the damaged files are as they were.
  std::map<std::string, std::string> Repair() {
    const std::string database = Bytes(), log = Bytes("-wal");
    const auto report = RepairStore(path_);
    EXPECT_TRUE(report.ok()) << report.status();
    if (!report.ok()) return {};
    report_ = *report;
    EXPECT_TRUE(Bytes() == database && Bytes("-wal") == log) << "the damaged files were changed";
    for (const char* suffix : {"", "-wal", "-shm", ".lock"}) fs::remove(path_ + suffix);
    fs::rename(report->saved_to, path_);
    const auto store = OpenSqliteStore(path_);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? Dump(**store) : std::map<std::string, std::string>();
  }
  // All but `lost` jobs are saved, with all that they had.
  void ExpectAllBut(int64_t lost) {
    const auto saved = Repair();
    EXPECT_EQ(saved.size(), oracle_->size() - static_cast<size_t>(lost));
    for (const auto& [name, text] : saved) EXPECT_TRUE(oracle_->at(name) == text) << name;
    EXPECT_EQ(report_.saved["jobs"], kJobs - lost);
  }

  static std::string* made_;
  static std::map<std::string, std::string>* oracle_;
  std::string path_;
  RepairReport report_;
};

std::string* DamageTest::made_ = nullptr;
std::map<std::string, std::string>* DamageTest::oracle_ = nullptr;

TEST_F(DamageTest, AWholeStoreIsOpenedAndSavedWhole) {
  EXPECT_TRUE(OpenSqliteStore(path_).ok());
  ExpectAllBut(0);
  EXPECT_TRUE(absl::StrContains(ToText(report_, path_), "nothing that is known of")) << ToText(report_, path_);
  for (const char* table : {"plans", "attempts", "checkpoints", "transitions", "logs", "metrics", "submissions", "flight_records",
                            "flight_dumps", "rank_reports", "step_traces", "telemetry"})
    EXPECT_EQ(report_.saved[table], kJobs) << table;
  EXPECT_EQ(report_.saved["workers"], 50);
  EXPECT_EQ(report_.saved["tokens"], 50);
}

TEST_F(DamageTest, ACrashIsNoDamage) {
  Copy("crashed");
  ASSERT_GT(Bytes("-wal").size(), 100'000u);
  ExpectAllBut(0);
  Copy("crashed");
  ASSERT_OK_AND_ASSIGN(const auto store, OpenSqliteStore(path_));
  EXPECT_TRUE(Dump(*store) == *oracle_);
}

TEST_F(DamageTest, TheHeaderPage) {
  Garbage(1);
  ExpectRefused("file is not a database");
  ExpectAllBut(0);
  EXPECT_TRUE(report_.lost_header);
}

TEST_F(DamageTest, AnInnerPage) {
  // The root of the tree is its only inner page.
  const std::vector<Page> leaves = Pages("jobs", "leaf");
  ASSERT_GT(leaves.size(), 20u);
  sqlite3* connection = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &connection), SQLITE_OK);
  int64_t root = 0;
  sqlite3_exec(
      connection, "SELECT rootpage FROM sqlite_schema WHERE name = 'jobs'",
      [](void* number, int, char** values, char**) {
        *static_cast<int64_t*>(number) = std::stol(values[0]);
        return 0;
      },
      &root, nullptr);
  sqlite3_close(connection);
  ASSERT_GT(root, 1);
  Garbage(root);
  ExpectRefused("it is damaged");
  ExpectAllBut(0);
}

TEST_F(DamageTest, ALeaf) {
  const Page leaf = Pages("jobs", "leaf").at(10);
  ASSERT_GT(leaf.cells, 2);
  Garbage(leaf.number);
  ExpectRefused("it is damaged");
  ExpectAllBut(leaf.cells);
  EXPECT_EQ(report_.lost_jobs.size(), static_cast<size_t>(leaf.cells));
  for (const std::string& name : report_.lost_jobs) EXPECT_TRUE(oracle_->count(name)) << name;
  EXPECT_EQ(report_.orphans["attempts"], leaf.cells);
  const std::string text = ToText(report_, path_);
  EXPECT_TRUE(absl::StrContains(text, report_.lost_jobs[0])) << text;
  EXPECT_TRUE(absl::StrContains(text, absl::StrCat("mv ", path_, ".repaired ", path_))) << text;
}

TEST_F(DamageTest, AnIndexThatDoesNotMatch) {
  const Page leaf = Pages("jobs_by_state", "leaf").at(0);
  const size_t from = static_cast<size_t>(leaf.number - 1) * kPageBytes;
  const size_t at = Bytes().find("100", from);
  ASSERT_LT(at, from + kPageBytes);
  Overwrite(at + 5, "Z");
  ExpectRefused("index jobs_by_state");
  ExpectAllBut(0);
}

TEST_F(DamageTest, ATruncatedFile) {
  const int64_t pages = static_cast<int64_t>(Bytes().size() / kPageBytes), kept = pages / 2;
  int64_t lost = 0;
  for (const Page& leaf : Pages("jobs", "leaf")) lost += leaf.number > kept ? leaf.cells : 0;
  fs::resize_file(path_, static_cast<size_t>(kept) * kPageBytes + 1000);
  ExpectRefused("it is damaged");
  const auto saved = Repair();
  EXPECT_GT(lost, 10);
  EXPECT_EQ(report_.saved["jobs"], kJobs - lost);
  EXPECT_EQ(saved.size(), size_t(kJobs - lost) + 1);
}

TEST_F(DamageTest, AFileOfNothing) {
  fs::resize_file(path_, 0);
  ExpectRefused("it is empty");
  Copy("crashed");
  fs::resize_file(path_, 0);
  ExpectRefused("its log (-wal) is there");
}

// A file that was lost, or moved away to put a repaired one in its place, is not begun anew in the meantime.
TEST_F(DamageTest, AStoreThatIsGoneIsNotBegunAnew) {
  ASSERT_TRUE(OpenSqliteStore(path_).ok());
  fs::rename(path_, path_ + ".away");
  ExpectRefused("empty or gone, though a store was made there");
  EXPECT_FALSE(fs::exists(path_));
  fs::rename(path_ + ".away", path_);
  EXPECT_TRUE(OpenSqliteStore(path_).ok());
}

// The disk was full, or the server was killed, before there was a store: nothing is lost.
TEST_F(DamageTest, AStoreThatWasNeverMadeIsBegun) {
  for (const char* suffix : {"", "-wal", "-shm"}) fs::remove(path_ + suffix);
  std::ofstream(path_ + ".lock") << "4711      \n";
  std::ofstream(path_).close();
  EXPECT_TRUE(OpenSqliteStore(path_).ok());
}

// Else the server would end each time that somebody looks at the job.
TEST_F(DamageTest, AReportThatCannotBeReadIsFoundAtTheStart) {
  for (const std::string table :
       {"transitions", "plans", "flight_records", "flight_dumps", "rank_reports", "step_traces", "metrics", "logs"}) {
    SCOPED_TRACE(table);
    Copy("made");
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &database), SQLITE_OK);
    const std::string spoil =
        absl::StrCat("UPDATE ", table, " SET value = x'0aff' WHERE job = (SELECT MAX(job) FROM ", table, ")");
    EXPECT_EQ(sqlite3_exec(database, spoil.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(database);
    EXPECT_EQ(sqlite3_changes(database), 1);
    sqlite3_close(database);
    ExpectRefused(absl::StrCat("a row of the table ", table, " cannot be read"));
  }
}

TEST_F(DamageTest, ALogThatIsGarbage) {
  Copy("crashed");
  Overwrite(0, std::string(32, 'x'), "-wal");
  ExpectRefused("the header of its log");
  const auto saved = Repair();
  EXPECT_FALSE(report_.log_damage.empty());
  for (const auto& [name, text] : saved) EXPECT_TRUE(oracle_->count(name)) << name;
}

// SQLite itself takes a frame that is damaged for the end of the log, and drops all commits behind it without a word.
TEST_F(DamageTest, ALogThatIsDamagedBeforeItsLastCommit) {
  Copy("crashed");
  Overwrite(32 + 24 + 700, "damage", "-wal");
  ExpectRefused("its log (-wal) is damaged at byte 32");
  // A commit that is torn at the end of the log may never have been durable.
  Copy("crashed");
  fs::resize_file(path_ + "-wal", fs::file_size(path_ + "-wal") - 10);
  EXPECT_TRUE(OpenSqliteStore(path_).ok());
}

TEST_F(DamageTest, ACheckThatTakesTooLongIsTold) {
  bool told = false;
  SqliteOptions options;
  options.on_unfinished_check = [&] { told = true; };
  EXPECT_TRUE(OpenSqliteStore(path_, options).ok());
  EXPECT_FALSE(told);
  options.check_budget = absl::Nanoseconds(1);
  EXPECT_TRUE(OpenSqliteStore(path_, options).ok());
  EXPECT_TRUE(told);
}

// Wherever a bit flips: the store is refused unchanged or it can be read, and what is saved is what was put in, but for the page.
TEST_F(DamageTest, AnyBit) {
  const unsigned seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  const std::string whole = Bytes();
  int refused = 0;
  for (int round = 0; round < 25; ++round) {
    Copy("made");
    const size_t at = random() % whole.size();
    Overwrite(at, std::string(1, static_cast<char>(whole[at] ^ (1 << random() % 8))));
    const std::string before = Bytes();
    const absl::Status status = OpenSqliteStore(path_).status();
    EXPECT_TRUE(status.ok() || absl::IsDataLoss(status)) << "byte " << at << ": " << status;
    if (status.ok()) continue;
    ++refused;
    EXPECT_TRUE(Bytes() == before) << "byte " << at;
    int64_t other = 0;
    const auto saved = Repair();
    for (const auto& [name, text] : saved) other += oracle_->count(name) == 0 || oracle_->at(name) != text;
    EXPECT_GE(report_.saved["jobs"], kJobs - 20) << "byte " << at;
    EXPECT_LE(other, 200) << "byte " << at;  // rows of a page of another table
  }
  std::cout << refused << " of 25 refused\n";
}

TEST_F(DamageTest, DamageThatIsMetLaterEndsTheWriting) {
  std::vector<absl::Status> told;
  SqliteOptions options;
  options.on_damage = [&](const absl::Status& what) { told.push_back(what); };
  ASSERT_OK_AND_ASSIGN(const auto store, OpenSqliteStore(path_, options));
  const int64_t pages = static_cast<int64_t>(Bytes().size() / kPageBytes);
  for (int64_t page = 2; page <= pages; ++page) Garbage(page);
  const auto list = [](ReadTransaction& t) { return t.ListJobs({.project = kProject}).status(); };
  EXPECT_TRUE(absl::IsDataLoss(store->Read(list)));
  EXPECT_TRUE(absl::IsDataLoss(store->Read(list)));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(absl::StrContains(told[0].message(), "--repair")) << told[0];
  bool ran = false;
  const std::string log = Bytes("-wal");
  EXPECT_TRUE(absl::IsDataLoss(store->Write([&](Transaction&) {
    ran = true;
    return absl::OkStatus();
  })));
  EXPECT_FALSE(ran);
  EXPECT_TRUE(Bytes("-wal") == log);
}

TEST_F(DamageTest, RepairTouchesNothingOfOthers) {
  {
    ASSERT_OK_AND_ASSIGN(const auto store, OpenSqliteStore(path_));
    const absl::Status held = RepairStore(path_).status();
    EXPECT_EQ(held.code(), absl::StatusCode::kFailedPrecondition) << held;
  }
  std::ofstream(path_ + ".repaired") << "of an earlier one";
  const absl::Status there = RepairStore(path_).status();
  EXPECT_EQ(there.code(), absl::StatusCode::kFailedPrecondition) << there;
  EXPECT_TRUE(absl::StrContains(there.message(), ".repaired")) << there;
  EXPECT_EQ(Bytes(".repaired"), "of an earlier one");
  EXPECT_EQ(RepairStore(path_ + "-none").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace legoai::store

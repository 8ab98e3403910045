#include "server/store/repair.h"

#include <sqlite3.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "proto/errors.h"
#include "proto/legoai/v1/control_plane.pb.h"
#include "proto/legoai/v1/job.pb.h"
#include "proto/legoai/v1/worker.pb.h"
#include "proto/status.h"
#include "server/store/database.h"
#include "server/store/file_lock.h"
#include "server/store/pages.h"
#include "server/store/schema.h"
#include "server/store/sqlite_transaction.h"

namespace legoai::store {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kRowsOfATransaction = 5'000;
constexpr size_t kMostNames = 20;  // that are printed

// One letter for each column: n, i, r, t, b.
std::string Shape(const RawRow& row) {
  std::string shape;
  for (const Cell& cell : row.cells) shape += "nirtb"[static_cast<int>(cell.kind)];
  return shape;
}

// Whether it is a message of this kind, all of it. Which table a row is of is told by its columns and by what its message says of
// them: the pages that would tell may be those that are damaged.
template <class M>
bool Read(const Cell& cell, M* message) {
  return message->ParseFromString(cell.bytes) && message->GetReflection()->GetUnknownFields(*message).empty();
}

class Saver {
 public:
  Saver(const DatabasePages& pages, Database& out, RepairReport* report)
      : pages_(pages), out_(out), transaction_(out), report_(report) {}

  absl::Status Run() {
    absl::Status status = out_.RunScript("BEGIN");
    if (status.ok()) status = SaveJobs();
    if (status.ok()) status = SaveRest();
    if (status.ok()) status = out_.RunScript("COMMIT");
    return status.ok() ? out_.RunScript("PRAGMA wal_checkpoint(TRUNCATE)") : status;
  }

 private:
  absl::Status SaveJobs() {
    std::map<std::string, std::pair<int64_t, v1::Job>> jobs;
    std::set<std::string> names;
    const int64_t unreadable = pages_.ForEachRow([&](const RawRow& row) {
      const std::string shape = Shape(row);
      if (!row.of_table && shape == "ti" && row.cells[0].bytes.starts_with("projects/")) names.insert(row.cells[0].bytes);
      if (!row.of_table || shape != "ntttiiitb") return;
      v1::Job job;
      if (!Read(row.cells[8], &job) || job.name() != row.cells[1].bytes) {
        ++report_->unreadable;
        return;
      }
      auto& [number, latest] = jobs[job.name()];
      if (!latest.name().empty() && latest.version() >= job.version()) return;
      number = row.row_id;
      latest = job;
    });
    report_->unreadable += unreadable;
    for (const auto& [name, numbered] : jobs) {
      if (absl::Status status = transaction_.InsertJob(numbered.second, {}); !status.ok()) return status;
      Statement row = out_.Query("SELECT id FROM jobs WHERE name = ?1", name);
      if (!row.Next()) return row.status();
      jobs_[numbered.first] = {name, row.Int(0)};
      ++report_->saved["jobs"];
    }
    for (const std::string& name : names) {
      if (jobs.count(name) == 0) report_->lost_jobs.push_back(name);
    }
    return absl::OkStatus();
  }

  absl::Status SaveRest() {
    absl::Status status;
    pages_.ForEachRow([&](const RawRow& row) {
      if (!status.ok()) return;
      status = row.of_table ? SaveOfTable(row, Shape(row)) : SaveOfKey(row, Shape(row));
      if (status.ok() && ++rows_ % kRowsOfATransaction == 0) status = out_.RunScript("COMMIT; BEGIN");
    });
    return status;
  }

  struct SavedJob {
    std::string name;
    int64_t number = 0;  // in the new store
  };

  // Calls `save` for a row of a job that is there, and counts it.
  template <class Save>
  absl::Status Keep(const char* table, const Cell& job, const Save& save) {
    const auto found = jobs_.find(job.number);
    if (found == jobs_.end()) {
      ++report_->orphans[table];
      return absl::OkStatus();
    }
    ++report_->saved[table];
    return save(found->second);
  }
  absl::Status Unreadable() {
    ++report_->unreadable;
    return absl::OkStatus();
  }

  // Of tables with row ids.
  absl::Status SaveOfTable(const RawRow& row, const std::string& shape) {
    const auto& cells = row.cells;
    if (shape == "nb") {
      v1::PlanResult plan;
      if (!Read(cells[1], &plan)) return Unreadable();
      Cell job;
      job.number = row.row_id;
      return Keep("plans", job, [&](const SavedJob& of) { return transaction_.PutPlan(of.name, plan); });
    }
    if (shape == "iib") {
      v1::Attempt attempt;
      if (Read(cells[2], &attempt) && attempt.attempt() == cells[1].number)
        return Keep("attempts", cells[0], [&](const SavedJob& of) { return transaction_.PutAttempt(of.name, attempt); });
      v1::FlightRecord record;
      if (!Read(cells[2], &record) || record.attempt() != cells[1].number) return Unreadable();
      return Keep("flight_records", cells[0],
                  [&](const SavedJob& of) { return transaction_.PutFlightRecord(of.name, record, nullptr); });
    }
    if (shape == "iiib" || shape == "iiibi") {
      v1::Checkpoint checkpoint;
      if (Read(cells[3], &checkpoint) && checkpoint.step() == cells[1].number && checkpoint.epoch() == cells[2].number)
        return Keep("checkpoints", cells[0], [&](const SavedJob& of) { return transaction_.PutCheckpoint(of.name, checkpoint); });
      v1::FlightDump dump;
      if (!Read(cells[3], &dump) || dump.rank() != cells[2].number) return Unreadable();
      return Keep("flight_dumps", cells[0], [&](const SavedJob& of) {
        return out_.Run("INSERT OR REPLACE INTO flight_dumps (job, attempt, rank, value) VALUES (?1, ?2, ?3, ?4)", of.number,
                        cells[1].number, cells[2].number, dump);
      });
    }
    if (shape == "iiiib") {
      v1::StepMetrics report;
      if (!Read(cells[4], &report) || report.step() != cells[2].number || report.ranks_size() != cells[3].number)
        return Unreadable();
      return Keep("rank_reports", cells[0], [&](const SavedJob& of) {
        return out_.Run("INSERT OR REPLACE INTO rank_reports (job, attempt, step, ranks, value) VALUES (?1, ?2, ?3, ?4, ?5)",
                        of.number, cells[1].number, cells[2].number, cells[3].number, report);
      });
    }
    if (shape == "iiiiibb") {
      v1::StepTraceInfo info;
      v1::TraceFile file;
      if (!Read(cells[5], &info) || !Read(cells[6], &file) || info.rank() != cells[3].number) return Unreadable();
      return Keep("step_traces", cells[0], [&](const SavedJob& of) { return transaction_.PutStepTrace(of.name, info, file); });
    }
    return absl::OkStatus();
  }

  // Of tables that lie in the tree of their key.
  absl::Status SaveOfKey(const RawRow& row, const std::string& shape) {
    const auto& cells = row.cells;
    if (shape == "tb" && cells[0].bytes.starts_with("tokens/")) {
      v1::StoredToken token;
      if (!Read(cells[1], &token) || token.token().name() != cells[0].bytes) return Unreadable();
      ++report_->saved["tokens"];
      return transaction_.PutToken(token);
    }
    if (shape == "tb") {
      v1::Worker worker;
      if (!Read(cells[1], &worker) || worker.name() != cells[0].bytes) return Unreadable();
      ++report_->saved["workers"];
      return transaction_.PutWorker(worker);
    }
    const auto is_of = [&](std::string_view prefix) { return cells[0].bytes.starts_with(prefix); };
    // Not of the indexes of jobs and of cached plans, which are made anew.
    if (shape == "ti" && !is_of("projects/") && !is_of("plan:") && cells[0].bytes != "schema_version") {
      ++report_->saved["telemetry"];
      return transaction_.SetTelemetrySequence(cells[0].bytes, cells[1].number);
    }
    if (shape == "tttt" && cells[0].bytes.starts_with("projects/")) {
      ++report_->saved["submissions"];
      return out_.Run("INSERT OR IGNORE INTO submissions (project, request_id, job, content_sha256) VALUES (?1, ?2, ?3, ?4)",
                      cells[0].bytes, cells[1].bytes, cells[2].bytes, cells[3].bytes);
    }
    if (shape == "iib") {
      v1::Transition transition;
      if (!Read(cells[2], &transition) || transition.version() != cells[1].number) return Unreadable();
      return Keep("transitions", cells[0], [&](const SavedJob& of) {
        transition.set_job(of.name);
        const absl::Status status = transaction_.AppendTransition(transition);
        return absl::IsAlreadyExists(status) ? absl::OkStatus() : status;
      });
    }
    if (shape == "iiib") {
      v1::StepMetrics metrics;
      if (!Read(cells[3], &metrics) || metrics.attempt() != cells[1].number || metrics.step() != cells[2].number)
        return Unreadable();
      return Keep("metrics", cells[0], [&](const SavedJob& of) {  // not AppendMetrics(): rows of ranks have a table of their own
        return out_.Run("INSERT OR IGNORE INTO metrics (job, attempt, step, value) VALUES (?1, ?2, ?3, ?4)", of.number,
                        cells[1].number, cells[2].number, metrics);
      });
    }
    if (shape == "iiiib" || shape == "iiinb") return SaveLog(cells);
    return absl::OkStatus();
  }

  absl::Status SaveLog(const std::vector<Cell>& cells) {
    v1::LogLine line;
    if (!Read(cells[4], &line) || line.sequence() != cells[1].number) return Unreadable();
    return Keep("logs", cells[0], [&](const SavedJob& of) {
      const std::optional<int64_t> rank =
          cells[3].kind == Cell::Kind::kNull ? std::nullopt : std::optional<int64_t>(cells[3].number);
      return out_.Run("INSERT OR IGNORE INTO logs (job, sequence, attempt, rank, value) VALUES (?1, ?2, ?3, ?4, ?5)", of.number,
                      cells[1].number, cells[2].number, rank, line);
    });
  }

  const DatabasePages& pages_;
  Database& out_;
  SqliteTransaction transaction_;
  RepairReport* const report_;
  std::map<int64_t, SavedJob> jobs_;  // by their number in the damaged store
  int64_t rows_ = 0;
};

void Remove(const std::string& path) {
  std::error_code ignored;
  for (const char* suffix : {"", "-wal", "-shm"}) fs::remove(path + suffix, ignored);
}

absl::Status Save(const std::string& path, RepairReport* report) {
  ASSIGN_OR_RETURN(const auto database, MappedFile::Open(path));
  ASSIGN_OR_RETURN(const auto log_file, MappedFile::Open(path + "-wal"));
  const LogContent log = ReadLog(log_file.bytes());
  const DatabasePages pages(database.bytes(), log);
  report->lost_header = !pages.has_header();
  report->log_damage = log.damage;
  {
    ASSIGN_OR_RETURN(auto out, Database::Open(report->saved_to, Database::Use::kWrite));
    RETURN_IF_ERROR(PrepareSchema(*out));
    RETURN_IF_ERROR(Saver(pages, *out, report).Run());
  }
  return CheckIntegrity(report->saved_to, absl::Hours(24)).status();
}

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kStepsBetweenLooks = 10'000;  // of SQLite's machine: a millisecond
constexpr size_t kMostProblems = 3;         // that are told

std::string EscapeUri(const std::string& path) {
  std::string escaped;
  for (const char c : path) absl::StrAppend(&escaped, c == '%' ? "%25" : c == '?' ? "%3f" : c == '#' ? "%23" : std::string(1, c));
  return escaped;
}

// Looks at one file for a limited time.
class Checker {
 public:
  Checker(const std::string& path, absl::Duration budget)
      : path_(path), end_(Clock::now() + absl::ToChronoNanoseconds(budget)), connection_(nullptr, &sqlite3_close) {}

  absl::Status Open() {
    sqlite3* opened = nullptr;
    // A file with a log in use is locked, which keeps the index of the log in memory, and left as it is at the end; others are
    // not even locked.
    const bool in_use = HasContent(path_ + "-wal") || HasContent(path_ + "-journal");
    const std::string uri = absl::StrCat("file:", EscapeUri(fs::absolute(path_).string()), in_use ? "" : "?immutable=1");
    const int flags = SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX | (in_use ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY);
    const int code = sqlite3_open_v2(uri.c_str(), &opened, flags, nullptr);
    connection_.reset(opened);
    if (code != SQLITE_OK) return Error(code);
    sqlite3_extended_result_codes(opened, 1);
    sqlite3_busy_timeout(opened, 10'000);
    sqlite3_db_config(opened, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
    sqlite3_progress_handler(opened, kStepsBetweenLooks, &IsOver, this);
    const int set = sqlite3_exec(opened, "PRAGMA locking_mode=EXCLUSIVE; PRAGMA query_only=ON; PRAGMA trusted_schema=OFF",
                                 nullptr, nullptr, nullptr);
    return set == SQLITE_OK ? absl::OkStatus() : Error(set);
  }

  // Calls `take` with every row; false: the time is over.
  absl::StatusOr<bool> ForEach(const char* sql, const std::function<void(sqlite3_stmt*)>& take) {
    sqlite3_stmt* prepared = nullptr;
    int code = sqlite3_prepare_v2(connection_.get(), sql, -1, &prepared, nullptr);
    const std::unique_ptr<sqlite3_stmt, decltype(&sqlite3_finalize)> owner(prepared, &sqlite3_finalize);
    if (code == SQLITE_OK) {
      while ((code = sqlite3_step(prepared)) == SQLITE_ROW) take(prepared);
    }
    if ((code & 0xff) == SQLITE_INTERRUPT) return false;
    if (code != SQLITE_DONE) return Error(code);
    return true;
  }

  // Of pages and indexes, in SQLite's words.
  absl::StatusOr<bool> CheckPages() {
    std::vector<std::string> problems;
    auto finished = ForEach("PRAGMA integrity_check(20)", [&](sqlite3_stmt* row) {
      const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(row, 0));
      const std::string problem = text == nullptr ? "" : text;
      if (problem != "ok") problems.push_back(problem);
    });
    if (!finished.ok() || problems.empty()) return finished;
    const size_t more = problems.size() - std::min(problems.size(), kMostProblems);
    problems.resize(problems.size() - more);
    return DamageError(path_, absl::StrCat(absl::StrJoin(problems, "; "), more > 0 ? absl::StrCat("; and ", more, " more") : ""));
  }

  // Of a table with its key of text (or null) in column 0 and its message in column 1.
  template <class M>
  absl::StatusOr<bool> CheckMessages(const char* table, const char* sql) {
    std::string problem;
    auto finished = ForEach(sql, [&](sqlite3_stmt* row) {
      M message;
      const auto* key = reinterpret_cast<const char*>(sqlite3_column_text(row, 0));
      const void* bytes = sqlite3_column_blob(row, 1);
      bool ok = message.ParseFromArray(bytes, sqlite3_column_bytes(row, 1));
      if constexpr (requires { message.name(); }) ok = ok && (key == nullptr || message.name() == key);
      if (!ok && problem.empty()) problem = absl::StrCat("a row of the table ", table, " cannot be read");
    });
    if (!finished.ok() || problem.empty()) return finished;
    return DamageError(path_, problem);
  }

  bool HasTable(const std::string& name) {
    bool has = false;
    const std::string sql = absl::StrCat("SELECT 1 FROM sqlite_schema WHERE name = '", name, "'");
    const auto looked = ForEach(sql.c_str(), [&](sqlite3_stmt*) { has = true; });
    return looked.ok() && has;
  }

 private:
  static int IsOver(void* self) { return Clock::now() > static_cast<Checker*>(self)->end_; }

  absl::Status Error(int code) {
    const std::string message = connection_ ? sqlite3_errmsg(connection_.get()) : "no memory";
    switch (code & 0xff) {
      case SQLITE_CORRUPT:
      case SQLITE_NOTADB: return DamageError(path_, message);
      case SQLITE_BUSY:
        return FieldError("store", path_, "another process holds it: end what works on this file beside the server",
                          absl::StatusCode::kUnavailable);
      default:
        return FieldError("store", path_,
                          absl::StrCat(message, ": its folder must be there, and file and folder writable for this user"),
                          (code & 0xff) == SQLITE_IOERR ? absl::StatusCode::kUnavailable : absl::StatusCode::kPermissionDenied);
    }
  }

  const std::string path_;
  const Clock::time_point end_;
  std::unique_ptr<sqlite3, decltype(&sqlite3_close)> connection_;
};

// What is only shown, in the order of what it costs to read it.
absl::StatusOr<bool> CheckReports(Checker& checker) {
  auto finished = checker.CheckMessages<v1::Transition>("transitions", "SELECT NULL, value FROM transitions");
  if (finished.ok() && *finished) finished = checker.CheckMessages<v1::PlanResult>("plans", "SELECT NULL, value FROM plans");
  if (finished.ok() && *finished)
    finished = checker.CheckMessages<v1::FlightRecord>("flight_records", "SELECT NULL, value FROM flight_records");
  if (finished.ok() && *finished)
    finished = checker.CheckMessages<v1::FlightDump>("flight_dumps", "SELECT NULL, value FROM flight_dumps");
  const bool of_version_3 = checker.HasTable("step_traces");  // an older one is brought up to date once it is found whole
  if (finished.ok() && *finished && of_version_3)
    finished = checker.CheckMessages<v1::StepMetrics>("rank_reports", "SELECT NULL, value FROM rank_reports");
  if (finished.ok() && *finished && of_version_3)
    finished = checker.CheckMessages<v1::StepTraceInfo>("step_traces", "SELECT NULL, value FROM step_traces");
  if (finished.ok() && *finished && of_version_3)
    finished = checker.CheckMessages<v1::TraceFile>("step_traces", "SELECT NULL, trace FROM step_traces");
  if (finished.ok() && *finished) finished = checker.CheckMessages<v1::StepMetrics>("metrics", "SELECT NULL, value FROM metrics");
  if (finished.ok() && *finished) finished = checker.CheckMessages<v1::LogLine>("logs", "SELECT NULL, value FROM logs");
  return finished;
}

absl::Status CheckLog(const std::string& path) {
  ASSIGN_OR_RETURN(const auto log, MappedFile::Open(path + "-wal"));
  if (!HasContent(path) && log.bytes().size() > 32)
    return DamageError(path, "it is empty or not there, and its log (-wal) is there and is not empty");
  const LogContent content = ReadLog(log.bytes());
  return content.damage.empty() ? absl::OkStatus() : DamageError(path, content.damage);
}

}  // namespace

absl::StatusOr<RepairReport> RepairStore(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error) && !HasContent(path + "-wal"))
    return FieldError("store", path, "is not there", absl::StatusCode::kNotFound);
  ASSIGN_OR_RETURN(const auto lock, FileLock::Take(path));
  RepairReport report;
  report.saved_to = path + ".repaired";
  if (fs::exists(report.saved_to, error)) {
    return FieldError("store", report.saved_to, "is there from an earlier repair: remove it, or put it in the store's place",
                      absl::StatusCode::kFailedPrecondition);
  }
  if (absl::Status status = Save(path, &report); !status.ok()) {
    Remove(report.saved_to);
    return status;
  }
  return report;
}

std::string ToText(const RepairReport& report, const std::string& path) {
  std::string text = absl::StrCat("saved from ", path, ", which is as it was, to ", report.saved_to, ":\n");
  for (const auto& [table, rows] : report.saved) absl::StrAppend(&text, "  ", table, ": ", rows, " rows\n");
  if (report.saved.empty()) absl::StrAppend(&text, "  nothing\n");
  absl::StrAppend(&text, "lost:\n");
  const bool nothing_lost = report.lost_jobs.empty() && report.unreadable == 0 && report.orphans.empty() && !report.lost_header &&
                            report.log_damage.empty();
  if (nothing_lost) absl::StrAppend(&text, "  nothing that is known of\n");
  if (!report.lost_jobs.empty())
    absl::StrAppend(&text, "  jobs: ", report.lost_jobs.size(), " of which only the name is left:\n");
  for (size_t i = 0; i < std::min(report.lost_jobs.size(), kMostNames); ++i)
    absl::StrAppend(&text, "    ", report.lost_jobs[i], "\n");
  if (report.lost_jobs.size() > kMostNames) absl::StrAppend(&text, "    and ", report.lost_jobs.size() - kMostNames, " more\n");
  for (const auto& [table, rows] : report.orphans) absl::StrAppend(&text, "  ", table, ": ", rows, " rows of lost jobs\n");
  if (report.unreadable > 0) absl::StrAppend(&text, "  rows that cannot be read: ", report.unreadable, "\n");
  if (report.lost_header) absl::StrAppend(&text, "  the file's header: what was deleted before may be back\n");
  if (!report.log_damage.empty()) absl::StrAppend(&text, "  the latest changes: ", report.log_damage, "\n");
  absl::StrAppend(&text, "to go on with what was saved, and keep the damaged files beside it:\n");
  std::error_code error;
  for (const char* suffix : {"", "-wal", "-shm"}) {
    if (fs::exists(path + suffix, error)) absl::StrAppend(&text, "  mv ", path, suffix, " ", path, ".damaged", suffix, "\n");
  }
  return absl::StrCat(text, "  mv ", report.saved_to, " ", path, "\n");
}

bool HasContent(const std::string& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  return !error && size > 0;
}

absl::StatusOr<bool> CheckIntegrity(const std::string& path, absl::Duration budget) {
  RETURN_IF_ERROR(CheckLog(path));
  if (!HasContent(path)) return true;
  Checker checker(path, budget);
  RETURN_IF_ERROR(checker.Open());
  auto finished = checker.CheckPages();
  // Those of another program are refused elsewhere.
  if (!finished.ok() || !*finished || !checker.HasTable("checkpoints")) return finished;
  finished = checker.CheckMessages<v1::Job>("jobs", "SELECT name, value FROM jobs");
  if (finished.ok() && *finished) finished = checker.CheckMessages<v1::Worker>("workers", "SELECT name, value FROM workers");
  // Not there before schema version 5.
  if (finished.ok() && *finished && checker.HasTable("tokens"))
    finished = checker.CheckMessages<v1::StoredToken>("tokens", "SELECT name, value FROM tokens");
  if (finished.ok() && *finished) finished = checker.CheckMessages<v1::Attempt>("attempts", "SELECT NULL, value FROM attempts");
  if (finished.ok() && *finished)
    finished = checker.CheckMessages<v1::Checkpoint>("checkpoints", "SELECT NULL, value FROM checkpoints");
  return finished.ok() && *finished ? CheckReports(checker) : finished;
}

}  // namespace legoai::store

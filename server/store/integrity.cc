#include "server/store/integrity.h"

#include <sqlite3.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/errors.h"
#include "proto/legoai/v1/control_plane.pb.h"
#include "proto/legoai/v1/job.pb.h"
#include "proto/legoai/v1/worker.pb.h"
#include "proto/status.h"
#include "server/store/database.h"
#include "server/store/pages.h"

namespace legoai::store {
namespace {

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

  bool HasOurTables() {
    bool has = false;
    const auto looked = ForEach("SELECT 1 FROM sqlite_schema WHERE name = 'checkpoints'", [&](sqlite3_stmt*) { has = true; });
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
  if (!finished.ok() || !*finished || !checker.HasOurTables()) return finished;
  finished = checker.CheckMessages<v1::Job>("jobs", "SELECT name, value FROM jobs");
  if (finished.ok() && *finished) finished = checker.CheckMessages<v1::Worker>("workers", "SELECT name, value FROM workers");
  if (finished.ok() && *finished) finished = checker.CheckMessages<v1::Attempt>("attempts", "SELECT NULL, value FROM attempts");
  if (finished.ok() && *finished)
    finished = checker.CheckMessages<v1::Checkpoint>("checkpoints", "SELECT NULL, value FROM checkpoints");
  return finished.ok() && *finished ? CheckReports(checker) : finished;
}

}  // namespace legoai::store

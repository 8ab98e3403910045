#include "server/store/database.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::store {
namespace {

// Beyond that another process (a backup, a shell) holds the file for too long.
constexpr int kBusyMilliseconds = 10'000;

// In pages of 4 KiB, negative: KiB. What a group of transactions changes stays in memory until its commit.
constexpr char kWritePragmas[] =
    "PRAGMA synchronous=FULL; PRAGMA temp_store=MEMORY; PRAGMA cache_size=-32768; PRAGMA journal_size_limit=67108864;"
    "PRAGMA trusted_schema=OFF;";
constexpr char kReadPragmas[] =
    "PRAGMA query_only=ON; PRAGMA temp_store=MEMORY; PRAGMA cache_size=-8192; PRAGMA trusted_schema=OFF;";

bool IsFullDisk(int extended_code, int system_error) {
  if ((extended_code & 0xff) == SQLITE_FULL) return true;
  // The file of shared memory could not be made larger: SQLite does not keep the system's error of it.
  if (extended_code == SQLITE_IOERR_SHMSIZE) return true;
  return (extended_code & 0xff) == SQLITE_IOERR && (system_error == ENOSPC || system_error == EDQUOT || system_error == EFBIG);
}

absl::Status FileError(const std::string& path, int extended_code, int system_error, const std::string& message) {
  const auto error = [&](absl::StatusCode code, const std::string& remedy) { return FieldError("store", path, remedy, code); };
  const std::string system = system_error == 0 ? "" : absl::StrCat(" (", std::strerror(system_error), ")");
  if (IsFullDisk(extended_code, system_error)) {
    return error(
        absl::StatusCode::kResourceExhausted,
        absl::StrCat("the disk is full", system, ": nothing of this was kept; free space on its file system and try again"));
  }
  switch (extended_code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return error(absl::StatusCode::kUnavailable, "another process holds it: end what works on this file beside the server");
    case SQLITE_IOERR: return error(absl::StatusCode::kUnavailable, absl::StrCat(message, system, ": check the disk"));
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: return DamageError(path, message);
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_AUTH:
      return error(absl::StatusCode::kPermissionDenied,
                   absl::StrCat(message, system, ": its folder must be there, and file and folder writable for this user"));
    default: return absl::InternalError(absl::StrCat("store ", path, ": ", message, " (SQLite's code ", extended_code, ")"));
  }
}

// Errors of one row or one statement; all others make the whole transaction worthless.
bool IsOfTheStatement(int extended_code) { return (extended_code & 0xff) == SQLITE_CONSTRAINT; }

}  // namespace

absl::Status DamageError(const std::string& path, const std::string& what) {
  return FieldError("store", path,
                    absl::StrCat("it is damaged or no store (", what,
                                 "), and nothing is written to it. Put a backup in its place, or see what can be saved: "
                                 "legoai-server --data=FOLDER --repair"),
                    absl::StatusCode::kDataLoss);
}

Statement::Statement(Statement&& other) noexcept
    : database_(std::exchange(other.database_, nullptr)),
      sql_(other.sql_),
      statement_(std::exchange(other.statement_, nullptr)),
      status_(std::move(other.status_)),
      bound_(other.bound_) {}

Statement::~Statement() {
  if (statement_ != nullptr) database_->GiveBack(sql_, statement_);
}

bool Statement::Next() {
  if (!status_.ok()) return false;
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) Check(code);
  return false;
}

std::string_view Statement::Text(int column) const {
  const void* bytes = sqlite3_column_blob(statement_, column);
  const int size = sqlite3_column_bytes(statement_, column);
  return size == 0 ? std::string_view() : std::string_view(static_cast<const char*>(bytes), static_cast<size_t>(size));
}

void Statement::Bind(std::string_view text) {
  Check(sqlite3_bind_text64(statement_, ++bound_, text.data() == nullptr ? "" : text.data(), text.size(), SQLITE_TRANSIENT,
                            SQLITE_UTF8));
}

void Statement::Bind(const google::protobuf::MessageLite& message) {
  const std::string bytes = message.SerializeAsString();
  Check(sqlite3_bind_blob64(statement_, ++bound_, bytes.data(), bytes.size(), SQLITE_TRANSIENT));
}

void Statement::Bind(const std::optional<int64_t>& value) {
  if (value) return Bind(*value);
  Check(sqlite3_bind_null(statement_, ++bound_));
}

void Statement::Check(int code) {
  if (code != SQLITE_OK && status_.ok()) status_ = database_->Error(code);
}

void Statement::FailToParse() {
  if (!status_.ok()) return;
  status_ = DamageError(database_->path(), absl::StrCat("a row of it cannot be read: ", std::string(sql_)));
  database_->ReportDamage(status_);
}

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const std::string& path, Use use, OnDamage on_damage) {
  sqlite3* connection = nullptr;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | (use == Use::kWrite ? SQLITE_OPEN_CREATE : 0);
  const int code = sqlite3_open_v2(path.c_str(), &connection, flags, nullptr);
  if (connection == nullptr) return absl::ResourceExhaustedError(absl::StrCat("store ", path, ": no memory to open it"));
  std::unique_ptr<Database> database(new Database(path, connection, std::move(on_damage)));
  if (code != SQLITE_OK) return database->Error(code);
  sqlite3_extended_result_codes(connection, 1);
  sqlite3_busy_timeout(connection, kBusyMilliseconds);
  RETURN_IF_ERROR(database->RunScript(use == Use::kWrite ? kWritePragmas : kReadPragmas));
  return database;
}

Database::~Database() {
  for (auto& [sql, statement] : idle_) sqlite3_finalize(statement);
  sqlite3_close(connection_);
}

absl::Status Database::RunScript(const std::string& sql) {
  const int code = sqlite3_exec(connection_, sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Error(code);
}

// A statement that is in use is not in the map: the same text may run twice at a time.
Statement Database::Take(std::string_view sql) {
  Statement taken(this, sql);
  if (const auto found = idle_.find(sql); found != idle_.end()) {
    taken.statement_ = found->second;
    idle_.erase(found);
    return taken;
  }
  taken.Check(sqlite3_prepare_v3(connection_, sql.data(), static_cast<int>(sql.size()), SQLITE_PREPARE_PERSISTENT,
                                 &taken.statement_, nullptr));
  return taken;
}

void Database::GiveBack(std::string_view sql, sqlite3_stmt* statement) {
  sqlite3_reset(statement);
  sqlite3_clear_bindings(statement);
  if (!idle_.emplace(sql, statement).second) sqlite3_finalize(statement);
}

std::vector<std::string> Database::StatementTexts() const {
  std::vector<std::string> texts;
  for (const auto& [sql, statement] : idle_) texts.emplace_back(sql);
  return texts;
}

absl::Status Database::Error(int code) {
  const int extended = sqlite3_extended_errcode(connection_) == SQLITE_OK ? code : sqlite3_extended_errcode(connection_);
  absl::Status error = FileError(path_, extended, sqlite3_system_errno(connection_), sqlite3_errmsg(connection_));
  if (failure_.ok() && !IsOfTheStatement(extended)) failure_ = error;
  ReportDamage(error);
  return error;
}

void Database::ReportDamage(const absl::Status& error) {
  if (absl::IsDataLoss(error) && on_damage_) on_damage_(error);
}

}  // namespace legoai::store

// One connection to a SQLite file: cached prepared statements, values bound by type, errors as Status.
//
// Thread-safety: a Database and its Statements belong to one thread at a time.
//
// Errors name the path: ResourceExhausted for a full disk, DataLoss for a damaged file, Unavailable if another process locks it
// for long or the disk fails, PermissionDenied, Internal for everything else.
#pragma once

#include <google/protobuf/message_lite.h>
#include <sqlite3.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace legoai::store {

class Database;

// The error of a damaged file, DataLoss: `what` is damaged.
absl::Status DamageError(const std::string& path, const std::string& what);

// One execution of a prepared statement, positioned before the first row. Must not outlive its Database.
class Statement {
 public:
  Statement(Statement&& other) noexcept;
  Statement& operator=(Statement&&) = delete;
  ~Statement();

  // False at the end, and after an error.
  bool Next();
  const absl::Status& status() const { return status_; }

  // Of the current row; columns are numbered from 0. Text is valid until the next call of Next().
  int64_t Int(int column) const { return sqlite3_column_int64(statement_, column); }
  std::string_view Text(int column) const;
  // A serialized message. If it cannot be parsed, the status becomes DataLoss and the result is empty.
  template <class M>
  M Message(int column) {
    M message;
    const std::string_view bytes = Text(column);
    if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) FailToParse();
    return message;
  }

 private:
  friend class Database;
  Statement(Database* database, std::string_view sql) : database_(database), sql_(sql) {}
  void Bind(int64_t value) { Check(sqlite3_bind_int64(statement_, ++bound_, value)); }
  void Bind(std::string_view text);
  void Bind(const google::protobuf::MessageLite& message);
  template <std::integral T>
  void Bind(T value) {
    Bind(static_cast<int64_t>(value));
  }
  void Bind(const std::optional<int64_t>& value);
  void Check(int code);
  void FailToParse();

  Database* database_;
  std::string_view sql_;  // of the program's text: never freed
  sqlite3_stmt* statement_ = nullptr;
  absl::Status status_;
  int bound_ = 0;
};

class Database {
 public:
  enum class Use { kWrite, kRead };  // kRead refuses every change
  // Called with every error that means that the file is damaged, on the thread that encountered it. Must not use the Database.
  using OnDamage = std::function<void(const absl::Status&)>;
  // With kWrite creates an empty file if there is none. Errors: as above; FieldError of `store`.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path, Use use, OnDamage on_damage = nullptr);
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;
  ~Database();

  // `sql` is a literal: one statement with ?1, ?2 ... for `values`. A mistake in it is an Internal error of the Statement.
  template <class... Values>
  Statement Query(const char* sql, const Values&... values) {
    Statement statement = Take(sql);
    if (statement.status_.ok()) (statement.Bind(values), ...);
    return statement;
  }
  // Runs it to the end.
  template <class... Values>
  absl::Status Run(const char* sql, const Values&... values) {
    Statement statement = Query(sql, values...);
    while (statement.Next()) {
    }
    return statement.status();
  }
  // Any number of statements, without values.
  absl::Status RunScript(const std::string& sql);

  int64_t changes() const { return sqlite3_changes64(connection_); }  // rows that the last statement inserted, changed or removed
  bool in_transaction() const { return sqlite3_get_autocommit(connection_) == 0; }
  const std::string& path() const { return path_; }
  // All cached prepared statements, for tests that check their query plans.
  std::vector<std::string> StatementTexts() const;

  // The first error since ForgetFailure() that concerns the file, not a row: the transaction must be rolled back.
  const absl::Status& failure() const { return failure_; }
  void ForgetFailure() { failure_ = absl::OkStatus(); }

 private:
  friend class Statement;
  Database(std::string path, sqlite3* connection, OnDamage on_damage)
      : path_(std::move(path)), connection_(connection), on_damage_(std::move(on_damage)) {}
  Statement Take(std::string_view sql);
  void GiveBack(std::string_view sql, sqlite3_stmt* statement);
  absl::Status Error(int code);
  void ReportDamage(const absl::Status& error);

  const std::string path_;
  sqlite3* const connection_;
  const OnDamage on_damage_;  // may be null
  std::map<std::string_view, sqlite3_stmt*> idle_;
  absl::Status failure_;
};

// The messages of all rows, from column 0.
template <class M>
absl::StatusOr<std::vector<M>> AllMessages(Statement rows) {
  std::vector<M> messages;
  while (rows.Next()) messages.push_back(rows.Message<M>(0));
  if (!rows.status().ok()) return rows.status();
  return messages;
}

// The message of the first row, from column 0; nothing if there is no row.
template <class M>
absl::StatusOr<std::optional<M>> FirstMessage(Statement rows) {
  std::optional<M> message;
  if (rows.Next()) message = rows.Message<M>(0);
  if (!rows.status().ok()) return rows.status();
  return message;
}

}  // namespace legoai::store

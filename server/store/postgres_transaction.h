// The operations of the contract (store.h) on PostgreSQL, inside a transaction. Thread-safety: that of the session.
//
// Round trips to the database, each however many rows it moves:
//
//   a change (InsertJob, UpdateJob, Append..., Put..., Set..., Delete...)   0: it travels with the next question or the end,
//                                                                          and with every 256th change or 4 MiB
//   UpdateJob to a version that is not larger                               1: it is refused in any case
//   a question (Get..., List..., Find..., Count..., JobsInStates ...)       1
//   ForEachMetrics                                                          1, and 1 for every 2,000 steps of each attempt
//   the beginning of a transaction, and of each function of a group         0: travels with what comes first
//   the end of a write transaction, for all functions of its group          2: the last changes; then COMMIT
//   the end of a read                                                       0: nobody waits for it
//
// So a state transition (GetJob, UpdateJob, AppendTransition, AppendLog) costs 3, and one in a group of n 1 + 2/n. A function of
// which a change is refused (a job that is not there, a request_id that is used) runs twice, the second time with one round trip
// for each of its changes.
//
// The methods are in files by what they keep: postgres_jobs.cc and postgres_telemetry.cc.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proto/status.h"
#include "server/store/guarded_store.h"
#include "server/store/postgres_session.h"
#include "server/store/transaction_overrides.h"

namespace legoai::store {

class PostgresTransaction final : public Transaction {
 public:
  // Owns neither. `damage` is set by rows that cannot be read.
  PostgresTransaction(PostgresSession& session, DamageLatch& damage) : session_(session), damage_(damage) {}

  LEGOAI_TRANSACTION_OVERRIDES

 private:
  absl::Status NoSuchJob(const std::string& name);
  absl::Status Unreadable(const PostgresStatement& statement);

  // The message of a column of a row.
  template <class M>
  absl::Status Parse(const PostgresStatement& statement, const PostgresRows& rows, int64_t row, int column, M* message) {
    const std::string_view bytes = rows.Text(row, column);
    return message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) ? absl::OkStatus() : Unreadable(statement);
  }
  // The messages of all rows, from column 0.
  template <class M>
  absl::StatusOr<std::vector<M>> AllMessages(const PostgresStatement& statement, PostgresValues values) {
    ASSIGN_OR_RETURN(const PostgresRows rows, session_.Ask(statement, std::move(values)));
    std::vector<M> messages(static_cast<size_t>(rows.size()));
    for (int64_t row = 0; row < rows.size(); ++row) RETURN_IF_ERROR(Parse(statement, rows, row, 0, &messages[row]));
    return messages;
  }
  // The message of the first row, from column 0; nothing if there is no row.
  template <class M>
  absl::StatusOr<std::optional<M>> FirstMessage(const PostgresStatement& statement, PostgresValues values) {
    ASSIGN_OR_RETURN(const PostgresRows rows, session_.Ask(statement, std::move(values)));
    if (rows.size() == 0) return std::nullopt;
    std::optional<M> message = M();
    RETURN_IF_ERROR(Parse(statement, rows, 0, 0, &*message));
    return message;
  }
  // A change of what belongs to a job, which must be there.
  absl::Status ChangeOfJob(const std::string& job, const PostgresStatement& statement, PostgresValues values) {
    return session_.Change(statement, std::move(values), [&] { return NoSuchJob(job); });
  }

  PostgresSession& session_;
  DamageLatch& damage_;
};

}  // namespace legoai::store

// The operations of the contract (store.h) on one connection, inside a transaction that the caller began. Thread-safety: that of
// the Database.
//
// The methods are in files by what they keep: jobs.cc (with their attempts) and telemetry.cc (with step traces, flight records,
// workers and tokens).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "server/store/database.h"
#include "server/store/transaction_overrides.h"

namespace legoai::store {

class SqliteTransaction final : public Transaction {
 public:
  // `database` must outlive it.
  explicit SqliteTransaction(Database& database) : database_(database) {}

  LEGOAI_TRANSACTION_OVERRIDES

 private:
  // The number that identifies a job in tables. Errors: NotFound.
  absl::StatusOr<int64_t> JobNumber(const std::string& name);

  Database& database_;
};

}  // namespace legoai::store

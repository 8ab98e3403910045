// A store on PostgreSQL that another server leads: reads, and a look at who leads. A server that finds the leader gone opens the
// store as its leader (postgres_store.h), which counts the term on and so ends all writes of the one before it.
//
// The leader has a lock for as long as its connection lives, and each of its writes counts the leader's row on. So one that was
// killed is seen at once, and one that stands still by a row that stays as it is.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/store/postgres_connection.h"
#include "server/store/postgres_readers.h"
#include "server/store/postgres_store.h"
#include "server/store/store.h"

namespace legoai::store {

// Thread-safety: Look() and EndLeader() belong to one thread, store() is for all.
class PostgresFollower {
 public:
  // Connects with the first look, or read. Of the options the times, patience, readers and callbacks are used. Errors: those of
  // ParsePostgresTarget.
  static absl::StatusOr<std::unique_ptr<PostgresFollower>> Make(const std::string& url, const PostgresOptions& options);

  struct Leader {
    int64_t term = 0;
    int64_t sequence = 0;  // grows with every write
    std::string holder, address;
    int64_t since_us = 0;  // UTC
  };
  struct Sight {
    // Nothing where the tables are not there yet, or are those of a release that had one server. Of a leader that is gone the
    // last word.
    std::optional<Leader> leader;
    int64_t holder_pid = 0;  // of its process of the database; 0: no server has the lock
  };
  // One round trip; connects where there is no connection, once. Errors: those of PostgresConnection::Open, and
  // FailedPrecondition for a newer schema or another program's.
  absl::StatusOr<Sight> Look();

  // Ends the leader's connection, if that process of the database still is it: what it had not committed is undone.
  absl::Status EndLeader(int64_t holder_pid);

  // Only reads: every Write() is Unavailable.
  Store& store() { return *store_; }

 private:
  PostgresFollower(const PostgresTarget& target, const PostgresOptions& options);
  absl::Status Connect();
  absl::Status CheckVersion();

  const PostgresTarget target_;
  const PostgresOptions options_;
  const std::shared_ptr<DamageLatch> damage_;
  const std::unique_ptr<Store> store_;
  std::unique_ptr<PostgresConnection> connection_;
  bool has_tables_ = false;
};

}  // namespace legoai::store

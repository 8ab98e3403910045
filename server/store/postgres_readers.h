// The connections of a store on PostgreSQL that only read, each used by one thread at a time. A transaction sees a consistent
// snapshot of the database regardless of concurrent writes.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/process/mutex.h"
#include "server/store/guarded_store.h"
#include "server/store/postgres_connection.h"

namespace legoai::store {

// Thread-safe.
class PostgresReaders {
 public:
  // At most `connections`, opened on demand. A read waits no longer than `patience` for a free one, and as long for a database
  // that is away, unless the process is told to end (`ends`). `on_round_trip` and `ends` may be null. `damage` is set by rows
  // that cannot be read, and by damage that PostgreSQL reports.
  PostgresReaders(PostgresTarget target, PostgresTimes times, int connections, absl::Duration patience,
                  PostgresConnection::OnRoundTrip on_round_trip, PostgresConnection::Ends ends,
                  std::shared_ptr<DamageLatch> damage);

  // Errors: Unavailable where the database is away for longer, or goes in the middle of the work.
  absl::Status Read(const std::function<absl::Status(ReadTransaction&)>& work);

 private:
  absl::Status ReadOn(std::unique_ptr<PostgresConnection>& connection,
                      const std::function<absl::Status(ReadTransaction&)>& work);
  // Null: none is open, one may be opened.
  absl::StatusOr<std::unique_ptr<PostgresConnection>> Take(absl::Time until);
  void GiveBack(std::unique_ptr<PostgresConnection> connection);
  absl::StatusOr<std::unique_ptr<PostgresConnection>> Open(absl::Time until);

  const PostgresTarget target_;
  const PostgresTimes times_;
  const absl::Duration patience_;
  const PostgresConnection::OnRoundTrip on_round_trip_;
  const PostgresConnection::Ends ends_;
  const std::shared_ptr<DamageLatch> damage_;
  Mutex mutex_;
  Condition freed_;
  int unopened_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<PostgresConnection>> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace legoai::store

// The embedded store: one SQLite file (write-ahead log, synchronous=FULL), for one server process.
//
// Writes run one after the other on one thread and become durable in groups (connections.h); reads run beside them on
// connections of their own and see what was durable when they began. Beside PATH lie PATH-wal and PATH-shm, which
// belong to it, and PATH.lock, which keeps a second server away.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/store/store.h"

namespace legoai::store {

struct SqliteOptions {
  absl::Duration check_budget = absl::Seconds(60);  // for the check of its files (repair.h) before it is opened
  // Called where that was not enough, before OpenSqliteStore returns. May be null.
  std::function<void()> on_unfinished_check;
  // Called once, when an operation meets damage; on any thread, within an operation of the store. From then on every Write() is
  // refused with DataLoss. May be null.
  std::function<void(const absl::Status&)> on_damage;
};

// Opens the store, and makes it where there is none; its folder must be there. Errors (field `store`): FailedPrecondition where
// another process works with it, the schema is newer, or the file is another program's; DataLoss where it is damaged, and then
// none of its files is changed; PermissionDenied; ResourceExhausted for a full disk; Unavailable.
absl::StatusOr<std::unique_ptr<Store>> OpenSqliteStore(const std::string& path, const SqliteOptions& options = {});

}  // namespace legoai::store

// The embedded store: one SQLite file (write-ahead log, synchronous=FULL), for one server process.
//
// Writes run one at a time on one thread and become durable in groups (connections.h); reads run concurrently on their own
// connections and see what was durable when they began. Beside PATH there are PATH-wal and PATH-shm, which belong to it, and
// PATH.lock, which keeps a second server away.
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
  absl::Duration check_budget = absl::Seconds(60);  // for checking its files (repair.h) before opening
  // Called if that was not enough, before OpenSqliteStore returns. May be null.
  std::function<void()> on_unfinished_check;
  // Called once, when an operation detects damage; on any thread, within an operation of the store. From then on every Write() is
  // refused with DataLoss. May be null.
  std::function<void(const absl::Status&)> on_damage;
};

// Opens the store, or creates it if there is none; its folder must exist. Errors (field `store`): FailedPrecondition if another
// process uses it, the schema is newer, or the file belongs to another program; DataLoss if it is damaged, in which case no file
// is changed; PermissionDenied; ResourceExhausted for a full disk; Unavailable.
absl::StatusOr<std::unique_ptr<Store>> OpenSqliteStore(const std::string& path, const SqliteOptions& options = {});

}  // namespace legoai::store

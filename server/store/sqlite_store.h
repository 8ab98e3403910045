// The embedded store: one SQLite file (write-ahead log, synchronous=FULL), for one server process. Torch-free.
//
// Writes run one after the other on one thread and become durable in groups (group_writer.h); reads run beside them on
// connections of their own (reader_pool.h) and see what was durable when they began. Beside PATH lie PATH-wal and PATH-shm, which
// belong to it, and PATH.lock, which keeps a second server away.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/store/store.h"

namespace legoai::store {

// Opens the store, and makes it where there is none; its folder must be there. Errors (field `store`): FailedPrecondition where
// another process works with it, the schema is newer, or the file is another program's; DataLoss where it is damaged;
// PermissionDenied; ResourceExhausted for a full disk; Unavailable.
absl::StatusOr<std::unique_ptr<Store>> OpenSqliteStore(const std::string& path);

}  // namespace legoai::store

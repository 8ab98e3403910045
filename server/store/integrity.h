// Whether a store's files are whole, found out without a change to any of them. Thread-safety: the file must be
// nobody else's meanwhile (file_lock.h).
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace legoai::store {

bool HasContent(const std::string& path);  // false where nothing is

// Looks at the log, at all pages and indexes as SQLite knows them, and at whether all messages can be read, those of jobs,
// workers, attempts and checkpoints first. A file that is not there is whole. Gives whether it came to the end within `budget`.
// What is not looked at: bytes within texts and numbers, which have no checksum.
//
// Errors (field `store`): DataLoss with what is damaged and the remedy; those of Database otherwise.
absl::StatusOr<bool> CheckIntegrity(const std::string& path, absl::Duration budget);

}  // namespace legoai::store

// The tables of the embedded store, and how a database comes to have them. Version 1 is the first; each later version is one more
// script at the end of the list in schema.cc, which is never changed otherwise. Thread-safety: that of the Database.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "server/store/database.h"

namespace legoai::store {

// Entry i makes version i + 1 out of version i; version 0 is an empty file.
std::span<const std::string_view> Migrations();

// The version that this program reads and writes.
int64_t SchemaVersion();

// Makes the tables in an empty file, and brings those of an older version up to date, all in one transaction; sets the journal
// mode. Errors (field `store`): FailedPrecondition for a newer version, a database of another program, and a file system on which
// write-ahead logging is not possible. The file is then as it was.
absl::Status PrepareSchema(Database& database, std::span<const std::string_view> migrations = Migrations());

}  // namespace legoai::store

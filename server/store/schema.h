// The tables of the embedded store, and their migrations. Version 1 is the first; each later version appends a script to the list
// in schema.cc, which is never changed otherwise. Thread-safety: that of the Database.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "server/store/database.h"

namespace legoai::store {

// Entry i migrates version i to version i + 1; version 0 is an empty file.
std::span<const std::string_view> Migrations();

// The version that this program reads and writes.
int64_t SchemaVersion();

// Creates the tables in an empty file or migrates those of an older version, in one transaction; sets the journal mode. Errors
// (field `store`): FailedPrecondition for a newer version, a database of another program, or a file system that does not support
// write-ahead logging. The file is then unchanged.
absl::Status PrepareSchema(Database& database, std::span<const std::string_view> migrations = Migrations());

}  // namespace legoai::store

// The tables of the PostgreSQL back end, and their migrations: the same rows as the embedded store's (schema.h). Version 1 is the
// first; each later version appends a script to the list in postgres_migrations.cc, which is never changed otherwise.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/store/postgres_connection.h"

namespace legoai::store {

// Entry i migrates version i to version i + 1; version 0 is an empty schema.
std::span<const std::string_view> PostgresMigrations();

// The version that this program reads and writes.
int64_t PostgresSchemaVersion();

// The version of the tables in the connection's current schema; 0: it is empty. Errors (field `store`): FailedPrecondition for
// tables of another program or a schema that is not there.
absl::StatusOr<int64_t> PostgresVersionThere(PostgresConnection& connection);

// Creates the tables in the connection's current schema or migrates those of an older version, in one transaction. Nobody else
// may do so meanwhile. Errors (field `store`): FailedPrecondition for a newer version, tables of another program or a schema that
// is not there; nothing is changed then.
absl::Status PreparePostgresSchema(PostgresConnection& connection,
                                   std::span<const std::string_view> migrations = PostgresMigrations());

}  // namespace legoai::store

// Where a PostgreSQL database is: what a user writes, read by libpq, and how it is shown to people, without its secrets.
// Thread-safety: pure functions.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace legoai::store {

struct PostgresTarget {
  std::map<std::string, std::string> keywords;  // libpq's, passwords among them: never shown
  std::string text;                             // "postgresql: host=db port=5432 dbname=legoai user=legoai"
};

// `url`: postgresql://USER@HOST:PORT/DATABASE?KEYWORD=VALUE, as PostgreSQL's own programs take it. What is missing comes from the
// environment (PGHOST, PGPASSWORD ...), service and password files, when it connects. Errors: FieldError of `store`, which shows
// nothing of what was written, since a password may stand anywhere in it.
absl::StatusOr<PostgresTarget> ParsePostgresTarget(const std::string& url);

// A FieldError of `store` with the target's text.
absl::Status PostgresFieldError(const PostgresTarget& target, const std::string& remedy, absl::StatusCode code);

// What the database's error `sqlstate` (five characters; empty: none was given) means, with a remedy where there is one:
// ResourceExhausted for a full disk or memory, Aborted for a conflict with another transaction, Unavailable for what passes,
// PermissionDenied, NotFound, InvalidArgument, DataLoss for damage that PostgreSQL met, Internal for everything else.
absl::Status PostgresError(const PostgresTarget& target, const std::string& sqlstate, const std::string& message);

}  // namespace legoai::store

#include "server/store/postgres_schema.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "proto/status.h"
#include "server/store/postgres_statements.h"

namespace legoai::store {
namespace {

absl::Status Refused(const PostgresConnection& connection, const std::string& remedy) {
  return PostgresFieldError(connection.target(), remedy, absl::StatusCode::kFailedPrecondition);
}

absl::Status Migrate(PostgresConnection& connection, int64_t from, std::span<const std::string_view> migrations) {
  std::string script = "BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL client_min_messages = error;";
  for (size_t i = static_cast<size_t>(from); i < migrations.size(); ++i) script.append(migrations[i]).append(";");
  absl::StrAppend(&script, "INSERT INTO meta VALUES ('schema_version', ", migrations.size(),
                  ") ON CONFLICT (key) DO UPDATE SET value = excluded.value; COMMIT;");
  const absl::Status status = connection.RunScript(script);
  if (!status.ok() && !connection.lost()) connection.Post({{&postgres::kRollback, PostgresValues()}});
  return status;
}

}  // namespace

absl::StatusOr<int64_t> PostgresVersionThere(PostgresConnection& connection) {
  const auto tables = connection.RoundTrip({{&postgres::kTables, PostgresValues()}});
  if (!tables.status.ok()) return tables.status;
  const PostgresRows& row = tables.rows[0];
  if (row.IsNull(0, 0)) return Refused(connection, "the schema of its search_path is not there: CREATE SCHEMA");
  if (row.Int(0, 1) == 0) return 0;
  int64_t version = 0;
  if (row.Int(0, 2) == 2) {
    const auto found = connection.RoundTrip({{&postgres::kSchemaVersion, PostgresValues()}});
    // Other errors say that the table is another program's.
    if (absl::IsDataLoss(found.status) || connection.lost()) return found.status;
    if (found.status.ok() && found.rows[0].size() == 1) version = found.rows[0].Int(0, 0);
  }
  if (version > 0) return version;
  return Refused(connection, absl::StrCat("its schema ", std::string(row.Text(0, 0)),
                                          " has tables of another program: name a database or a schema of LegoAI's own"));
}

int64_t PostgresSchemaVersion() { return static_cast<int64_t>(PostgresMigrations().size()); }

absl::Status PreparePostgresSchema(PostgresConnection& connection, std::span<const std::string_view> migrations) {
  const absl::StatusOr<int64_t> version = PostgresVersionThere(connection);
  if (!version.ok()) return version.status();
  const int64_t known = static_cast<int64_t>(migrations.size());
  if (*version > known) {
    return Refused(connection, absl::StrCat("it has schema version ", *version, " and this server knows versions up to ", known,
                                            ": start the server that wrote it, or restore a backup of version ", known));
  }
  return *version == known ? absl::OkStatus() : Migrate(connection, *version, migrations);
}

}  // namespace legoai::store

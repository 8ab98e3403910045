#include "server/store/postgres_schema.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "proto/status.h"
#include "server/store/postgres_statements.h"

namespace legoai::store {
namespace {

// Names sort by their bytes. folded_name is bytes, since a display name may have any. The three indexes of jobs hold all that
// filters look at. Rows that change often leave room in their pages, so that the indexes need not follow (HOT updates).
constexpr std::string_view kVersion1 = R"sql(
CREATE TABLE meta (key TEXT COLLATE "C" PRIMARY KEY, value BIGINT NOT NULL);

CREATE TABLE leader (
  one BIGINT PRIMARY KEY CHECK (one = 1),
  term BIGINT NOT NULL,
  sequence BIGINT NOT NULL,
  holder TEXT NOT NULL,
  since_us BIGINT NOT NULL) WITH (fillfactor = 10);
INSERT INTO leader VALUES (1, 0, 0, '', 0);

CREATE TABLE jobs (
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name TEXT COLLATE "C" NOT NULL UNIQUE,
  project TEXT COLLATE "C" NOT NULL,
  ulid TEXT COLLATE "C" NOT NULL,
  state BIGINT NOT NULL,
  version BIGINT NOT NULL,
  create_time_us BIGINT NOT NULL,
  folded_name BYTEA NOT NULL,
  value BYTEA NOT NULL) WITH (fillfactor = 70);
CREATE INDEX jobs_by_project ON jobs (project, ulid) INCLUDE (create_time_us, folded_name);
CREATE INDEX jobs_by_project_and_state ON jobs (project, state, ulid) INCLUDE (create_time_us, folded_name);
CREATE INDEX jobs_by_state ON jobs (state, ulid);

CREATE TABLE job_counts (
  project TEXT COLLATE "C" NOT NULL, state BIGINT NOT NULL, jobs BIGINT NOT NULL,
  PRIMARY KEY (project, state)) WITH (fillfactor = 10);
CREATE FUNCTION count_job() RETURNS trigger LANGUAGE plpgsql AS $count$
BEGIN
  INSERT INTO job_counts VALUES (NEW.project, NEW.state, 1)
    ON CONFLICT (project, state) DO UPDATE SET jobs = job_counts.jobs + 1;
  IF TG_OP = 'UPDATE' THEN
    UPDATE job_counts SET jobs = jobs - 1 WHERE project = OLD.project AND state = OLD.state;
  END IF;
  RETURN NULL;
END $count$;
CREATE TRIGGER job_comes AFTER INSERT ON jobs FOR EACH ROW EXECUTE FUNCTION count_job();
CREATE TRIGGER job_changes AFTER UPDATE OF state ON jobs FOR EACH ROW WHEN (NEW.state <> OLD.state)
  EXECUTE FUNCTION count_job();

CREATE TABLE submissions (
  project TEXT COLLATE "C" NOT NULL, request_id TEXT COLLATE "C" NOT NULL, job TEXT NOT NULL, content_sha256 TEXT NOT NULL,
  PRIMARY KEY (project, request_id));

CREATE TABLE transitions (
  job BIGINT NOT NULL, version BIGINT NOT NULL, value BYTEA NOT NULL, PRIMARY KEY (job, version));
CREATE TABLE attempts (
  job BIGINT NOT NULL, attempt BIGINT NOT NULL, value BYTEA NOT NULL, PRIMARY KEY (job, attempt));
CREATE TABLE checkpoints (
  job BIGINT NOT NULL, step BIGINT NOT NULL, epoch BIGINT NOT NULL, removed BIGINT NOT NULL, value BYTEA NOT NULL,
  PRIMARY KEY (job, step, epoch));
CREATE INDEX kept_checkpoints ON checkpoints (job, step, epoch) WHERE removed = 0;
CREATE TABLE plans (job BIGINT PRIMARY KEY, value BYTEA NOT NULL);
CREATE TABLE cached_plans (
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key TEXT COLLATE "C" NOT NULL UNIQUE, value BYTEA NOT NULL);

CREATE TABLE metrics (
  job BIGINT NOT NULL, attempt BIGINT NOT NULL, step BIGINT NOT NULL, value BYTEA NOT NULL,
  PRIMARY KEY (job, attempt, step));
CREATE TABLE rank_reports (
  job BIGINT NOT NULL, attempt BIGINT NOT NULL, step BIGINT NOT NULL, value BYTEA NOT NULL, PRIMARY KEY (job, attempt, step));
CREATE TABLE logs (
  job BIGINT NOT NULL, sequence BIGINT NOT NULL, attempt BIGINT NOT NULL, rank BIGINT, cut BIGINT NOT NULL DEFAULT 0,
  value BYTEA NOT NULL, PRIMARY KEY (job, sequence));
CREATE TABLE step_traces (
  job BIGINT NOT NULL, attempt BIGINT NOT NULL, step BIGINT NOT NULL, rank BIGINT NOT NULL, arrival BIGSERIAL,
  bytes BIGINT NOT NULL, value BYTEA NOT NULL, trace BYTEA NOT NULL, PRIMARY KEY (job, attempt, step, rank));
ALTER TABLE step_traces ALTER COLUMN trace SET STORAGE EXTERNAL;
CREATE INDEX step_traces_by_arrival ON step_traces (job, arrival);
CREATE TABLE flight_records (
  job BIGINT NOT NULL, attempt BIGINT NOT NULL, value BYTEA NOT NULL, PRIMARY KEY (job, attempt));
CREATE TABLE flight_dumps (
  job BIGINT NOT NULL, attempt BIGINT NOT NULL, rank BIGINT NOT NULL, value BYTEA NOT NULL, PRIMARY KEY (job, attempt, rank));

CREATE TABLE workers (name TEXT COLLATE "C" PRIMARY KEY, value BYTEA NOT NULL) WITH (fillfactor = 70);
CREATE TABLE telemetry (
  instance TEXT COLLATE "C" PRIMARY KEY, sequence BIGINT NOT NULL) WITH (fillfactor = 70);
)sql";

// Who may call the server.
constexpr std::string_view kVersion2 = R"sql(
CREATE TABLE tokens (name TEXT COLLATE "C" PRIMARY KEY, value BYTEA NOT NULL);
)sql";

// Where the leader is reached, for the servers beside it.
constexpr std::string_view kVersion3 = R"sql(
ALTER TABLE leader ADD COLUMN address TEXT NOT NULL DEFAULT '';
)sql";

constexpr std::string_view kMigrations[] = {kVersion1, kVersion2, kVersion3};

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

std::span<const std::string_view> PostgresMigrations() { return kMigrations; }

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

#include "server/store/schema.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::store {
namespace {

// Messages are blobs; beside them stand the columns by which they are found. Large blobs are in tables with row ids, of which the
// primary keys are indexes of their own; small ones are in the tree of their key.
//
// jobs.ulid is the last part of the name. The three indexes hold all that filters look at, so that a list reads only the rows
// that it gives. State changes touch two of them, progress none. job_counts is kept by the triggers: every page of a list says
// how many there are.
constexpr std::string_view kVersion1 = R"sql(
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;

CREATE TABLE jobs (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  project TEXT NOT NULL,
  ulid TEXT NOT NULL,
  state INTEGER NOT NULL,
  version INTEGER NOT NULL,
  create_time_us INTEGER NOT NULL,
  folded_name TEXT NOT NULL,
  value BLOB NOT NULL);
CREATE INDEX jobs_by_project ON jobs (project, ulid, create_time_us, folded_name);
CREATE INDEX jobs_by_project_and_state ON jobs (project, state, ulid, create_time_us, folded_name);
CREATE INDEX jobs_by_state ON jobs (state, ulid);

CREATE TABLE job_counts (
  project TEXT NOT NULL, state INTEGER NOT NULL, jobs INTEGER NOT NULL, PRIMARY KEY (project, state)) WITHOUT ROWID;
CREATE TRIGGER job_comes AFTER INSERT ON jobs BEGIN
  INSERT OR IGNORE INTO job_counts VALUES (new.project, new.state, 0);
  UPDATE job_counts SET jobs = jobs + 1 WHERE project = new.project AND state = new.state;
END;
CREATE TRIGGER job_changes AFTER UPDATE OF state ON jobs WHEN new.state <> old.state BEGIN
  INSERT OR IGNORE INTO job_counts VALUES (new.project, new.state, 0);
  UPDATE job_counts SET jobs = jobs + 1 WHERE project = new.project AND state = new.state;
  UPDATE job_counts SET jobs = jobs - 1 WHERE project = old.project AND state = old.state;
END;

CREATE TABLE submissions (
  project TEXT NOT NULL, request_id TEXT NOT NULL, job TEXT NOT NULL, content_sha256 TEXT NOT NULL,
  PRIMARY KEY (project, request_id)) WITHOUT ROWID;

CREATE TABLE transitions (
  job INTEGER NOT NULL, version INTEGER NOT NULL, value BLOB NOT NULL, PRIMARY KEY (job, version)) WITHOUT ROWID;
CREATE TABLE attempts (
  job INTEGER NOT NULL, attempt INTEGER NOT NULL, value BLOB NOT NULL, PRIMARY KEY (job, attempt));
CREATE TABLE checkpoints (
  job INTEGER NOT NULL, step INTEGER NOT NULL, epoch INTEGER NOT NULL, value BLOB NOT NULL, PRIMARY KEY (job, step, epoch));
CREATE TABLE plans (job INTEGER PRIMARY KEY, value BLOB NOT NULL);

CREATE TABLE metrics (
  job INTEGER NOT NULL, attempt INTEGER NOT NULL, step INTEGER NOT NULL, value BLOB NOT NULL,
  PRIMARY KEY (job, attempt, step)) WITHOUT ROWID;
CREATE TABLE logs (
  job INTEGER NOT NULL, sequence INTEGER NOT NULL, attempt INTEGER NOT NULL, rank INTEGER, value BLOB NOT NULL,
  PRIMARY KEY (job, sequence)) WITHOUT ROWID;
CREATE TABLE flight_records (
  job INTEGER NOT NULL, attempt INTEGER NOT NULL, value BLOB NOT NULL, PRIMARY KEY (job, attempt));
CREATE TABLE flight_dumps (
  job INTEGER NOT NULL, attempt INTEGER NOT NULL, rank INTEGER NOT NULL, value BLOB NOT NULL, PRIMARY KEY (job, attempt, rank));

CREATE TABLE workers (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE telemetry (instance TEXT PRIMARY KEY, sequence INTEGER NOT NULL) WITHOUT ROWID;
)sql";

// Of a long run nearly all checkpoints are removed: those that are kept are found without them.
constexpr std::string_view kVersion2 = R"sql(
ALTER TABLE checkpoints ADD COLUMN removed INTEGER NOT NULL DEFAULT 0;
CREATE INDEX kept_checkpoints ON checkpoints (job, step, epoch) WHERE removed = 0;
)sql";

// Rows of ranks beside their reports, of which there may be millions, and traces of steps behind what a list says of them.
constexpr std::string_view kVersion3 = R"sql(
CREATE TABLE rank_reports (
  job INTEGER NOT NULL, attempt INTEGER NOT NULL, step INTEGER NOT NULL, ranks INTEGER NOT NULL, value BLOB NOT NULL,
  PRIMARY KEY (job, attempt, step));
CREATE TABLE step_traces (
  job INTEGER NOT NULL, attempt INTEGER NOT NULL, step INTEGER NOT NULL, rank INTEGER NOT NULL, bytes INTEGER NOT NULL,
  value BLOB NOT NULL, trace BLOB NOT NULL, PRIMARY KEY (job, attempt, step, rank));
)sql";

// Plans for whoever asks for the same again. Ids grow with every plan that is put, so that the oldest are found.
constexpr std::string_view kVersion4 = R"sql(
CREATE TABLE cached_plans (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, value BLOB NOT NULL);
)sql";

// Who may call the server. They are few, and read together.
constexpr std::string_view kVersion5 = R"sql(
CREATE TABLE tokens (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
)sql";

constexpr std::string_view kMigrations[] = {kVersion1, kVersion2, kVersion3, kVersion4, kVersion5};

absl::Status Refused(const Database& database, const std::string& remedy) {
  return FieldError("store", database.path(), remedy, absl::StatusCode::kFailedPrecondition);
}

absl::StatusOr<int64_t> Number(Database& database, const char* sql) {
  Statement row = database.Query(sql);
  const int64_t number = row.Next() ? row.Int(0) : 0;
  if (!row.status().ok()) return row.status();
  return number;
}

// 0 for an empty file.
absl::StatusOr<int64_t> VersionInFile(Database& database) {
  absl::StatusOr<int64_t> tables = Number(database, "SELECT COUNT(*) FROM sqlite_schema");
  if (!tables.ok() || *tables == 0) return tables;
  const absl::StatusOr<int64_t> meta =
      Number(database, "SELECT COUNT(*) FROM pragma_table_info('meta') WHERE name IN ('key', 'value')");
  if (!meta.ok()) return meta;
  absl::StatusOr<int64_t> version = 0;
  if (*meta == 2) version = Number(database, "SELECT value FROM meta WHERE key = 'schema_version'");
  if (version.ok() && *version <= 0) return Refused(database, "it is a database of another program: name another file");
  return version;
}

absl::Status SetJournalMode(Database& database) {
  Statement row = database.Query("PRAGMA journal_mode=WAL");
  const std::string mode(row.Next() ? row.Text(0) : "");
  if (!row.status().ok() || mode == "wal") return row.status();
  return Refused(
      database, absl::StrCat("its file system allows no write-ahead log (journal mode ", mode, "): name a file on a local disk"));
}

absl::Status Migrate(Database& database, int64_t from, std::span<const std::string_view> migrations) {
  std::string script = "BEGIN IMMEDIATE;";
  for (size_t i = static_cast<size_t>(from); i < migrations.size(); ++i) script.append(migrations[i]).append(";");
  absl::StrAppend(&script, "INSERT OR REPLACE INTO meta VALUES ('schema_version', ", migrations.size(), "); COMMIT;");
  const absl::Status status = database.RunScript(script);
  if (!status.ok() && database.in_transaction()) (void)database.RunScript("ROLLBACK");
  return status;
}

}  // namespace

std::span<const std::string_view> Migrations() { return kMigrations; }

int64_t SchemaVersion() { return static_cast<int64_t>(Migrations().size()); }

absl::Status PrepareSchema(Database& database, std::span<const std::string_view> migrations) {
  const absl::StatusOr<int64_t> version = VersionInFile(database);
  if (!version.ok()) return version.status();
  const int64_t known = static_cast<int64_t>(migrations.size());
  if (*version > known) {
    return Refused(database,
                   absl::StrCat("it has schema version ", *version, " and this server knows versions up to ", known,
                                ": start the server that wrote it, or put a backup of version ", known, " in its place"));
  }
  RETURN_IF_ERROR(SetJournalMode(database));
  return *version == known ? absl::OkStatus() : Migrate(database, *version, migrations);
}

}  // namespace legoai::store

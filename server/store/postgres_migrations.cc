// The list alone: a test links a release that has one more (tests/scenarios/next_release.cc).
#include "server/store/postgres_schema.h"

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

}  // namespace

std::span<const std::string_view> PostgresMigrations() { return kMigrations; }

}  // namespace legoai::store

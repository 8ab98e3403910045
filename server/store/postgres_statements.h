// All SQL of the PostgreSQL back end but its tables (postgres_migrations.cc). $1 ... are bound by their use in postgres_jobs.cc
// and postgres_telemetry.cc; jobs are found by name and joined by number. What a change refuses (no such job, a row that is
// there) is a row less that it changes or gives, never an error of the database, since that would end the transaction.
#pragma once

#include "server/store/postgres_connection.h"

namespace legoai::store::postgres {

using Sql = PostgresStatement;

inline constexpr Sql kBegin = {"begin", "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"};
inline constexpr Sql kBeginRead = {"begin_read", "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"};
inline constexpr Sql kEndRead = {"end_read", "COMMIT"};
inline constexpr Sql kCommit = {"commit", "COMMIT"};
inline constexpr Sql kRollback = {"rollback", "ROLLBACK"};
inline constexpr Sql kSavepoint = {"savepoint", "SAVEPOINT one"};
inline constexpr Sql kRollbackTo = {"rollback_to", "ROLLBACK TO SAVEPOINT one"};
inline constexpr Sql kRelease = {"release", "RELEASE SAVEPOINT one"};

// The leader: every write transaction counts its row on, of its own term and after its own last one. So a server whose term is
// over changes nothing, and one that has lost the answer to a commit sees whether it took place.
inline constexpr Sql kLead = {"lead", "UPDATE leader SET sequence = sequence + 1 WHERE one = 1 AND term = $1 AND sequence = $2"};
inline constexpr Sql kLeader = {"leader", "SELECT term, sequence, holder, since_us, address FROM leader WHERE one = 1"};
// Waits for a write transaction of an earlier connection to end.
inline constexpr Sql kLeaderAlone = {"leader_alone", "SELECT term, sequence FROM leader WHERE one = 1 FOR UPDATE"};
inline constexpr Sql kBecomeLeader = {
    "become_leader",
    "UPDATE leader SET term = term + 1, holder = $1, since_us = $2, address = $3 WHERE one = 1 RETURNING term, sequence"};
// One server for a schema, for as long as its connection lives.
inline constexpr Sql kTakeLock = {"take_lock", "SELECT pg_advisory_lock(hashtextextended('legoai ' || current_schema(), 0))"};
inline constexpr Sql kTryLock = {
    "try_lock", "SELECT pg_try_advisory_lock(hashtextextended('legoai ' || current_schema(), 0))::int::bigint"};
// The process of the database that holds it; no row: nobody does.
inline constexpr Sql kLockHolder = {
    "lock_holder",
    "SELECT pid::bigint FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND (classid::bigint << 32 | objid::bigint) = hashtextextended('legoai ' || current_schema(), 0)"};
// $1, if it is still the one.
inline constexpr Sql kEndLockHolder = {
    "end_lock_holder",
    "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE pid = $1 AND locktype = 'advisory' AND granted AND objsubid = 1"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND (classid::bigint << 32 | objid::bigint) = hashtextextended('legoai ' || current_schema(), 0)"};
inline constexpr Sql kEndBackend = {
    "end_backend",
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1"
    " AND application_name = current_setting('application_name') AND datname = current_database() AND usename = current_user"};

inline constexpr Sql kTables = {
    "tables",
    "SELECT current_schema(), (SELECT COUNT(*) FROM pg_tables WHERE schemaname = current_schema()),"
    " (SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = 'meta'"
    "   AND column_name IN ('key', 'value'))"};
// Whether the leader's row is one that followers can read.
inline constexpr Sql kHasAddress = {
    "has_address",
    "SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = 'leader'"
    " AND column_name = 'address'"};
inline constexpr Sql kSchemaVersion = {"schema_version", "SELECT value FROM meta WHERE key = 'schema_version'"};

// Jobs.
inline constexpr Sql kGetJob = {"get_job", "SELECT value FROM jobs WHERE name = $1"};
inline constexpr Sql kJobVersion = {"job_version", "SELECT version FROM jobs WHERE name = $1"};
inline constexpr Sql kFindSubmission = {
    "find_submission", "SELECT job, content_sha256 FROM submissions WHERE project = $1 AND request_id = $2"};
inline constexpr Sql kInsertJob = {
    "insert_job",
    "INSERT INTO jobs (name, project, ulid, state, version, create_time_us, folded_name, value)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (name) DO NOTHING"};
inline constexpr Sql kInsertSubmission = {
    "insert_submission",
    "INSERT INTO submissions (project, request_id, job, content_sha256) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING"};
inline constexpr Sql kUpdateJob = {
    "update_job",
    "UPDATE jobs SET version = $3, state = $4, create_time_us = $5, folded_name = $6, value = $7"
    " WHERE name = $1 AND version = $2"};
// $1 project, $2 ULID before, $3 from, $4 until, $5 in the name, $6 in the name or $7 in the id, $8 limit, $9 states. Each
// state's page is in order already; the page of all is the first of these together.
inline constexpr Sql kListJobs = {
    "list_jobs",
    "SELECT value FROM jobs WHERE project = $1 AND ulid < $2 AND create_time_us >= $3 AND create_time_us < $4"
    " AND position($5::bytea IN folded_name) > 0"
    " AND (position($6::bytea IN folded_name) > 0 OR position($7::bytea IN convert_to(ulid, 'UTF8')) > 0)"
    " ORDER BY ulid DESC LIMIT GREATEST($8::bigint, 0)"};
inline constexpr Sql kListJobsInStates = {
    "list_jobs_in_states",
    "SELECT found.value FROM unnest($9::bigint[]) AS wanted (state), LATERAL (SELECT ulid, value FROM jobs"
    " WHERE project = $1 AND jobs.state = wanted.state AND ulid < $2 AND create_time_us >= $3 AND create_time_us < $4"
    " AND position($5::bytea IN folded_name) > 0"
    " AND (position($6::bytea IN folded_name) > 0 OR position($7::bytea IN convert_to(ulid, 'UTF8')) > 0)"
    " ORDER BY ulid DESC LIMIT GREATEST($8::bigint, 0)) AS found ORDER BY found.ulid DESC LIMIT GREATEST($8::bigint, 0)"};
// Where nothing but project and state is asked for, the count is kept.
inline constexpr Sql kCountAll = {"count_all", "SELECT COALESCE(SUM(jobs), 0)::bigint FROM job_counts WHERE project = $1"};
inline constexpr Sql kCountInStates = {
    "count_in_states", "SELECT COALESCE(SUM(jobs), 0)::bigint FROM job_counts WHERE project = $1 AND state = ANY ($2::bigint[])"};
// A row for each project and state, however many jobs there are.
inline constexpr Sql kCountByState = {
    "count_by_state", "SELECT state, SUM(jobs)::bigint FROM job_counts GROUP BY state HAVING SUM(jobs) > 0"};
inline constexpr Sql kListProjects = {
    "list_projects", "SELECT project FROM job_counts GROUP BY project HAVING SUM(jobs) > 0 ORDER BY project"};
inline constexpr Sql kCountJobs = {
    "count_jobs",
    "SELECT COUNT(*) FROM jobs WHERE project = $1 AND create_time_us >= $2 AND create_time_us < $3"
    " AND position($4::bytea IN folded_name) > 0"
    " AND (position($5::bytea IN folded_name) > 0 OR position($6::bytea IN convert_to(ulid, 'UTF8')) > 0)"};
inline constexpr Sql kCountJobsInStates = {
    "count_jobs_in_states",
    "SELECT COUNT(*) FROM unnest($7::bigint[]) AS wanted (state) JOIN jobs ON project = $1 AND jobs.state = wanted.state"
    " AND create_time_us >= $2 AND create_time_us < $3 AND position($4::bytea IN folded_name) > 0"
    " AND (position($5::bytea IN folded_name) > 0 OR position($6::bytea IN convert_to(ulid, 'UTF8')) > 0)"};
inline constexpr Sql kJobsInStates = {
    "jobs_in_states",
    "SELECT jobs.value FROM unnest($1::bigint[]) AS wanted (state) JOIN jobs ON jobs.state = wanted.state ORDER BY jobs.ulid"};

// What belongs to a job.
inline constexpr Sql kAppendTransition = {
    "append_transition",
    "INSERT INTO transitions (job, version, value) SELECT id, $2, $3 FROM jobs WHERE name = $1 ON CONFLICT DO NOTHING"};
inline constexpr Sql kListTransitions = {
    "list_transitions",
    "SELECT value FROM transitions WHERE job = (SELECT id FROM jobs WHERE name = $1) AND version > $2"
    " ORDER BY version LIMIT GREATEST($3::bigint, 0)"};
inline constexpr Sql kPutAttempt = {
    "put_attempt",
    "INSERT INTO attempts (job, attempt, value) SELECT id, $2, $3 FROM jobs WHERE name = $1"
    " ON CONFLICT (job, attempt) DO UPDATE SET value = excluded.value"};
inline constexpr Sql kListAttempts = {
    "list_attempts", "SELECT value FROM attempts WHERE job = (SELECT id FROM jobs WHERE name = $1) ORDER BY attempt"};
inline constexpr Sql kPutCheckpoint = {
    "put_checkpoint",
    "INSERT INTO checkpoints (job, step, epoch, removed, value) SELECT id, $2, $3, $4, $5 FROM jobs WHERE name = $1"
    " ON CONFLICT (job, step, epoch) DO UPDATE SET removed = excluded.removed, value = excluded.value"};
inline constexpr Sql kListCheckpoints = {
    "list_checkpoints", "SELECT value FROM checkpoints WHERE job = (SELECT id FROM jobs WHERE name = $1) ORDER BY step, epoch"};
inline constexpr Sql kListKeptCheckpoints = {
    "list_kept_checkpoints",
    "SELECT value FROM checkpoints WHERE job = (SELECT id FROM jobs WHERE name = $1) AND removed = 0 ORDER BY step, epoch"};
inline constexpr Sql kPutPlan = {
    "put_plan",
    "INSERT INTO plans (job, value) SELECT id, $2 FROM jobs WHERE name = $1"
    " ON CONFLICT (job) DO UPDATE SET value = excluded.value"};
inline constexpr Sql kGetPlan = {"get_plan", "SELECT value FROM plans WHERE job = (SELECT id FROM jobs WHERE name = $1)"};

// Plans for whoever asks for the same again. Numbers grow with every plan that is put, so that the oldest are found.
inline constexpr Sql kGetCachedPlan = {"get_cached_plan", "SELECT value FROM cached_plans WHERE key = $1"};
inline constexpr Sql kDropCachedPlan = {"drop_cached_plan", "DELETE FROM cached_plans WHERE key = $1"};
inline constexpr Sql kPutCachedPlan = {"put_cached_plan", "INSERT INTO cached_plans (key, value) VALUES ($1, $2)"};
// $1: how many stay.
inline constexpr Sql kTrimCachedPlans = {
    "trim_cached_plans",
    "DELETE FROM cached_plans WHERE id <= (SELECT id FROM cached_plans ORDER BY id DESC LIMIT 1 OFFSET $1)"};

// $1 job, $2 attempt, $3 step, $4 the report for the curve, and where it has rows of ranks $5 the whole. A row if there is the
// job.
inline constexpr Sql kAppendMetrics = {
    "append_metrics",
    "WITH job AS (SELECT id FROM jobs WHERE name = $1), added AS (INSERT INTO metrics (job, attempt, step, value)"
    " SELECT id, $2, $3, $4 FROM job ON CONFLICT DO NOTHING) SELECT id FROM job"};
inline constexpr Sql kAppendMetricsOfRanks = {
    "append_metrics_of_ranks",
    "WITH job AS (SELECT id FROM jobs WHERE name = $1), added AS (INSERT INTO metrics (job, attempt, step, value)"
    " SELECT id, $2, $3, $4 FROM job ON CONFLICT DO NOTHING RETURNING job),"
    " report AS (INSERT INTO rank_reports (job, attempt, step, value) SELECT job, $2, $3, $5 FROM added"
    " ON CONFLICT (job, attempt, step) DO UPDATE SET value = excluded.value) SELECT id FROM job"};
// $2: how many of the latest attempt's stay.
inline constexpr Sql kTrimRankReports = {
    "trim_rank_reports",
    "DELETE FROM rank_reports WHERE job = (SELECT id FROM jobs WHERE name = $1) AND (attempt, step) <="
    " (SELECT attempt, step FROM ((SELECT attempt, step FROM rank_reports WHERE job = (SELECT id FROM jobs WHERE name = $1)"
    "   ORDER BY attempt DESC, step DESC LIMIT 1 OFFSET $2) UNION ALL"
    "  (SELECT attempt, step FROM rank_reports WHERE job = (SELECT id FROM jobs WHERE name = $1)"
    "   AND attempt < (SELECT MAX(attempt) FROM rank_reports WHERE job = (SELECT id FROM jobs WHERE name = $1))"
    "   ORDER BY attempt DESC, step DESC LIMIT 1)) AS gone ORDER BY attempt DESC, step DESC LIMIT 1)"};
inline constexpr Sql kListRankReports = {
    "list_rank_reports",
    "SELECT value FROM rank_reports WHERE job = (SELECT id FROM jobs WHERE name = $1)"
    " ORDER BY attempt DESC, step DESC LIMIT GREATEST($2::bigint, 0)"};
// The attempts that reported and the first step of each, one look into the index for each attempt.
inline constexpr Sql kStretches = {
    "stretches",
    "WITH RECURSIVE stretch (attempt, step) AS ((SELECT attempt, step FROM metrics"
    " WHERE job = (SELECT id FROM jobs WHERE name = $1) ORDER BY attempt, step LIMIT 1)"
    " UNION ALL SELECT next.attempt, next.step FROM stretch, LATERAL (SELECT attempt, step FROM metrics"
    " WHERE job = (SELECT id FROM jobs WHERE name = $1) AND metrics.attempt > stretch.attempt ORDER BY attempt, step LIMIT 1)"
    " AS next) SELECT attempt, step FROM stretch"};
inline constexpr Sql kMetricsPage = {
    "metrics_page",
    "SELECT step, value FROM metrics WHERE job = (SELECT id FROM jobs WHERE name = $1) AND attempt = $2"
    " AND step > $3 AND step < $4 ORDER BY step LIMIT $5"};

// $1 job, $2 attempt, $3 rank, $4 the line, $5 how many lines stay, $6 how many go at a time. The first line that stays of what
// goes says so from then on (`cut`). The line's number stands beside it, not in it.
inline constexpr Sql kAppendLog = {
    "append_log",
    "WITH added AS (INSERT INTO logs (job, sequence, attempt, rank, value) SELECT id,"
    " COALESCE((SELECT sequence FROM logs WHERE job = jobs.id ORDER BY sequence DESC LIMIT 1), 0) + 1, $2, $3, $4"
    " FROM jobs WHERE name = $1 RETURNING job, sequence),"
    " gone AS (SELECT job, sequence - $5::bigint AS last FROM added WHERE sequence > $5 AND sequence % $6::bigint = 0),"
    " removed AS (DELETE FROM logs USING gone WHERE logs.job = gone.job AND logs.sequence < gone.last),"
    " told AS (UPDATE logs SET cut = 1, rank = NULL FROM gone WHERE logs.job = gone.job AND logs.sequence = gone.last)"
    " SELECT sequence FROM added"};
inline constexpr Sql kListLogs = {
    "list_logs",
    "SELECT sequence, cut, value FROM logs WHERE job = (SELECT id FROM jobs WHERE name = $1) AND sequence > $2"
    " AND ($3::bigint IS NULL OR attempt = $3) AND ($4::bigint IS NULL OR rank = $4)"
    " ORDER BY sequence LIMIT GREATEST($5::bigint, 0)"};
inline constexpr Sql kListLastLogs = {
    "list_last_logs",
    "SELECT sequence, cut, value FROM logs WHERE job = (SELECT id FROM jobs WHERE name = $1) AND sequence > $2"
    " AND ($3::bigint IS NULL OR attempt = $3) AND ($4::bigint IS NULL OR rank = $4)"
    " ORDER BY sequence DESC LIMIT GREATEST($5::bigint, 0)"};

// $5 bytes, $6 what a list shows, $7 the trace. One that is put again counts as the latest.
inline constexpr Sql kPutStepTrace = {
    "put_step_trace",
    "INSERT INTO step_traces (job, attempt, step, rank, bytes, value, trace) SELECT id, $2, $3, $4, $5, $6, $7 FROM jobs"
    " WHERE name = $1 ON CONFLICT (job, attempt, step, rank) DO UPDATE SET arrival = nextval('step_traces_arrival_seq'),"
    " bytes = excluded.bytes, value = excluded.value, trace = excluded.trace"};
// The oldest beyond $2 traces or $3 bytes, counted from the latest.
inline constexpr Sql kTrimStepTraces = {
    "trim_step_traces",
    "DELETE FROM step_traces WHERE job = (SELECT id FROM jobs WHERE name = $1) AND arrival <="
    " (SELECT MAX(arrival) FROM (SELECT arrival, ROW_NUMBER() OVER latest AS traces, SUM(bytes) OVER latest AS bytes"
    " FROM step_traces WHERE job = (SELECT id FROM jobs WHERE name = $1) WINDOW latest AS (ORDER BY arrival DESC)) AS counted"
    " WHERE traces > $2 OR bytes > $3)"};
inline constexpr Sql kListStepTraces = {
    "list_step_traces",
    "SELECT value FROM step_traces WHERE job = (SELECT id FROM jobs WHERE name = $1) ORDER BY attempt, step, rank"};
inline constexpr Sql kGetStepTrace = {
    "get_step_trace",
    "SELECT trace FROM step_traces WHERE job = (SELECT id FROM jobs WHERE name = $1)"
    " AND attempt = $2 AND step = $3 AND rank = $4"};

inline constexpr Sql kPutFlightRecord = {
    "put_flight_record",
    "INSERT INTO flight_records (job, attempt, value) SELECT id, $2, $3 FROM jobs WHERE name = $1"
    " ON CONFLICT (job, attempt) DO UPDATE SET value = excluded.value"};
inline constexpr Sql kPutFlightDump = {
    "put_flight_dump",
    "INSERT INTO flight_dumps (job, attempt, rank, value) SELECT id, $2, $3, $4 FROM jobs WHERE name = $1"
    " ON CONFLICT (job, attempt, rank) DO UPDATE SET value = excluded.value"};
inline constexpr Sql kGetFlightRecord = {
    "get_flight_record",
    "SELECT value FROM flight_records WHERE job = (SELECT id FROM jobs WHERE name = $1) ORDER BY attempt DESC LIMIT 1"};
inline constexpr Sql kGetFlightDumps = {
    "get_flight_dumps",
    "SELECT value FROM flight_dumps WHERE job = (SELECT id FROM jobs WHERE name = $1)"
    " AND attempt = (SELECT attempt FROM flight_records WHERE job = (SELECT id FROM jobs WHERE name = $1)"
    " ORDER BY attempt DESC LIMIT 1) ORDER BY rank"};

// Workers and how far their reports are kept.
inline constexpr Sql kPutWorker = {
    "put_worker", "INSERT INTO workers (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value"};
inline constexpr Sql kDeleteWorker = {"delete_worker", "DELETE FROM workers WHERE name = $1"};
inline constexpr Sql kListWorkers = {"list_workers", "SELECT value FROM workers ORDER BY name"};
inline constexpr Sql kGetWorker = {"get_worker", "SELECT value FROM workers WHERE name = $1"};
inline constexpr Sql kSetTelemetry = {
    "set_telemetry",
    "INSERT INTO telemetry (instance, sequence) VALUES ($1, $2)"
    " ON CONFLICT (instance) DO UPDATE SET sequence = GREATEST(telemetry.sequence, excluded.sequence)"};
inline constexpr Sql kTelemetry = {"telemetry", "SELECT sequence FROM telemetry WHERE instance = $1"};

// Tokens.
inline constexpr Sql kPutToken = {
    "put_token", "INSERT INTO tokens (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value"};
inline constexpr Sql kDeleteToken = {"delete_token", "DELETE FROM tokens WHERE name = $1"};
inline constexpr Sql kListTokens = {"list_tokens", "SELECT value FROM tokens ORDER BY name"};
inline constexpr Sql kGetToken = {"get_token", "SELECT value FROM tokens WHERE name = $1"};

// Those that a query plan can be asked of (EXPLAIN).
inline constexpr const Sql* kPlanned[] = {
    &kLead, &kLeader, &kGetJob, &kJobVersion, &kFindSubmission, &kInsertJob, &kInsertSubmission, &kUpdateJob, &kListJobs,
    &kListJobsInStates, &kCountAll, &kCountInStates, &kCountJobs, &kCountJobsInStates, &kJobsInStates, &kAppendTransition,
    &kListTransitions, &kPutAttempt, &kListAttempts, &kPutCheckpoint, &kListCheckpoints, &kListKeptCheckpoints, &kPutPlan,
    &kGetPlan, &kGetCachedPlan, &kDropCachedPlan, &kPutCachedPlan, &kTrimCachedPlans, &kAppendMetrics, &kAppendMetricsOfRanks,
    &kTrimRankReports, &kListRankReports, &kStretches, &kMetricsPage, &kAppendLog, &kListLogs, &kListLastLogs,
    &kPutStepTrace, &kTrimStepTraces, &kListStepTraces, &kGetStepTrace,
    &kPutFlightRecord, &kPutFlightDump, &kGetFlightRecord, &kGetFlightDumps, &kPutWorker, &kDeleteWorker, &kListWorkers,
    &kGetWorker, &kSetTelemetry, &kTelemetry, &kPutToken, &kDeleteToken, &kListTokens, &kGetToken};

}  // namespace legoai::store::postgres

// What agents report of a running job: metrics, log lines, and how far their reports are durable.
#include <algorithm>
#include <limits>

#include "proto/status.h"
#include "server/store/sqlite_transaction.h"
#include "server/store/telemetry_rules.h"

namespace legoai::store {
namespace {

// One look into the tree per attempt, however many steps it has.
absl::StatusOr<std::vector<Stretch>> Stretches(Database& database, int64_t job) {
  std::vector<Stretch> stretches;
  int64_t attempt = std::numeric_limits<int64_t>::min();
  while (true) {
    Statement row = database.Query(
        "SELECT attempt, step FROM metrics WHERE job = ?1 AND attempt > ?2 ORDER BY attempt, step LIMIT 1", job, attempt);
    if (!row.Next()) {
      if (!row.status().ok()) return row.status();
      break;
    }
    attempt = row.Int(0);
    stretches.push_back({.attempt = attempt, .first_step = row.Int(1)});
  }
  CutStretches(&stretches);
  return stretches;
}

// What is beyond those that are kept goes: reports of earlier attempts, then the oldest of this one.
absl::Status PutRankReport(Database& database, int64_t job, const v1::StepMetrics& metrics) {
  RETURN_IF_ERROR(
      database.Run("INSERT OR REPLACE INTO rank_reports (job, attempt, step, ranks, value) VALUES (?1, ?2, ?3, ?4, ?5)", job,
                   metrics.attempt(), metrics.step(), metrics.ranks_size(), metrics));
  RETURN_IF_ERROR(database.Run(
      "DELETE FROM rank_reports WHERE job = ?1 AND attempt < (SELECT MAX(attempt) FROM rank_reports WHERE job = ?1)", job));
  return database.Run(
      "DELETE FROM rank_reports WHERE job = ?1 AND step <="
      " (SELECT step FROM rank_reports WHERE job = ?1 ORDER BY attempt DESC, step DESC LIMIT 1 OFFSET ?2)",
      job, kRankReports);
}

absl::Status RemoveOldestTraces(Database& database, int64_t job) {
  while (true) {
    int64_t oldest = 0;
    {
      Statement row = database.Query("SELECT COUNT(*), SUM(bytes), MIN(rowid) FROM step_traces WHERE job = ?1", job);
      if (!row.Next()) return row.status();
      if (row.Int(0) <= kStepTraces && row.Int(1) <= kStepTraceBytes) return absl::OkStatus();
      oldest = row.Int(2);
    }
    RETURN_IF_ERROR(database.Run("DELETE FROM step_traces WHERE rowid = ?1", oldest));
  }
}

absl::Status PutLog(Database& database, int64_t job, const v1::LogLine& line) {
  const std::optional<int64_t> rank = line.has_rank() ? std::optional(line.rank()) : std::nullopt;
  return database.Run("INSERT INTO logs (job, sequence, attempt, rank, value) VALUES (?1, ?2, ?3, ?4, ?5)", job, line.sequence(),
                      line.attempt(), rank, line);
}

// All up to `last`, in whose place it is said.
absl::Status RemoveLog(Database& database, int64_t job, int64_t last) {
  v1::LogLine line;
  {
    Statement row = database.Query("SELECT value FROM logs WHERE job = ?1 AND sequence = ?2", job, last);
    if (row.Next()) line = row.Message<v1::LogLine>(0);
    if (!row.status().ok()) return row.status();
  }
  RETURN_IF_ERROR(database.Run("DELETE FROM logs WHERE job = ?1 AND sequence <= ?2", job, last));
  SayRemoved(last, &line);
  return PutLog(database, job, line);
}

}  // namespace

absl::Status SqliteTransaction::AppendMetrics(const std::string& job, const v1::StepMetrics& metrics) {
  ASSIGN_OR_RETURN(const int64_t number, JobNumber(job));
  RETURN_IF_ERROR(database_.Run("INSERT OR IGNORE INTO metrics (job, attempt, step, value) VALUES (?1, ?2, ?3, ?4)", number,
                                metrics.attempt(), metrics.step(), CurveOf(metrics)));
  if (database_.changes() == 0 || metrics.ranks().empty()) return absl::OkStatus();
  return PutRankReport(database_, number, metrics);
}

absl::StatusOr<std::vector<v1::StepMetrics>> SqliteTransaction::ListRankReports(const std::string& job, int64_t limit) {
  auto reports = AllMessages<v1::StepMetrics>(
      database_.Query("SELECT value FROM rank_reports WHERE job = (SELECT id FROM jobs WHERE name = ?1)"
                      " ORDER BY attempt DESC, step DESC LIMIT MAX(?2, 0)",
                      job, limit));
  if (reports.ok()) std::reverse(reports->begin(), reports->end());
  return reports;
}

absl::Status SqliteTransaction::ForEachMetrics(const std::string& job, int64_t after_step,
                                               const std::function<void(const v1::StepMetrics&)>& take) {
  const absl::StatusOr<int64_t> number = JobNumber(job);
  if (absl::IsNotFound(number.status())) return absl::OkStatus();
  if (!number.ok()) return number.status();
  ASSIGN_OR_RETURN(const std::vector<Stretch> stretches, Stretches(database_, *number));
  for (const Stretch& stretch : stretches) {
    Statement rows =
        database_.Query("SELECT value FROM metrics WHERE job = ?1 AND attempt = ?2 AND step > ?3 AND step < ?4 ORDER BY step",
                        *number, stretch.attempt, after_step, stretch.until_step);
    while (rows.Next()) take(rows.Message<v1::StepMetrics>(0));
    if (!rows.status().ok()) return rows.status();
  }
  return absl::OkStatus();
}

absl::Status SqliteTransaction::AppendLog(const std::string& job, v1::LogLine line) {
  ASSIGN_OR_RETURN(const int64_t number, JobNumber(job));
  {
    Statement last = database_.Query("SELECT sequence FROM logs WHERE job = ?1 ORDER BY sequence DESC LIMIT 1", number);
    line.set_sequence(last.Next() ? last.Int(0) + 1 : 1);
    if (!last.status().ok()) return last.status();
  }
  absl::Status status = PutLog(database_, number, line);
  if (status.ok() && line.sequence() > kLogLines && line.sequence() % kLogPiece == 0)
    status = RemoveLog(database_, number, line.sequence() - kLogLines);
  return status;
}

absl::StatusOr<std::vector<v1::LogLine>> SqliteTransaction::ListLogs(const LogQuery& query) {
  // One text for each direction: an order cannot be a value.
  const char* sql =
      query.tail ? "SELECT value FROM logs WHERE job = (SELECT id FROM jobs WHERE name = ?1) AND sequence > ?2"
                   " AND (?3 IS NULL OR attempt = ?3) AND (?4 IS NULL OR rank = ?4) ORDER BY sequence DESC LIMIT MAX(?5, 0)"
                 : "SELECT value FROM logs WHERE job = (SELECT id FROM jobs WHERE name = ?1) AND sequence > ?2"
                   " AND (?3 IS NULL OR attempt = ?3) AND (?4 IS NULL OR rank = ?4) ORDER BY sequence LIMIT MAX(?5, 0)";
  absl::StatusOr<std::vector<v1::LogLine>> lines =
      AllMessages<v1::LogLine>(database_.Query(sql, query.job, query.after_sequence, query.attempt, query.rank, query.limit));
  if (lines.ok() && query.tail) std::reverse(lines->begin(), lines->end());
  return lines;
}

absl::Status SqliteTransaction::SetTelemetrySequence(const std::string& instance, int64_t sequence) {
  return database_.Run(
      "INSERT INTO telemetry (instance, sequence) VALUES (?1, ?2)"
      " ON CONFLICT (instance) DO UPDATE SET sequence = MAX(sequence, excluded.sequence)",
      instance, sequence);
}

absl::StatusOr<int64_t> SqliteTransaction::TelemetrySequence(const std::string& instance) {
  Statement row = database_.Query("SELECT sequence FROM telemetry WHERE instance = ?1", instance);
  const int64_t sequence = row.Next() ? row.Int(0) : 0;
  if (!row.status().ok()) return row.status();
  return sequence;
}

// Traces of steps. What a list shows stands before the trace, which may take many pages.
absl::Status SqliteTransaction::PutStepTrace(const std::string& job, const v1::StepTraceInfo& info, const v1::TraceFile& file) {
  ASSIGN_OR_RETURN(const int64_t number, JobNumber(job));
  RETURN_IF_ERROR(database_.Run(
      "INSERT OR REPLACE INTO step_traces (job, attempt, step, rank, bytes, value, trace) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
      number, info.attempt(), info.step(), info.rank(), info.bytes(), info, file));
  return RemoveOldestTraces(database_, number);
}

absl::StatusOr<std::vector<v1::StepTraceInfo>> SqliteTransaction::ListStepTraces(const std::string& job) {
  return AllMessages<v1::StepTraceInfo>(
      database_.Query("SELECT value FROM step_traces WHERE job = (SELECT id FROM jobs WHERE name = ?1)"
                      " ORDER BY attempt, step, rank",
                      job));
}

absl::StatusOr<std::optional<v1::TraceFile>> SqliteTransaction::GetStepTrace(const std::string& job, int64_t attempt,
                                                                             int64_t step, int64_t rank) {
  return FirstMessage<v1::TraceFile>(
      database_.Query("SELECT trace FROM step_traces WHERE job = (SELECT id FROM jobs WHERE name = ?1)"
                      " AND attempt = ?2 AND step = ?3 AND rank = ?4",
                      job, attempt, step, rank));
}

// Flight records: a head for each attempt that has one, and the dumps of its ranks beside it.
absl::Status SqliteTransaction::PutFlightRecord(const std::string& job, const v1::FlightRecord& head,
                                                const v1::FlightDump* dump) {
  ASSIGN_OR_RETURN(const int64_t number, JobNumber(job));
  v1::FlightRecord alone = head;
  alone.clear_dumps();
  const absl::Status status = database_.Run("INSERT OR REPLACE INTO flight_records (job, attempt, value) VALUES (?1, ?2, ?3)",
                                            number, alone.attempt(), alone);
  if (!status.ok() || dump == nullptr) return status;
  return database_.Run("INSERT OR REPLACE INTO flight_dumps (job, attempt, rank, value) VALUES (?1, ?2, ?3, ?4)", number,
                       alone.attempt(), dump->rank(), *dump);
}

absl::StatusOr<std::optional<v1::FlightRecord>> SqliteTransaction::GetFlightRecord(const std::string& job) {
  absl::StatusOr<std::optional<v1::FlightRecord>> record = FirstMessage<v1::FlightRecord>(
      database_.Query("SELECT value FROM flight_records WHERE job = (SELECT id FROM jobs WHERE name = ?1)"
                      " ORDER BY attempt DESC LIMIT 1",
                      job));
  if (!record.ok() || !*record) return record;
  Statement rows = database_.Query(
      "SELECT value FROM flight_dumps WHERE job = (SELECT id FROM jobs WHERE name = ?1) AND attempt = ?2 ORDER BY rank", job,
      (*record)->attempt());
  while (rows.Next()) *(*record)->add_dumps() = rows.Message<v1::FlightDump>(0);
  if (!rows.status().ok()) return rows.status();
  return record;
}

// Workers, by name.
absl::Status SqliteTransaction::PutWorker(const v1::Worker& worker) {
  return database_.Run("INSERT OR REPLACE INTO workers (name, value) VALUES (?1, ?2)", worker.name(), worker);
}

absl::Status SqliteTransaction::DeleteWorker(const std::string& name) {
  return database_.Run("DELETE FROM workers WHERE name = ?1", name);
}

absl::StatusOr<std::vector<v1::Worker>> SqliteTransaction::ListWorkers() {
  return AllMessages<v1::Worker>(database_.Query("SELECT value FROM workers ORDER BY name"));
}

absl::StatusOr<std::optional<v1::Worker>> SqliteTransaction::GetWorker(const std::string& name) {
  return FirstMessage<v1::Worker>(database_.Query("SELECT value FROM workers WHERE name = ?1", name));
}

// Tokens, by name.
absl::Status SqliteTransaction::PutToken(const v1::StoredToken& token) {
  return database_.Run("INSERT OR REPLACE INTO tokens (name, value) VALUES (?1, ?2)", token.token().name(), token);
}

absl::Status SqliteTransaction::DeleteToken(const std::string& name) {
  return database_.Run("DELETE FROM tokens WHERE name = ?1", name);
}

absl::StatusOr<std::vector<v1::StoredToken>> SqliteTransaction::ListTokens() {
  return AllMessages<v1::StoredToken>(database_.Query("SELECT value FROM tokens ORDER BY name"));
}

absl::StatusOr<std::optional<v1::StoredToken>> SqliteTransaction::GetToken(const std::string& name) {
  return FirstMessage<v1::StoredToken>(database_.Query("SELECT value FROM tokens WHERE name = ?1", name));
}

}  // namespace legoai::store

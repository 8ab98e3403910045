// What agents report of a running job, step traces, flight records, workers.
#include <algorithm>
#include <string>
#include <utility>

#include "server/store/postgres_statements.h"
#include "server/store/postgres_transaction.h"
#include "server/store/telemetry_rules.h"

namespace legoai::store {
namespace {

using Values = PostgresValues;
using namespace postgres;  // the statements

constexpr int64_t kPageOfSteps = 2000;

}  // namespace

absl::Status PostgresTransaction::AppendMetrics(const std::string& job, const v1::StepMetrics& metrics) {
  const v1::StepMetrics curve = CurveOf(metrics);
  if (metrics.ranks().empty()) return ChangeOfJob(job, kAppendMetrics, Values(job, metrics.attempt(), metrics.step(), curve));
  RETURN_IF_ERROR(
      ChangeOfJob(job, kAppendMetricsOfRanks, Values(job, metrics.attempt(), metrics.step(), curve, metrics)));
  return session_.Change(kTrimRankReports, Values(job, kRankReports));
}

absl::StatusOr<std::vector<v1::StepMetrics>> PostgresTransaction::ListRankReports(const std::string& job, int64_t limit) {
  auto reports = AllMessages<v1::StepMetrics>(kListRankReports, Values(job, limit));
  if (reports.ok()) std::reverse(reports->begin(), reports->end());
  return reports;
}

absl::Status PostgresTransaction::ForEachMetrics(const std::string& job, int64_t after_step,
                                                 const std::function<void(const v1::StepMetrics&)>& take) {
  ASSIGN_OR_RETURN(const PostgresRows rows, session_.Ask(kStretches, Values(job)));
  std::vector<Stretch> stretches;
  for (int64_t row = 0; row < rows.size(); ++row)
    stretches.push_back({.attempt = rows.Int(row, 0), .first_step = rows.Int(row, 1)});
  CutStretches(&stretches);
  v1::StepMetrics metrics;
  for (const Stretch& stretch : stretches) {
    for (int64_t after = after_step, found = kPageOfSteps; found == kPageOfSteps;) {
      ASSIGN_OR_RETURN(const PostgresRows page,
                       session_.Ask(kMetricsPage, Values(job, stretch.attempt, after, stretch.until_step, kPageOfSteps)));
      found = page.size();
      for (int64_t row = 0; row < found; ++row) {
        RETURN_IF_ERROR(Parse(kMetricsPage, page, row, 1, &metrics));
        take(metrics);
        after = page.Int(row, 0);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status PostgresTransaction::AppendLog(const std::string& job, v1::LogLine line) {
  const std::optional<int64_t> rank = line.has_rank() ? std::optional<int64_t>(line.rank()) : std::nullopt;
  return ChangeOfJob(job, kAppendLog, Values(job, line.attempt(), rank, line, kLogLines, kLogPiece));
}

absl::StatusOr<std::vector<v1::LogLine>> PostgresTransaction::ListLogs(const LogQuery& query) {
  const Sql& statement = query.tail ? kListLastLogs : kListLogs;
  ASSIGN_OR_RETURN(const PostgresRows rows, session_.Ask(statement, Values(query.job, query.after_sequence, query.attempt,
                                                                           query.rank, query.limit)));
  std::vector<v1::LogLine> lines(static_cast<size_t>(rows.size()));
  for (int64_t row = 0; row < rows.size(); ++row) {
    RETURN_IF_ERROR(Parse(statement, rows, row, 2, &lines[row]));
    lines[row].set_sequence(rows.Int(row, 0));
    if (rows.Int(row, 1) != 0) SayRemoved(rows.Int(row, 0), &lines[row]);
  }
  if (query.tail) std::reverse(lines.begin(), lines.end());
  return lines;
}

absl::Status PostgresTransaction::SetTelemetrySequence(const std::string& instance, int64_t sequence) {
  return session_.Change(kSetTelemetry, Values(instance, sequence));
}

absl::StatusOr<int64_t> PostgresTransaction::TelemetrySequence(const std::string& instance) {
  ASSIGN_OR_RETURN(const PostgresRows rows, session_.Ask(kTelemetry, Values(instance)));
  return rows.size() == 0 ? 0 : rows.Int(0, 0);
}

absl::Status PostgresTransaction::PutStepTrace(const std::string& job, const v1::StepTraceInfo& info, const v1::TraceFile& file) {
  RETURN_IF_ERROR(
      ChangeOfJob(job, kPutStepTrace, Values(job, info.attempt(), info.step(), info.rank(), info.bytes(), info, file)));
  return session_.Change(kTrimStepTraces, Values(job, kStepTraces, kStepTraceBytes));
}

absl::StatusOr<std::vector<v1::StepTraceInfo>> PostgresTransaction::ListStepTraces(const std::string& job) {
  return AllMessages<v1::StepTraceInfo>(kListStepTraces, Values(job));
}

absl::StatusOr<std::optional<v1::TraceFile>> PostgresTransaction::GetStepTrace(const std::string& job, int64_t attempt,
                                                                               int64_t step, int64_t rank) {
  return FirstMessage<v1::TraceFile>(kGetStepTrace, Values(job, attempt, step, rank));
}

absl::Status PostgresTransaction::PutFlightRecord(const std::string& job, const v1::FlightRecord& head,
                                                  const v1::FlightDump* dump) {
  v1::FlightRecord alone = head;
  alone.clear_dumps();
  RETURN_IF_ERROR(ChangeOfJob(job, kPutFlightRecord, Values(job, alone.attempt(), alone)));
  if (dump == nullptr) return absl::OkStatus();
  return ChangeOfJob(job, kPutFlightDump, Values(job, alone.attempt(), dump->rank(), *dump));
}

absl::StatusOr<std::optional<v1::FlightRecord>> PostgresTransaction::GetFlightRecord(const std::string& job) {
  std::vector<PostgresConnection::Query> questions;
  questions.push_back({&kGetFlightRecord, Values(job)});
  questions.push_back({&kGetFlightDumps, Values(job)});
  ASSIGN_OR_RETURN(const auto answers, session_.Ask(std::move(questions)));
  if (answers[0].size() == 0) return std::nullopt;
  v1::FlightRecord record;
  RETURN_IF_ERROR(Parse(kGetFlightRecord, answers[0], 0, 0, &record));
  for (int64_t row = 0; row < answers[1].size(); ++row)
    RETURN_IF_ERROR(Parse(kGetFlightDumps, answers[1], row, 0, record.add_dumps()));
  return record;
}

absl::Status PostgresTransaction::PutWorker(const v1::Worker& worker) {
  return session_.Change(kPutWorker, Values(worker.name(), worker));
}

absl::Status PostgresTransaction::DeleteWorker(const std::string& name) { return session_.Change(kDeleteWorker, Values(name)); }

absl::StatusOr<std::vector<v1::Worker>> PostgresTransaction::ListWorkers() {
  return AllMessages<v1::Worker>(kListWorkers, Values());
}

absl::StatusOr<std::optional<v1::Worker>> PostgresTransaction::GetWorker(const std::string& name) {
  return FirstMessage<v1::Worker>(kGetWorker, Values(name));
}

absl::Status PostgresTransaction::PutToken(const v1::StoredToken& token) {
  return session_.Change(kPutToken, Values(token.token().name(), token));
}

absl::Status PostgresTransaction::DeleteToken(const std::string& name) { return session_.Change(kDeleteToken, Values(name)); }

absl::StatusOr<std::vector<v1::StoredToken>> PostgresTransaction::ListTokens() {
  return AllMessages<v1::StoredToken>(kListTokens, Values());
}

absl::StatusOr<std::optional<v1::StoredToken>> PostgresTransaction::GetToken(const std::string& name) {
  return FirstMessage<v1::StoredToken>(kGetToken, Values(name));
}

}  // namespace legoai::store

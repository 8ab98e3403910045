// The operations of the contract (store.h) on PostgreSQL, inside a transaction. Thread-safety: that of the session.
//
// Round trips to the database, each however many rows it moves:
//
//   a change (InsertJob, UpdateJob, Append..., Put..., Set..., Delete...)   0: it travels with the next question or the end,
//                                                                          and with every 256th change or 4 MiB
//   UpdateJob to a version that is not larger                               1: it is refused in any case
//   a question (Get..., List..., Find..., Count..., JobsInStates ...)       1
//   ForEachMetrics                                                          1, and 1 for every 2,000 steps of each attempt
//   the beginning of a transaction, and of each function of a group         0: travels with what comes first
//   the end of a write transaction, for all functions of its group          2: the last changes; then COMMIT
//   the end of a read                                                       0: nobody waits for it
//
// So a state transition (GetJob, UpdateJob, AppendTransition, AppendLog) costs 3, and one in a group of n 1 + 2/n. A function of
// which a change is refused (a job that is not there, a request_id that is used) runs twice, the second time with one round trip
// for each of its changes.
//
// The methods are in files by what they keep: postgres_jobs.cc and postgres_telemetry.cc.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proto/status.h"
#include "server/store/guarded_store.h"
#include "server/store/postgres_session.h"
#include "server/store/store.h"

namespace legoai::store {

class PostgresTransaction final : public Transaction {
 public:
  // Owns neither. `damage` is set by rows that cannot be read.
  PostgresTransaction(PostgresSession& session, DamageLatch& damage) : session_(session), damage_(damage) {}

  absl::StatusOr<std::optional<v1::Job>> GetJob(const std::string& name) override;
  absl::StatusOr<std::vector<v1::Job>> ListJobs(const JobQuery& query) override;
  absl::StatusOr<int64_t> CountJobs(const JobQuery& query) override;
  absl::StatusOr<std::map<v1::JobState, int64_t>> CountJobsByState() override;
  absl::StatusOr<std::vector<v1::Job>> JobsInStates(const std::vector<v1::JobState>& states) override;
  absl::StatusOr<std::optional<EarlierSubmission>> FindSubmission(const std::string& project,
                                                                  const std::string& request_id) override;
  absl::StatusOr<std::vector<v1::Transition>> ListTransitions(const std::string& job, int64_t after_version,
                                                              int64_t limit) override;
  absl::StatusOr<std::vector<v1::Attempt>> ListAttempts(const std::string& job) override;
  absl::StatusOr<std::vector<v1::Checkpoint>> ListCheckpoints(const std::string& job) override;
  absl::StatusOr<std::vector<v1::Checkpoint>> ListKeptCheckpoints(const std::string& job) override;
  absl::StatusOr<std::optional<v1::PlanResult>> GetPlan(const std::string& job) override;
  absl::StatusOr<std::optional<v1::CachedPlan>> GetCachedPlan(const std::string& key) override;
  absl::Status ForEachMetrics(const std::string& job, int64_t after_step,
                              const std::function<void(const v1::StepMetrics&)>& take) override;
  absl::StatusOr<std::vector<v1::StepMetrics>> ListRankReports(const std::string& job, int64_t limit) override;
  absl::StatusOr<std::vector<v1::StepTraceInfo>> ListStepTraces(const std::string& job) override;
  absl::StatusOr<std::optional<v1::TraceFile>> GetStepTrace(const std::string& job, int64_t attempt, int64_t step,
                                                            int64_t rank) override;
  absl::StatusOr<std::vector<v1::LogLine>> ListLogs(const LogQuery& query) override;
  absl::StatusOr<std::optional<v1::FlightRecord>> GetFlightRecord(const std::string& job) override;
  absl::StatusOr<std::vector<v1::Worker>> ListWorkers() override;
  absl::StatusOr<std::optional<v1::Worker>> GetWorker(const std::string& name) override;
  absl::StatusOr<int64_t> TelemetrySequence(const std::string& instance) override;
  absl::StatusOr<std::vector<v1::StoredToken>> ListTokens() override;
  absl::StatusOr<std::optional<v1::StoredToken>> GetToken(const std::string& name) override;

  absl::Status InsertJob(const v1::Job& job, const std::optional<Submission>& submission) override;
  absl::Status UpdateJob(const v1::Job& job, int64_t expected_version) override;
  absl::Status AppendTransition(const v1::Transition& transition) override;
  absl::Status PutAttempt(const std::string& job, const v1::Attempt& attempt) override;
  absl::Status PutCheckpoint(const std::string& job, const v1::Checkpoint& checkpoint) override;
  absl::Status PutPlan(const std::string& job, const v1::PlanResult& plan) override;
  absl::Status PutCachedPlan(const v1::CachedPlan& plan) override;
  absl::Status AppendMetrics(const std::string& job, const v1::StepMetrics& metrics) override;
  absl::Status PutStepTrace(const std::string& job, const v1::StepTraceInfo& info, const v1::TraceFile& file) override;
  absl::Status AppendLog(const std::string& job, v1::LogLine line) override;
  absl::Status PutFlightRecord(const std::string& job, const v1::FlightRecord& head, const v1::FlightDump* dump) override;
  absl::Status PutWorker(const v1::Worker& worker) override;
  absl::Status DeleteWorker(const std::string& name) override;
  absl::Status SetTelemetrySequence(const std::string& instance, int64_t sequence) override;
  absl::Status PutToken(const v1::StoredToken& token) override;
  absl::Status DeleteToken(const std::string& name) override;

 private:
  absl::Status NoSuchJob(const std::string& name);
  absl::Status Unreadable(const PostgresStatement& statement);

  // The message of a column of a row.
  template <class M>
  absl::Status Parse(const PostgresStatement& statement, const PostgresRows& rows, int64_t row, int column, M* message) {
    const std::string_view bytes = rows.Text(row, column);
    return message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) ? absl::OkStatus() : Unreadable(statement);
  }
  // The messages of all rows, from column 0.
  template <class M>
  absl::StatusOr<std::vector<M>> AllMessages(const PostgresStatement& statement, PostgresValues values) {
    ASSIGN_OR_RETURN(const PostgresRows rows, session_.Ask(statement, std::move(values)));
    std::vector<M> messages(static_cast<size_t>(rows.size()));
    for (int64_t row = 0; row < rows.size(); ++row) RETURN_IF_ERROR(Parse(statement, rows, row, 0, &messages[row]));
    return messages;
  }
  // The message of the first row, from column 0; nothing if there is no row.
  template <class M>
  absl::StatusOr<std::optional<M>> FirstMessage(const PostgresStatement& statement, PostgresValues values) {
    ASSIGN_OR_RETURN(const PostgresRows rows, session_.Ask(statement, std::move(values)));
    if (rows.size() == 0) return std::nullopt;
    std::optional<M> message = M();
    RETURN_IF_ERROR(Parse(statement, rows, 0, 0, &*message));
    return message;
  }
  // A change of what belongs to a job, which must be there.
  absl::Status ChangeOfJob(const std::string& job, const PostgresStatement& statement, PostgresValues values) {
    return session_.Change(statement, std::move(values), [&] { return NoSuchJob(job); });
  }

  PostgresSession& session_;
  DamageLatch& damage_;
};

}  // namespace legoai::store

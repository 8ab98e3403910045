// A store in memory, as plainly as it can be said, for tests to compare with: vectors that are searched and sorted. Not
// thread-safe. Copying it is how a transaction is undone.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "server/store/store.h"

namespace legoai::store {

class Oracle final : public Transaction {
 public:
  absl::StatusOr<std::optional<v1::Job>> GetJob(const std::string& name) override;
  absl::StatusOr<std::vector<v1::Job>> ListJobs(const JobQuery& query) override;
  absl::StatusOr<int64_t> CountJobs(const JobQuery& query) override;
  absl::StatusOr<std::vector<v1::Job>> JobsInStates(const std::vector<v1::JobState>& states) override;
  absl::StatusOr<std::optional<EarlierSubmission>> FindSubmission(const std::string& project,
                                                                  const std::string& request_id) override;
  absl::StatusOr<std::vector<v1::Transition>> ListTransitions(const std::string& job, int64_t after_version,
                                                              int64_t limit) override;
  absl::StatusOr<std::vector<v1::Attempt>> ListAttempts(const std::string& job) override;
  absl::StatusOr<std::vector<v1::Checkpoint>> ListCheckpoints(const std::string& job) override;
  absl::StatusOr<std::vector<v1::Checkpoint>> ListKeptCheckpoints(const std::string& job) override;
  absl::StatusOr<std::optional<v1::PlanResult>> GetPlan(const std::string& job) override;
  absl::Status ForEachMetrics(const std::string& job, int64_t after_step,
                              const std::function<void(const v1::StepMetrics&)>& take) override;
  absl::StatusOr<std::vector<v1::LogLine>> ListLogs(const LogQuery& query) override;
  absl::StatusOr<std::optional<v1::FlightRecord>> GetFlightRecord(const std::string& job) override;
  absl::StatusOr<std::vector<v1::Worker>> ListWorkers() override;
  absl::StatusOr<std::optional<v1::Worker>> GetWorker(const std::string& name) override;
  absl::StatusOr<int64_t> TelemetrySequence(const std::string& instance) override;

  absl::Status InsertJob(const v1::Job& job, const std::optional<Submission>& submission) override;
  absl::Status UpdateJob(const v1::Job& job, int64_t expected_version) override;
  absl::Status AppendTransition(const v1::Transition& transition) override;
  absl::Status PutAttempt(const std::string& job, const v1::Attempt& attempt) override;
  absl::Status PutCheckpoint(const std::string& job, const v1::Checkpoint& checkpoint) override;
  absl::Status PutPlan(const std::string& job, const v1::PlanResult& plan) override;
  absl::Status AppendMetrics(const std::string& job, const v1::StepMetrics& metrics) override;
  absl::Status AppendLog(const std::string& job, v1::LogLine line) override;
  absl::Status PutFlightRecord(const std::string& job, const v1::FlightRecord& head, const v1::FlightDump* dump) override;
  absl::Status PutWorker(const v1::Worker& worker) override;
  absl::Status DeleteWorker(const std::string& name) override;
  absl::Status SetTelemetrySequence(const std::string& instance, int64_t sequence) override;

 private:
  // All that a query selects, whatever its page, the latest first.
  std::vector<v1::Job> Selected(const JobQuery& query) const;
  absl::Status NeedJob(const std::string& name) const;

  struct Records {
    std::map<int64_t, v1::Transition> transitions;
    std::map<int64_t, v1::Attempt> attempts;
    std::map<std::pair<int64_t, int64_t>, v1::Checkpoint> checkpoints;  // by step and epoch
    std::optional<v1::PlanResult> plan;
    std::map<std::pair<int64_t, int64_t>, v1::StepMetrics> metrics;  // by attempt and step
    std::vector<v1::LogLine> logs;
    std::map<int64_t, v1::FlightRecord> flight_records;
    std::map<std::pair<int64_t, int64_t>, v1::FlightDump> flight_dumps;  // by attempt and rank
  };
  std::vector<v1::Job> jobs_;  // as inserted
  std::map<std::string, Records> records_;
  std::map<std::pair<std::string, std::string>, EarlierSubmission> submissions_;
  std::map<std::string, v1::Worker> workers_;
  std::map<std::string, int64_t> telemetry_;
};

}  // namespace legoai::store

// Every function of Transaction (store.h), declared as an override: a back end has all of them, and says so in one line.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "server/store/store.h"

#define LEGOAI_TRANSACTION_OVERRIDES \
  absl::StatusOr<std::optional<v1::Job>> GetJob(const std::string& name) override; \
  absl::StatusOr<std::vector<v1::Job>> ListJobs(const JobQuery& query) override; \
  absl::StatusOr<int64_t> CountJobs(const JobQuery& query) override; \
  absl::StatusOr<std::map<v1::JobState, int64_t>> CountJobsByState() override; \
  absl::StatusOr<std::vector<std::string>> ListProjects() override; \
  absl::StatusOr<std::vector<v1::Job>> JobsInStates(const std::vector<v1::JobState>& states) override; \
  absl::StatusOr<std::optional<EarlierSubmission>> FindSubmission(const std::string& project, \
                                                                  const std::string& request_id) override; \
  absl::StatusOr<std::vector<v1::Transition>> ListTransitions(const std::string& job, int64_t after_version, \
                                                              int64_t limit) override; \
  absl::StatusOr<std::vector<v1::Attempt>> ListAttempts(const std::string& job) override; \
  absl::StatusOr<std::vector<v1::Checkpoint>> ListCheckpoints(const std::string& job) override; \
  absl::StatusOr<std::vector<v1::Checkpoint>> ListKeptCheckpoints(const std::string& job) override; \
  absl::StatusOr<std::optional<v1::PlanResult>> GetPlan(const std::string& job) override; \
  absl::StatusOr<std::optional<v1::CachedPlan>> GetCachedPlan(const std::string& key) override; \
  absl::Status ForEachMetrics(const std::string& job, int64_t after_step, \
                              const std::function<void(const v1::StepMetrics&)>& take) override; \
  absl::StatusOr<std::vector<v1::StepMetrics>> ListRankReports(const std::string& job, int64_t limit) override; \
  absl::StatusOr<std::vector<v1::StepTraceInfo>> ListStepTraces(const std::string& job) override; \
  absl::StatusOr<std::optional<v1::TraceFile>> GetStepTrace(const std::string& job, int64_t attempt, int64_t step, \
                                                            int64_t rank) override; \
  absl::StatusOr<std::vector<v1::LogLine>> ListLogs(const LogQuery& query) override; \
  absl::StatusOr<std::optional<v1::FlightRecord>> GetFlightRecord(const std::string& job) override; \
  absl::StatusOr<std::vector<v1::Worker>> ListWorkers() override; \
  absl::StatusOr<std::optional<v1::Worker>> GetWorker(const std::string& name) override; \
  absl::StatusOr<int64_t> TelemetrySequence(const std::string& instance) override; \
  absl::StatusOr<std::vector<v1::StoredToken>> ListTokens() override; \
  absl::StatusOr<std::optional<v1::StoredToken>> GetToken(const std::string& name) override; \
  absl::Status InsertJob(const v1::Job& job, const std::optional<Submission>& submission) override; \
  absl::Status UpdateJob(const v1::Job& job, int64_t expected_version) override; \
  absl::Status AppendTransition(const v1::Transition& transition) override; \
  absl::Status PutAttempt(const std::string& job, const v1::Attempt& attempt) override; \
  absl::Status PutCheckpoint(const std::string& job, const v1::Checkpoint& checkpoint) override; \
  absl::Status PutPlan(const std::string& job, const v1::PlanResult& plan) override; \
  absl::Status PutCachedPlan(const v1::CachedPlan& plan) override; \
  absl::Status AppendMetrics(const std::string& job, const v1::StepMetrics& metrics) override; \
  absl::Status PutStepTrace(const std::string& job, const v1::StepTraceInfo& info, const v1::TraceFile& file) override; \
  absl::Status AppendLog(const std::string& job, v1::LogLine line) override; \
  absl::Status PutFlightRecord(const std::string& job, const v1::FlightRecord& head, const v1::FlightDump* dump) override; \
  absl::Status PutWorker(const v1::Worker& worker) override; \
  absl::Status DeleteWorker(const std::string& name) override; \
  absl::Status SetTelemetrySequence(const std::string& instance, int64_t sequence) override; \
  absl::Status PutToken(const v1::StoredToken& token) override; \
  absl::Status DeleteToken(const std::string& name) override;

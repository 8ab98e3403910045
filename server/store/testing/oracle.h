// A store in memory, as plainly as it can be said, for tests to compare with: vectors that are searched and sorted. Not
// thread-safe. Copying it is how a transaction is undone.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "core/process/run_directory.h"
#include "proto/status.h"
#include "server/store/store.h"

namespace legoai::store {

class Oracle final : public Transaction {
 public:
  absl::StatusOr<std::optional<v1::Job>> GetJob(const std::string& name) override {
    for (const v1::Job& job : jobs_) {
      if (job.name() == name) return job;
    }
    return std::nullopt;
  }
  absl::StatusOr<std::vector<v1::Job>> ListJobs(const JobQuery& query) override {
    std::vector<v1::Job> jobs;
    for (const v1::Job& job : Selected(query)) {
      if (query.before_id.empty() || Id(job) < query.before_id) jobs.push_back(job);
    }
    return First(jobs, query.limit);
  }
  absl::StatusOr<int64_t> CountJobs(const JobQuery& query) override { return static_cast<int64_t>(Selected(query).size()); }
  absl::StatusOr<std::map<v1::JobState, int64_t>> CountJobsByState() override {
    std::map<v1::JobState, int64_t> counts;
    for (const v1::Job& job : jobs_) ++counts[job.state()];
    return counts;
  }
  absl::StatusOr<std::vector<std::string>> ListProjects() override {
    std::set<std::string> projects;
    for (const v1::Job& job : jobs_) projects.insert(job.name().substr(0, job.name().find("/jobs/")));
    return std::vector<std::string>(projects.begin(), projects.end());
  }
  absl::StatusOr<std::vector<v1::Job>> JobsInStates(const std::vector<v1::JobState>& states) override {
    std::vector<v1::Job> jobs;
    for (const v1::Job& job : jobs_) {
      if (std::count(states.begin(), states.end(), job.state()) > 0) jobs.push_back(job);
    }
    std::sort(jobs.begin(), jobs.end(), [](const v1::Job& a, const v1::Job& b) { return Id(a) < Id(b); });
    return jobs;
  }
  absl::StatusOr<std::optional<EarlierSubmission>> FindSubmission(const std::string& project,
                                                                  const std::string& request_id) override {
    return Find(submissions_, {project, request_id});
  }
  absl::StatusOr<std::vector<v1::Transition>> ListTransitions(const std::string& job, int64_t after_version,
                                                              int64_t limit) override {
    std::vector<v1::Transition> transitions;
    for (const auto& [version, transition] : records_[job].transitions) {
      if (version > after_version) transitions.push_back(transition);
    }
    return First(transitions, limit);
  }
  absl::StatusOr<std::vector<v1::Attempt>> ListAttempts(const std::string& job) override {
    return Values(records_[job].attempts);
  }
  absl::StatusOr<std::vector<v1::Checkpoint>> ListCheckpoints(const std::string& job) override {
    return Values(records_[job].checkpoints);
  }
  absl::StatusOr<std::vector<v1::Checkpoint>> ListKeptCheckpoints(const std::string& job) override {
    std::vector<v1::Checkpoint> kept = Values(records_[job].checkpoints);
    std::erase_if(kept, [](const v1::Checkpoint& one) { return one.has_remove_time_us(); });
    return kept;
  }
  absl::StatusOr<std::optional<v1::PlanResult>> GetPlan(const std::string& job) override { return records_[job].plan; }
  absl::StatusOr<std::optional<v1::CachedPlan>> GetCachedPlan(const std::string& key) override {
    for (const v1::CachedPlan& plan : cached_plans_) {
      if (plan.key() == key) return plan;
    }
    return std::nullopt;
  }
  absl::Status ForEachMetrics(const std::string& job, int64_t after_step,
                              const std::function<void(const v1::StepMetrics&)>& take) override {
    for (const v1::StepMetrics& entry : launch::LatestOfEachStep(Values(records_[job].metrics))) {
      if (entry.step() > after_step) take(entry);
    }
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<v1::StepMetrics>> ListRankReports(const std::string& job, int64_t limit) override {
    std::vector<v1::StepMetrics> reports = Values(records_[job].rank_reports);
    std::reverse(reports.begin(), reports.end());
    reports = First(reports, limit);
    std::reverse(reports.begin(), reports.end());
    return reports;
  }
  absl::StatusOr<std::vector<v1::StepTraceInfo>> ListStepTraces(const std::string& job) override {
    std::vector<v1::StepTraceInfo> infos;
    for (const auto& [info, file] : records_[job].traces) infos.push_back(info);
    std::sort(infos.begin(), infos.end(), [](const auto& a, const auto& b) { return KeyOf(a) < KeyOf(b); });
    return infos;
  }
  absl::StatusOr<std::optional<v1::TraceFile>> GetStepTrace(const std::string& job, int64_t attempt, int64_t step,
                                                            int64_t rank) override {
    for (const auto& [info, file] : records_[job].traces) {
      if (KeyOf(info) == std::tuple(attempt, step, rank)) return file;
    }
    return std::nullopt;
  }
  absl::StatusOr<std::vector<v1::LogLine>> ListLogs(const LogQuery& query) override {
    std::vector<v1::LogLine> lines;
    for (const v1::LogLine& line : records_[query.job].logs) {
      if (line.sequence() <= query.after_sequence || (query.attempt && line.attempt() != *query.attempt)) continue;
      if (query.rank && (!line.has_rank() || line.rank() != *query.rank)) continue;
      lines.push_back(line);
    }
    if (query.tail) std::reverse(lines.begin(), lines.end());
    lines = First(lines, query.limit);
    if (query.tail) std::reverse(lines.begin(), lines.end());
    return lines;
  }
  absl::StatusOr<std::optional<v1::FlightRecord>> GetFlightRecord(const std::string& job) override {
    const Records& records = records_[job];
    if (records.flight_records.empty()) return std::nullopt;
    v1::FlightRecord record = records.flight_records.rbegin()->second;
    for (const auto& [key, dump] : records.flight_dumps) {
      if (key.first == record.attempt()) *record.add_dumps() = dump;
    }
    return record;
  }
  absl::StatusOr<std::vector<v1::Worker>> ListWorkers() override { return Values(workers_); }
  absl::StatusOr<std::optional<v1::Worker>> GetWorker(const std::string& name) override { return Find(workers_, name); }
  absl::StatusOr<int64_t> TelemetrySequence(const std::string& instance) override {
    return Find(telemetry_, instance).value_or(0);
  }
  absl::StatusOr<std::vector<v1::StoredToken>> ListTokens() override { return Values(tokens_); }
  absl::StatusOr<std::optional<v1::StoredToken>> GetToken(const std::string& name) override { return Find(tokens_, name); }

  absl::Status InsertJob(const v1::Job& job, const std::optional<Submission>& submission) override {
    if (NeedJob(job.name()).ok()) return absl::AlreadyExistsError(job.name());
    if (!submission) {
      jobs_.push_back(job);
      return absl::OkStatus();
    }
    const std::pair key(submission->project, submission->request_id);
    if (submissions_.contains(key)) return absl::AlreadyExistsError(submission->request_id);
    submissions_[key] = {job.name(), submission->content_sha256};
    jobs_.push_back(job);
    return absl::OkStatus();
  }
  absl::Status UpdateJob(const v1::Job& job, int64_t expected_version) override {
    for (v1::Job& stored : jobs_) {
      if (stored.name() != job.name()) continue;
      if (stored.version() != expected_version) return absl::AbortedError("version");
      if (job.version() <= expected_version) return absl::FailedPreconditionError("version");
      stored = job;
      return absl::OkStatus();
    }
    return absl::NotFoundError(job.name());
  }
  absl::Status AppendTransition(const v1::Transition& transition) override {
    RETURN_IF_ERROR(NeedJob(transition.job()));
    const bool is_new = records_[transition.job()].transitions.emplace(transition.version(), transition).second;
    return is_new ? absl::OkStatus() : absl::AlreadyExistsError("transition");
  }
  absl::Status PutAttempt(const std::string& job, const v1::Attempt& attempt) override {
    RETURN_IF_ERROR(NeedJob(job));
    records_[job].attempts[attempt.attempt()] = attempt;
    return absl::OkStatus();
  }
  absl::Status PutCheckpoint(const std::string& job, const v1::Checkpoint& checkpoint) override {
    RETURN_IF_ERROR(NeedJob(job));
    records_[job].checkpoints[{checkpoint.step(), checkpoint.epoch()}] = checkpoint;
    return absl::OkStatus();
  }
  absl::Status PutCachedPlan(const v1::CachedPlan& plan) override {
    std::erase_if(cached_plans_, [&](const v1::CachedPlan& one) { return one.key() == plan.key(); });
    cached_plans_.push_back(plan);
    if (static_cast<int64_t>(cached_plans_.size()) > kCachedPlans) cached_plans_.erase(cached_plans_.begin());
    return absl::OkStatus();
  }
  absl::Status PutPlan(const std::string& job, const v1::PlanResult& plan) override {
    RETURN_IF_ERROR(NeedJob(job));
    records_[job].plan = plan;
    return absl::OkStatus();
  }
  absl::Status AppendMetrics(const std::string& job, const v1::StepMetrics& metrics) override {
    RETURN_IF_ERROR(NeedJob(job));
    Records& records = records_[job];
    const std::pair key(metrics.attempt(), metrics.step());
    v1::StepMetrics curve = metrics;
    while (curve.ranks_size() > 1) curve.mutable_ranks()->RemoveLast();
    if (curve.ranks_size() > 0) curve.mutable_ranks(0)->clear_collectives();
    if (!records.metrics.emplace(key, curve).second || metrics.ranks().empty()) return absl::OkStatus();
    records.rank_reports[key] = metrics;
    const int64_t latest = records.rank_reports.rbegin()->first.first;
    std::erase_if(records.rank_reports, [&](const auto& one) { return one.first.first < latest; });
    while (static_cast<int64_t>(records.rank_reports.size()) > kRankReports)
      records.rank_reports.erase(records.rank_reports.begin());
    return absl::OkStatus();
  }
  absl::Status PutStepTrace(const std::string& job, const v1::StepTraceInfo& info, const v1::TraceFile& file) override {
    RETURN_IF_ERROR(NeedJob(job));
    auto& traces = records_[job].traces;
    std::erase_if(traces, [&](const auto& one) { return KeyOf(one.first) == KeyOf(info); });
    traces.emplace_back(info, file);
    const auto bytes = [&] {
      int64_t sum = 0;
      for (const auto& one : traces) sum += one.first.bytes();
      return sum;
    };
    while (static_cast<int64_t>(traces.size()) > kStepTraces || bytes() > kStepTraceBytes) traces.erase(traces.begin());
    return absl::OkStatus();
  }
  absl::Status AppendLog(const std::string& job, v1::LogLine line) override {
    RETURN_IF_ERROR(NeedJob(job));
    line.set_sequence(static_cast<int64_t>(records_[job].logs.size()) + 1);
    records_[job].logs.push_back(line);
    return absl::OkStatus();
  }
  absl::Status PutFlightRecord(const std::string& job, const v1::FlightRecord& head, const v1::FlightDump* dump) override {
    RETURN_IF_ERROR(NeedJob(job));
    v1::FlightRecord& record = records_[job].flight_records[head.attempt()];
    record = head;
    record.clear_dumps();
    if (dump != nullptr) records_[job].flight_dumps[{head.attempt(), dump->rank()}] = *dump;
    return absl::OkStatus();
  }
  absl::Status PutWorker(const v1::Worker& worker) override {
    workers_[worker.name()] = worker;
    return absl::OkStatus();
  }
  absl::Status DeleteWorker(const std::string& name) override {
    workers_.erase(name);
    return absl::OkStatus();
  }
  absl::Status PutToken(const v1::StoredToken& token) override {
    tokens_[token.token().name()] = token;
    return absl::OkStatus();
  }
  absl::Status DeleteToken(const std::string& name) override {
    tokens_.erase(name);
    return absl::OkStatus();
  }
  absl::Status SetTelemetrySequence(const std::string& instance, int64_t sequence) override {
    telemetry_[instance] = std::max(telemetry_[instance], sequence);
    return absl::OkStatus();
  }

 private:
  static std::tuple<int64_t, int64_t, int64_t> KeyOf(const v1::StepTraceInfo& info) {
    return {info.attempt(), info.step(), info.rank()};
  }
  static std::string Id(const v1::Job& job) { return job.name().substr(job.name().rfind('/') + 1); }
  static std::string Project(const v1::Job& job) { return job.name().substr(0, job.name().find("/jobs/")); }

  template <class T>
  static std::vector<T> First(std::vector<T> all, int64_t limit) {
    all.resize(std::min(all.size(), static_cast<size_t>(std::max<int64_t>(limit, 0))));
    return all;
  }

  template <class Map>
  static std::vector<typename Map::mapped_type> Values(const Map& map) {
    std::vector<typename Map::mapped_type> values;
    for (const auto& [key, value] : map) values.push_back(value);
    return values;
  }

  template <class Map>
  static std::optional<typename Map::mapped_type> Find(const Map& map, const typename Map::key_type& key) {
    const auto found = map.find(key);
    if (found == map.end()) return std::nullopt;
    return found->second;
  }

  static bool Selects(const JobQuery& query, const v1::Job& job) {
    const bool in_state = query.states.empty() || std::count(query.states.begin(), query.states.end(), job.state()) > 0;
    const bool in_time = job.create_time_us() >= query.created_from_us &&
                         (query.created_until_us == 0 || job.create_time_us() < query.created_until_us);
    const std::string name = absl::AsciiStrToLower(job.spec().display_name());
    return Project(job) == query.project && in_state && in_time &&
           name.find(absl::AsciiStrToLower(query.display_name_contains)) != std::string::npos &&
           (name.find(absl::AsciiStrToLower(query.text_contains)) != std::string::npos ||
            Id(job).find(absl::AsciiStrToUpper(query.text_contains)) != std::string::npos);
  }

  // All that a query selects, whatever its page, the latest first.
  std::vector<v1::Job> Selected(const JobQuery& query) const {
    std::vector<v1::Job> selected;
    std::copy_if(jobs_.begin(), jobs_.end(), std::back_inserter(selected),
                 [&](const v1::Job& job) { return Selects(query, job); });
    std::sort(selected.begin(), selected.end(), [](const v1::Job& a, const v1::Job& b) { return Id(a) > Id(b); });
    return selected;
  }
  absl::Status NeedJob(const std::string& name) const {
    for (const v1::Job& job : jobs_) {
      if (job.name() == name) return absl::OkStatus();
    }
    return absl::NotFoundError(name);
  }

  struct Records {
    std::map<int64_t, v1::Transition> transitions;
    std::map<int64_t, v1::Attempt> attempts;
    std::map<std::pair<int64_t, int64_t>, v1::Checkpoint> checkpoints;  // by step and epoch
    std::optional<v1::PlanResult> plan;
    std::map<std::pair<int64_t, int64_t>, v1::StepMetrics> metrics;  // by attempt and step
    std::map<std::pair<int64_t, int64_t>, v1::StepMetrics> rank_reports;
    std::vector<std::pair<v1::StepTraceInfo, v1::TraceFile>> traces;  // as they came
    std::vector<v1::LogLine> logs;
    std::map<int64_t, v1::FlightRecord> flight_records;
    std::map<std::pair<int64_t, int64_t>, v1::FlightDump> flight_dumps;  // by attempt and rank
  };
  std::vector<v1::Job> jobs_;  // as inserted
  std::map<std::string, Records> records_;
  std::map<std::pair<std::string, std::string>, EarlierSubmission> submissions_;
  std::vector<v1::CachedPlan> cached_plans_;  // in the order in which they were put
  std::map<std::string, v1::Worker> workers_;
  std::map<std::string, int64_t> telemetry_;
  std::map<std::string, v1::StoredToken> tokens_;
};

}  // namespace legoai::store

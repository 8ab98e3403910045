#include "server/store/testing/oracle.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "core/process/run_directory.h"
#include "proto/status.h"

namespace legoai::store {
namespace {

std::string Id(const v1::Job& job) { return job.name().substr(job.name().rfind('/') + 1); }
std::string Project(const v1::Job& job) { return job.name().substr(0, job.name().find("/jobs/")); }

template <class T>
std::vector<T> First(std::vector<T> all, int64_t limit) {
  all.resize(std::min(all.size(), static_cast<size_t>(std::max<int64_t>(limit, 0))));
  return all;
}

template <class Map>
std::vector<typename Map::mapped_type> Values(const Map& map) {
  std::vector<typename Map::mapped_type> values;
  for (const auto& [key, value] : map) values.push_back(value);
  return values;
}

template <class Map>
std::optional<typename Map::mapped_type> Find(const Map& map, const typename Map::key_type& key) {
  const auto found = map.find(key);
  if (found == map.end()) return std::nullopt;
  return found->second;
}

bool Selects(const JobQuery& query, const v1::Job& job) {
  const bool in_state = query.states.empty() || std::count(query.states.begin(), query.states.end(), job.state()) > 0;
  const bool in_time = job.create_time_us() >= query.created_from_us &&
                       (query.created_until_us == 0 || job.create_time_us() < query.created_until_us);
  const std::string name = absl::AsciiStrToLower(job.spec().display_name());
  return Project(job) == query.project && in_state && in_time &&
         name.find(absl::AsciiStrToLower(query.display_name_contains)) != std::string::npos &&
         (name.find(absl::AsciiStrToLower(query.text_contains)) != std::string::npos ||
          Id(job).find(absl::AsciiStrToUpper(query.text_contains)) != std::string::npos);
}

}  // namespace

absl::Status Oracle::NeedJob(const std::string& name) const {
  for (const v1::Job& job : jobs_) {
    if (job.name() == name) return absl::OkStatus();
  }
  return absl::NotFoundError(name);
}

absl::StatusOr<std::optional<v1::Job>> Oracle::GetJob(const std::string& name) {
  for (const v1::Job& job : jobs_) {
    if (job.name() == name) return job;
  }
  return std::nullopt;
}

std::vector<v1::Job> Oracle::Selected(const JobQuery& query) const {
  std::vector<v1::Job> selected;
  std::copy_if(jobs_.begin(), jobs_.end(), std::back_inserter(selected), [&](const v1::Job& job) { return Selects(query, job); });
  std::sort(selected.begin(), selected.end(), [](const v1::Job& a, const v1::Job& b) { return Id(a) > Id(b); });
  return selected;
}

absl::StatusOr<std::vector<v1::Job>> Oracle::ListJobs(const JobQuery& query) {
  std::vector<v1::Job> jobs;
  for (const v1::Job& job : Selected(query)) {
    if (query.before_id.empty() || Id(job) < query.before_id) jobs.push_back(job);
  }
  return First(jobs, query.limit);
}

absl::StatusOr<int64_t> Oracle::CountJobs(const JobQuery& query) { return static_cast<int64_t>(Selected(query).size()); }

absl::StatusOr<std::vector<v1::Job>> Oracle::JobsInStates(const std::vector<v1::JobState>& states) {
  std::vector<v1::Job> jobs;
  for (const v1::Job& job : jobs_) {
    if (std::count(states.begin(), states.end(), job.state()) > 0) jobs.push_back(job);
  }
  std::sort(jobs.begin(), jobs.end(), [](const v1::Job& a, const v1::Job& b) { return Id(a) < Id(b); });
  return jobs;
}

absl::StatusOr<std::optional<ReadTransaction::EarlierSubmission>> Oracle::FindSubmission(const std::string& project,
                                                                                         const std::string& request_id) {
  return Find(submissions_, {project, request_id});
}

absl::StatusOr<std::vector<v1::Transition>> Oracle::ListTransitions(const std::string& job, int64_t after_version,
                                                                    int64_t limit) {
  std::vector<v1::Transition> transitions;
  for (const auto& [version, transition] : records_[job].transitions) {
    if (version > after_version) transitions.push_back(transition);
  }
  return First(transitions, limit);
}

absl::StatusOr<std::vector<v1::Attempt>> Oracle::ListAttempts(const std::string& job) { return Values(records_[job].attempts); }
absl::StatusOr<std::vector<v1::Checkpoint>> Oracle::ListCheckpoints(const std::string& job) {
  return Values(records_[job].checkpoints);
}
absl::StatusOr<std::vector<v1::Checkpoint>> Oracle::ListKeptCheckpoints(const std::string& job) {
  std::vector<v1::Checkpoint> kept = Values(records_[job].checkpoints);
  std::erase_if(kept, [](const v1::Checkpoint& one) { return one.has_remove_time_us(); });
  return kept;
}
absl::StatusOr<std::optional<v1::PlanResult>> Oracle::GetPlan(const std::string& job) { return records_[job].plan; }

absl::Status Oracle::ForEachMetrics(const std::string& job, int64_t after_step,
                                    const std::function<void(const v1::StepMetrics&)>& take) {
  for (const v1::StepMetrics& entry : launch::LatestOfEachStep(Values(records_[job].metrics))) {
    if (entry.step() > after_step) take(entry);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<v1::LogLine>> Oracle::ListLogs(const LogQuery& query) {
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

absl::StatusOr<std::optional<v1::FlightRecord>> Oracle::GetFlightRecord(const std::string& job) {
  const Records& records = records_[job];
  if (records.flight_records.empty()) return std::nullopt;
  v1::FlightRecord record = records.flight_records.rbegin()->second;
  for (const auto& [key, dump] : records.flight_dumps) {
    if (key.first == record.attempt()) *record.add_dumps() = dump;
  }
  return record;
}

absl::StatusOr<std::vector<v1::Worker>> Oracle::ListWorkers() { return Values(workers_); }
absl::StatusOr<std::optional<v1::Worker>> Oracle::GetWorker(const std::string& name) { return Find(workers_, name); }
absl::StatusOr<int64_t> Oracle::TelemetrySequence(const std::string& instance) { return Find(telemetry_, instance).value_or(0); }

absl::Status Oracle::InsertJob(const v1::Job& job, const std::optional<Submission>& submission) {
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

absl::Status Oracle::UpdateJob(const v1::Job& job, int64_t expected_version) {
  for (v1::Job& stored : jobs_) {
    if (stored.name() != job.name()) continue;
    if (stored.version() != expected_version) return absl::AbortedError("version");
    if (job.version() <= expected_version) return absl::FailedPreconditionError("version");
    stored = job;
    return absl::OkStatus();
  }
  return absl::NotFoundError(job.name());
}

absl::Status Oracle::AppendTransition(const v1::Transition& transition) {
  RETURN_IF_ERROR(NeedJob(transition.job()));
  const bool is_new = records_[transition.job()].transitions.emplace(transition.version(), transition).second;
  return is_new ? absl::OkStatus() : absl::AlreadyExistsError("transition");
}

absl::Status Oracle::PutAttempt(const std::string& job, const v1::Attempt& attempt) {
  RETURN_IF_ERROR(NeedJob(job));
  records_[job].attempts[attempt.attempt()] = attempt;
  return absl::OkStatus();
}

absl::Status Oracle::PutCheckpoint(const std::string& job, const v1::Checkpoint& checkpoint) {
  RETURN_IF_ERROR(NeedJob(job));
  records_[job].checkpoints[{checkpoint.step(), checkpoint.epoch()}] = checkpoint;
  return absl::OkStatus();
}

absl::Status Oracle::PutPlan(const std::string& job, const v1::PlanResult& plan) {
  RETURN_IF_ERROR(NeedJob(job));
  records_[job].plan = plan;
  return absl::OkStatus();
}

absl::Status Oracle::AppendMetrics(const std::string& job, const v1::StepMetrics& metrics) {
  RETURN_IF_ERROR(NeedJob(job));
  records_[job].metrics.emplace(std::pair(metrics.attempt(), metrics.step()), metrics);
  return absl::OkStatus();
}

absl::Status Oracle::AppendLog(const std::string& job, v1::LogLine line) {
  RETURN_IF_ERROR(NeedJob(job));
  line.set_sequence(static_cast<int64_t>(records_[job].logs.size()) + 1);
  records_[job].logs.push_back(line);
  return absl::OkStatus();
}

absl::Status Oracle::PutFlightRecord(const std::string& job, const v1::FlightRecord& head, const v1::FlightDump* dump) {
  RETURN_IF_ERROR(NeedJob(job));
  v1::FlightRecord& record = records_[job].flight_records[head.attempt()];
  record = head;
  record.clear_dumps();
  if (dump != nullptr) records_[job].flight_dumps[{head.attempt(), dump->rank()}] = *dump;
  return absl::OkStatus();
}

absl::Status Oracle::PutWorker(const v1::Worker& worker) {
  workers_[worker.name()] = worker;
  return absl::OkStatus();
}

absl::Status Oracle::DeleteWorker(const std::string& name) {
  workers_.erase(name);
  return absl::OkStatus();
}

absl::Status Oracle::SetTelemetrySequence(const std::string& instance, int64_t sequence) {
  telemetry_[instance] = std::max(telemetry_[instance], sequence);
  return absl::OkStatus();
}

}  // namespace legoai::store

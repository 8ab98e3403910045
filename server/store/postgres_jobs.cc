// Jobs, their submissions and transitions, and what their planning and attempts leave.
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/store/job_columns.h"
#include "server/store/postgres_statements.h"
#include "server/store/postgres_transaction.h"

namespace legoai::store {
namespace {

using Values = PostgresValues;
using namespace postgres;  // the statements

std::vector<int64_t> Distinct(const std::vector<v1::JobState>& states) {
  const std::set<v1::JobState> distinct(states.begin(), states.end());
  return {distinct.begin(), distinct.end()};
}

}  // namespace

absl::Status PostgresTransaction::NoSuchJob(const std::string& name) {
  return absl::NotFoundError(absl::StrCat(name, " is not in the store"));
}

absl::Status PostgresTransaction::Unreadable(const PostgresStatement& statement) {
  const absl::Status status = PostgresFieldError(
      session_.target(),
      absl::StrCat("it is damaged (a row cannot be read by the statement ", statement.name, "): restore a backup"),
      absl::StatusCode::kDataLoss);
  damage_.Set(status);
  session_.Fail(status);
  return status;
}

absl::StatusOr<std::optional<v1::Job>> PostgresTransaction::GetJob(const std::string& name) {
  return FirstMessage<v1::Job>(kGetJob, Values(name));
}

absl::StatusOr<std::optional<ReadTransaction::EarlierSubmission>> PostgresTransaction::FindSubmission(
    const std::string& project, const std::string& request_id) {
  ASSIGN_OR_RETURN(const PostgresRows rows, session_.Ask(kFindSubmission, Values(project, request_id)));
  std::optional<EarlierSubmission> found;
  if (rows.size() > 0) found = {std::string(rows.Text(0, 0)), std::string(rows.Text(0, 1))};
  return found;
}

absl::Status PostgresTransaction::InsertJob(const v1::Job& job, const std::optional<Submission>& submission) {
  const std::optional<JobNameParts> parts = SplitJobName(job.name());
  if (!parts) return NoJobName(job.name());
  const auto used = [&](const std::string& by) {
    return absl::AlreadyExistsError(absl::StrCat("request ", submission->request_id, " of ", submission->project, " made ", by));
  };
  // Where every answer is waited for: before anything is changed.
  if (submission && session_.awaits()) {
    ASSIGN_OR_RETURN(const auto earlier, FindSubmission(submission->project, submission->request_id));
    if (earlier) return used(earlier->job);
  }
  RETURN_IF_ERROR(session_.Change(
      kInsertJob,
      Values(job.name(), parts->project, parts->id, job.state(), job.version(), job.create_time_us(),
             PostgresBytes{FoldedName(job)}, job),
      [&] { return absl::AlreadyExistsError(absl::StrCat(job.name(), " is there already")); }));
  if (!submission) return absl::OkStatus();
  return session_.Change(kInsertSubmission,
                         Values(submission->project, submission->request_id, job.name(), submission->content_sha256),
                         [&] { return used("another job"); });
}

absl::Status PostgresTransaction::UpdateJob(const v1::Job& job, int64_t expected_version) {
  // Why it is refused.
  const auto refused = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const PostgresRows rows, session_.Ask(kJobVersion, Values(job.name())));
    if (rows.size() == 0) return NoSuchJob(job.name());
    if (const int64_t stored = rows.Int(0, 0); stored != expected_version) {
      return absl::AbortedError(
          absl::StrCat(job.name(), " was changed meanwhile: it has version ", stored, ", not ", expected_version));
    }
    return absl::FailedPreconditionError(
        absl::StrCat("the new version of ", job.name(), ", ", job.version(), ", is not larger than ", expected_version));
  };
  if (job.version() <= expected_version) return refused();
  return session_.Change(kUpdateJob,
                         Values(job.name(), expected_version, job.version(), job.state(), job.create_time_us(),
                                PostgresBytes{FoldedName(job)}, job),
                         refused);
}

absl::Status PostgresTransaction::AppendTransition(const v1::Transition& transition) {
  return session_.Change(
      kAppendTransition, Values(transition.job(), transition.version(), transition), [&]() -> absl::Status {
        ASSIGN_OR_RETURN(const PostgresRows rows, session_.Ask(kJobVersion, Values(transition.job())));
        if (rows.size() == 0) return NoSuchJob(transition.job());
        return absl::AlreadyExistsError(
            absl::StrCat("the transition of ", transition.job(), " to version ", transition.version(), " is there already"));
      });
}

absl::StatusOr<std::vector<v1::Transition>> PostgresTransaction::ListTransitions(const std::string& job, int64_t after_version,
                                                                                 int64_t limit) {
  return AllMessages<v1::Transition>(kListTransitions, Values(job, after_version, limit));
}

absl::StatusOr<std::vector<v1::Job>> PostgresTransaction::ListJobs(const JobQuery& query) {
  const JobFilter filter(query);
  const std::string before = query.before_id.empty() ? kAfterAllUlids : query.before_id;
  const PostgresBytes name{filter.name}, text{filter.text}, id_text{filter.id_text};
  if (query.states.empty()) {
    return AllMessages<v1::Job>(kListJobs, Values(query.project, before, query.created_from_us, filter.until_us, name, text,
                                                  id_text, query.limit));
  }
  return AllMessages<v1::Job>(kListJobsInStates, Values(query.project, before, query.created_from_us, filter.until_us, name, text,
                                                        id_text, query.limit, Distinct(query.states)));
}

absl::StatusOr<int64_t> PostgresTransaction::CountJobs(const JobQuery& query) {
  const JobFilter filter(query);
  const PostgresBytes name{filter.name}, text{filter.text}, id_text{filter.id_text};
  const std::vector<int64_t> states = Distinct(query.states);
  const auto count = [&](const Sql& statement, Values values) -> absl::StatusOr<int64_t> {
    ASSIGN_OR_RETURN(const PostgresRows rows, session_.Ask(statement, std::move(values)));
    return rows.Int(0, 0);
  };
  if (filter.of_all && states.empty()) return count(kCountAll, Values(query.project));
  if (filter.of_all) return count(kCountInStates, Values(query.project, states));
  if (states.empty())
    return count(kCountJobs, Values(query.project, query.created_from_us, filter.until_us, name, text, id_text));
  return count(kCountJobsInStates, Values(query.project, query.created_from_us, filter.until_us, name, text, id_text, states));
}

absl::StatusOr<std::map<v1::JobState, int64_t>> PostgresTransaction::CountJobsByState() {
  ASSIGN_OR_RETURN(const PostgresRows rows, session_.Ask(kCountByState, Values()));
  std::map<v1::JobState, int64_t> counts;
  for (int64_t row = 0; row < rows.size(); ++row) counts[static_cast<v1::JobState>(rows.Int(row, 0))] = rows.Int(row, 1);
  return counts;
}

absl::StatusOr<std::vector<std::string>> PostgresTransaction::ListProjects() {
  ASSIGN_OR_RETURN(const PostgresRows rows, session_.Ask(kListProjects, Values()));
  std::vector<std::string> projects;
  for (int64_t row = 0; row < rows.size(); ++row) projects.emplace_back(rows.Text(row, 0));
  return projects;
}

absl::StatusOr<std::vector<v1::Job>> PostgresTransaction::JobsInStates(const std::vector<v1::JobState>& states) {
  return AllMessages<v1::Job>(kJobsInStates, Values(Distinct(states)));
}

absl::Status PostgresTransaction::PutAttempt(const std::string& job, const v1::Attempt& attempt) {
  return ChangeOfJob(job, kPutAttempt, Values(job, attempt.attempt(), attempt));
}

absl::StatusOr<std::vector<v1::Attempt>> PostgresTransaction::ListAttempts(const std::string& job) {
  return AllMessages<v1::Attempt>(kListAttempts, Values(job));
}

absl::Status PostgresTransaction::PutCheckpoint(const std::string& job, const v1::Checkpoint& checkpoint) {
  return ChangeOfJob(job, kPutCheckpoint, Values(job, checkpoint.step(), checkpoint.epoch(),
                                                 static_cast<int64_t>(checkpoint.has_remove_time_us()), checkpoint));
}

absl::StatusOr<std::vector<v1::Checkpoint>> PostgresTransaction::ListCheckpoints(const std::string& job) {
  return AllMessages<v1::Checkpoint>(kListCheckpoints, Values(job));
}

absl::StatusOr<std::vector<v1::Checkpoint>> PostgresTransaction::ListKeptCheckpoints(const std::string& job) {
  return AllMessages<v1::Checkpoint>(kListKeptCheckpoints, Values(job));
}

absl::Status PostgresTransaction::PutPlan(const std::string& job, const v1::PlanResult& plan) {
  return ChangeOfJob(job, kPutPlan, Values(job, plan));
}

absl::StatusOr<std::optional<v1::PlanResult>> PostgresTransaction::GetPlan(const std::string& job) {
  return FirstMessage<v1::PlanResult>(kGetPlan, Values(job));
}

// Its row is not trusted, and not worth the end of the server.
absl::StatusOr<std::optional<v1::CachedPlan>> PostgresTransaction::GetCachedPlan(const std::string& key) {
  ASSIGN_OR_RETURN(const PostgresRows rows, session_.Ask(kGetCachedPlan, Values(key)));
  if (rows.size() == 0) return std::nullopt;
  const std::string_view bytes = rows.Text(0, 0);
  std::optional<v1::CachedPlan> plan = v1::CachedPlan();
  if (!plan->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) plan.reset();
  return plan;
}

absl::Status PostgresTransaction::PutCachedPlan(const v1::CachedPlan& plan) {
  RETURN_IF_ERROR(session_.Change(kDropCachedPlan, Values(plan.key())));
  RETURN_IF_ERROR(session_.Change(kPutCachedPlan, Values(plan.key(), plan)));
  return session_.Change(kTrimCachedPlans, Values(kCachedPlans));
}

}  // namespace legoai::store

// Jobs one by one: insertion, change, submissions, transitions.
#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/status.h"
#include "server/store/job_columns.h"
#include "server/store/sqlite_transaction.h"

namespace legoai::store {
namespace {

absl::Status NoSuchJob(const std::string& name) { return absl::NotFoundError(absl::StrCat(name, " is not in the store")); }

using Page = std::vector<std::pair<std::string, int64_t>>;  // ULID and number

absl::Status AddPage(Statement rows, Page& page) {
  while (rows.Next()) page.emplace_back(rows.Text(0), rows.Int(1));
  return rows.status();
}

absl::Status AddPageInState(Database& database, const JobQuery& query, const std::string& before, v1::JobState state,
                            Page& page) {
  const JobFilter filter(query);
  return AddPage(
      database.Query("SELECT ulid, id FROM jobs INDEXED BY jobs_by_project_and_state"
                     " WHERE project = ?1 AND state = ?2 AND ulid < ?3 AND create_time_us >= ?4 AND create_time_us < ?5"
                     " AND instr(folded_name, ?6) > 0 AND (instr(folded_name, ?7) > 0 OR instr(ulid, ?8) > 0)"
                     " ORDER BY ulid DESC LIMIT MAX(?9, 0)",
                     query.project, state, before, query.created_from_us, filter.until_us, filter.name, filter.text,
                     filter.id_text, query.limit),
      page);
}

// The page of each state is in order already; the page of all is the first of these together.
absl::StatusOr<Page> FindPage(Database& database, const JobQuery& query) {
  Page page;
  const JobFilter filter(query);
  const std::string before = query.before_id.empty() ? kAfterAllUlids : query.before_id;
  if (query.states.empty()) {
    RETURN_IF_ERROR(
        AddPage(database.Query("SELECT ulid, id FROM jobs INDEXED BY jobs_by_project"
                               " WHERE project = ?1 AND ulid < ?2 AND create_time_us >= ?3 AND create_time_us < ?4"
                               " AND instr(folded_name, ?5) > 0 AND (instr(folded_name, ?6) > 0 OR instr(ulid, ?7) > 0)"
                               " ORDER BY ulid DESC LIMIT MAX(?8, 0)",
                               query.project, before, query.created_from_us, filter.until_us, filter.name, filter.text,
                               filter.id_text, query.limit),
                page));
    return page;
  }
  for (v1::JobState state : std::set<v1::JobState>(query.states.begin(), query.states.end())) {
    RETURN_IF_ERROR(AddPageInState(database, query, before, state, page));
  }
  std::sort(page.begin(), page.end(), std::greater<>());
  page.resize(std::min(page.size(), static_cast<size_t>(std::max<int64_t>(query.limit, 0))));
  return page;
}

absl::StatusOr<int64_t> Number(Statement row) {
  const int64_t number = row.Next() ? row.Int(0) : 0;
  if (!row.status().ok()) return row.status();
  return number;
}

}  // namespace

absl::StatusOr<int64_t> SqliteTransaction::JobNumber(const std::string& name) {
  Statement row = database_.Query("SELECT id FROM jobs WHERE name = ?1", name);
  if (row.Next()) return row.Int(0);
  return row.status().ok() ? NoSuchJob(name) : row.status();
}

absl::StatusOr<std::optional<v1::Job>> SqliteTransaction::GetJob(const std::string& name) {
  return FirstMessage<v1::Job>(database_.Query("SELECT value FROM jobs WHERE name = ?1", name));
}

absl::StatusOr<std::optional<ReadTransaction::EarlierSubmission>> SqliteTransaction::FindSubmission(
    const std::string& project, const std::string& request_id) {
  Statement row =
      database_.Query("SELECT job, content_sha256 FROM submissions WHERE project = ?1 AND request_id = ?2", project, request_id);
  std::optional<EarlierSubmission> found;
  if (row.Next()) found = {std::string(row.Text(0)), std::string(row.Text(1))};
  if (!row.status().ok()) return row.status();
  return found;
}

absl::Status SqliteTransaction::InsertJob(const v1::Job& job, const std::optional<Submission>& submission) {
  const std::optional<JobNameParts> parts = SplitJobName(job.name());
  if (!parts) return NoJobName(job.name());
  if (submission) {
    ASSIGN_OR_RETURN(const auto earlier, FindSubmission(submission->project, submission->request_id));
    if (earlier) {
      return absl::AlreadyExistsError(
          absl::StrCat("request ", submission->request_id, " of ", submission->project, " made ", earlier->job));
    }
  }
  RETURN_IF_ERROR(database_.Run(
      "INSERT OR IGNORE INTO jobs (name, project, ulid, state, version, create_time_us, folded_name, value)"
      " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
      job.name(), parts->project, parts->id, job.state(), job.version(), job.create_time_us(), FoldedName(job), job));
  if (database_.changes() == 0) return absl::AlreadyExistsError(absl::StrCat(job.name(), " is there already"));
  if (!submission) return absl::OkStatus();
  return database_.Run("INSERT INTO submissions (project, request_id, job, content_sha256) VALUES (?1, ?2, ?3, ?4)",
                       submission->project, submission->request_id, job.name(), submission->content_sha256);
}

absl::Status SqliteTransaction::UpdateJob(const v1::Job& job, int64_t expected_version) {
  int64_t id = 0;
  bool listed_alike = false;
  {
    Statement row =
        database_.Query("SELECT id, version, state, create_time_us, folded_name FROM jobs WHERE name = ?1", job.name());
    if (!row.Next()) return row.status().ok() ? NoSuchJob(job.name()) : row.status();
    id = row.Int(0);
    if (const int64_t stored = row.Int(1); stored != expected_version) {
      return absl::AbortedError(
          absl::StrCat(job.name(), " was changed meanwhile: it has version ", stored, ", not ", expected_version));
    }
    listed_alike = row.Int(2) == job.state() && row.Int(3) == job.create_time_us() && row.Text(4) == FoldedName(job);
  }
  if (job.version() <= expected_version) {
    return absl::FailedPreconditionError(
        absl::StrCat("the new version of ", job.name(), ", ", job.version(), ", is not larger than ", expected_version));
  }
  // Columns that are named are taken out of their indexes and put in again, changed or not.
  if (listed_alike) return database_.Run("UPDATE jobs SET version = ?2, value = ?3 WHERE id = ?1", id, job.version(), job);
  return database_.Run(
      "UPDATE jobs SET version = ?2, value = ?3, state = ?4, create_time_us = ?5, folded_name = ?6 WHERE id = ?1", id,
      job.version(), job, job.state(), job.create_time_us(), FoldedName(job));
}

absl::Status SqliteTransaction::AppendTransition(const v1::Transition& transition) {
  const absl::StatusOr<int64_t> job = JobNumber(transition.job());
  if (!job.ok()) return job.status();
  const absl::Status status = database_.Run("INSERT OR IGNORE INTO transitions (job, version, value) VALUES (?1, ?2, ?3)", *job,
                                            transition.version(), transition);
  if (!status.ok() || database_.changes() > 0) return status;
  return absl::AlreadyExistsError(
      absl::StrCat("the transition of ", transition.job(), " to version ", transition.version(), " is there already"));
}

absl::StatusOr<std::vector<v1::Transition>> SqliteTransaction::ListTransitions(const std::string& job, int64_t after_version,
                                                                               int64_t limit) {
  return AllMessages<v1::Transition>(
      database_.Query("SELECT value FROM transitions WHERE job = (SELECT id FROM jobs WHERE name = ?1) AND version > ?2"
                      " ORDER BY version LIMIT MAX(?3, 0)",
                      job, after_version, limit));
}

// Lists of jobs. Each reads index entries in the order that is wanted and stops at its limit; the planner is not asked (INDEXED
// BY).
absl::StatusOr<std::vector<v1::Job>> SqliteTransaction::ListJobs(const JobQuery& query) {
  ASSIGN_OR_RETURN(const Page page, FindPage(database_, query));
  std::vector<v1::Job> jobs;
  for (const auto& [ulid, number] : page) {
    Statement row = database_.Query("SELECT value FROM jobs WHERE id = ?1", number);
    if (row.Next()) jobs.push_back(row.Message<v1::Job>(0));
    if (!row.status().ok()) return row.status();
  }
  return jobs;
}

// Where nothing but project and state is asked for, the count is kept; otherwise index entries are counted.
absl::StatusOr<int64_t> SqliteTransaction::CountJobs(const JobQuery& query) {
  const JobFilter filter(query);
  if (query.states.empty() && filter.of_all) {
    return Number(database_.Query("SELECT SUM(jobs) FROM job_counts WHERE project = ?1", query.project));
  }
  if (query.states.empty()) {
    return Number(
        database_.Query("SELECT COUNT(*) FROM jobs INDEXED BY jobs_by_project"
                        " WHERE project = ?1 AND create_time_us >= ?2 AND create_time_us < ?3 AND instr(folded_name, ?4) > 0"
                        " AND (instr(folded_name, ?5) > 0 OR instr(ulid, ?6) > 0)",
                        query.project, query.created_from_us, filter.until_us, filter.name, filter.text, filter.id_text));
  }
  int64_t count = 0;
  for (v1::JobState state : std::set<v1::JobState>(query.states.begin(), query.states.end())) {
    const absl::StatusOr<int64_t> in_state =
        filter.of_all
            ? Number(database_.Query("SELECT jobs FROM job_counts WHERE project = ?1 AND state = ?2", query.project, state))
            : Number(database_.Query(
                     "SELECT COUNT(*) FROM jobs INDEXED BY jobs_by_project_and_state WHERE project = ?1 AND state = ?2"
                     " AND create_time_us >= ?3 AND create_time_us < ?4 AND instr(folded_name, ?5) > 0"
                     " AND (instr(folded_name, ?6) > 0 OR instr(ulid, ?7) > 0)",
                     query.project, state, query.created_from_us, filter.until_us, filter.name, filter.text, filter.id_text));
    if (!in_state.ok()) return in_state;
    count += *in_state;
  }
  return count;
}

absl::StatusOr<std::map<v1::JobState, int64_t>> SqliteTransaction::CountJobsByState() {
  std::map<v1::JobState, int64_t> counts;
  Statement rows = database_.Query("SELECT state, SUM(jobs) FROM job_counts GROUP BY state HAVING SUM(jobs) > 0");
  while (rows.Next()) counts[static_cast<v1::JobState>(rows.Int(0))] = rows.Int(1);
  if (!rows.status().ok()) return rows.status();
  return counts;
}

absl::StatusOr<std::vector<std::string>> SqliteTransaction::ListProjects() {
  std::vector<std::string> projects;
  Statement rows = database_.Query("SELECT project FROM job_counts GROUP BY project HAVING SUM(jobs) > 0 ORDER BY project");
  while (rows.Next()) projects.emplace_back(rows.Text(0));
  if (!rows.status().ok()) return rows.status();
  return projects;
}

absl::StatusOr<std::vector<v1::Job>> SqliteTransaction::JobsInStates(const std::vector<v1::JobState>& states) {
  std::vector<std::pair<std::string, v1::Job>> found;
  for (v1::JobState state : std::set<v1::JobState>(states.begin(), states.end())) {
    Statement rows =
        database_.Query("SELECT value, ulid FROM jobs INDEXED BY jobs_by_state WHERE state = ?1 ORDER BY ulid", state);
    while (rows.Next()) found.emplace_back(rows.Text(1), rows.Message<v1::Job>(0));
    if (!rows.status().ok()) return rows.status();
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<v1::Job> jobs;
  for (auto& [ulid, job] : found) jobs.push_back(std::move(job));
  return jobs;
}

// What a job's planning and its attempts leave: plans, attempts, committed checkpoints.
absl::Status SqliteTransaction::PutAttempt(const std::string& job, const v1::Attempt& attempt) {
  ASSIGN_OR_RETURN(const int64_t number, JobNumber(job));
  return database_.Run("INSERT OR REPLACE INTO attempts (job, attempt, value) VALUES (?1, ?2, ?3)", number, attempt.attempt(),
                       attempt);
}

absl::StatusOr<std::vector<v1::Attempt>> SqliteTransaction::ListAttempts(const std::string& job) {
  return AllMessages<v1::Attempt>(
      database_.Query("SELECT value FROM attempts WHERE job = (SELECT id FROM jobs WHERE name = ?1) ORDER BY attempt", job));
}

absl::Status SqliteTransaction::PutCheckpoint(const std::string& job, const v1::Checkpoint& checkpoint) {
  ASSIGN_OR_RETURN(const int64_t number, JobNumber(job));
  return database_.Run("INSERT OR REPLACE INTO checkpoints (job, step, epoch, value, removed) VALUES (?1, ?2, ?3, ?4, ?5)",
                       number, checkpoint.step(), checkpoint.epoch(), checkpoint,
                       static_cast<int64_t>(checkpoint.has_remove_time_us()));
}

absl::StatusOr<std::vector<v1::Checkpoint>> SqliteTransaction::ListCheckpoints(const std::string& job) {
  return AllMessages<v1::Checkpoint>(database_.Query(
      "SELECT value FROM checkpoints WHERE job = (SELECT id FROM jobs WHERE name = ?1) ORDER BY step, epoch", job));
}

absl::StatusOr<std::vector<v1::Checkpoint>> SqliteTransaction::ListKeptCheckpoints(const std::string& job) {
  auto kept = AllMessages<v1::Checkpoint>(
      database_.Query("SELECT value FROM checkpoints WHERE job = (SELECT id FROM jobs WHERE name = ?1) AND removed = 0"
                      " ORDER BY step, epoch",
                      job));
  // Rows of version 1 of the schema have no mark.
  if (kept.ok()) std::erase_if(*kept, [](const v1::Checkpoint& one) { return one.has_remove_time_us(); });
  return kept;
}

absl::Status SqliteTransaction::PutPlan(const std::string& job, const v1::PlanResult& plan) {
  ASSIGN_OR_RETURN(const int64_t number, JobNumber(job));
  return database_.Run("INSERT OR REPLACE INTO plans (job, value) VALUES (?1, ?2)", number, plan);
}

absl::StatusOr<std::optional<v1::PlanResult>> SqliteTransaction::GetPlan(const std::string& job) {
  return FirstMessage<v1::PlanResult>(
      database_.Query("SELECT value FROM plans WHERE job = (SELECT id FROM jobs WHERE name = ?1)", job));
}

// Its row is not trusted, and not worth the end of the server.
absl::StatusOr<std::optional<v1::CachedPlan>> SqliteTransaction::GetCachedPlan(const std::string& key) {
  Statement row = database_.Query("SELECT value FROM cached_plans WHERE key = ?1", key);
  std::optional<v1::CachedPlan> plan;
  if (row.Next()) {
    const std::string_view bytes = row.Text(0);
    if (!plan.emplace().ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) plan.reset();
  }
  if (!row.status().ok()) return row.status();
  return plan;
}

absl::Status SqliteTransaction::PutCachedPlan(const v1::CachedPlan& plan) {
  RETURN_IF_ERROR(database_.Run("INSERT OR REPLACE INTO cached_plans (key, value) VALUES (?1, ?2)", plan.key(), plan));
  return database_.Run(
      "DELETE FROM cached_plans WHERE id <= (SELECT id FROM cached_plans WHERE id > 0 ORDER BY id DESC LIMIT 1 OFFSET ?1)",
      kCachedPlans);
}

}  // namespace legoai::store

// Jobs one by one: insertion, change, submissions, transitions.
#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/status.h"
#include "server/store/sqlite_transaction.h"

namespace legoai::store {
namespace {

struct NameParts {
  std::string_view project, id;
};

// Of "projects/P/jobs/ID".
std::optional<NameParts> Split(std::string_view name) {
  constexpr std::string_view kProjects = "projects/", kJobs = "/jobs/";
  const size_t jobs = name.find(kJobs);
  if (name.substr(0, kProjects.size()) != kProjects || jobs == std::string_view::npos || jobs <= kProjects.size())
    return std::nullopt;
  const NameParts parts{name.substr(0, jobs), name.substr(jobs + kJobs.size())};
  const bool nested =
      parts.id.find('/') != std::string_view::npos || parts.project.find('/', kProjects.size()) != std::string_view::npos;
  if (parts.id.empty() || nested) return std::nullopt;
  return parts;
}

std::string FoldedName(const v1::Job& job) { return absl::AsciiStrToLower(job.spec().display_name()); }

absl::Status NoSuchJob(const std::string& name) { return absl::NotFoundError(absl::StrCat(name, " is not in the store")); }

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
  const std::optional<NameParts> parts = Split(job.name());
  if (!parts) return absl::InvalidArgumentError(absl::StrCat("\"", job.name(), "\" is no name of a job: projects/P/jobs/ID"));
  if (submission) {
    ASSIGN_OR_RETURN(const auto earlier, FindSubmission(submission->project, submission->request_id));
    if (earlier) {
      return absl::AlreadyExistsError(
          absl::StrCat("request ", submission->request_id, " of ", submission->project, " made ", earlier->job));
    }
  }
  const absl::Status inserted = database_.Run(
      "INSERT OR IGNORE INTO jobs (name, project, ulid, state, version, create_time_us, folded_name, value)"
      " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
      job.name(), parts->project, parts->id, job.state(), job.version(), job.create_time_us(), FoldedName(job), job);
  if (!inserted.ok()) return inserted;
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

}  // namespace legoai::store

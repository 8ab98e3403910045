// What a job's planning and its attempts leave: plans, attempts, committed checkpoints.
#include "server/store/sqlite_transaction.h"

namespace legoai::store {

absl::Status SqliteTransaction::PutAttempt(const std::string& job, const v1::Attempt& attempt) {
  const absl::StatusOr<int64_t> number = JobNumber(job);
  if (!number.ok()) return number.status();
  return database_.Run("INSERT OR REPLACE INTO attempts (job, attempt, value) VALUES (?1, ?2, ?3)", *number, attempt.attempt(),
                       attempt);
}

absl::StatusOr<std::vector<v1::Attempt>> SqliteTransaction::ListAttempts(const std::string& job) {
  return AllMessages<v1::Attempt>(
      database_.Query("SELECT value FROM attempts WHERE job = (SELECT id FROM jobs WHERE name = ?1) ORDER BY attempt", job));
}

absl::Status SqliteTransaction::PutCheckpoint(const std::string& job, const v1::Checkpoint& checkpoint) {
  const absl::StatusOr<int64_t> number = JobNumber(job);
  if (!number.ok()) return number.status();
  return database_.Run("INSERT OR REPLACE INTO checkpoints (job, step, epoch, value, removed) VALUES (?1, ?2, ?3, ?4, ?5)",
                       *number, checkpoint.step(), checkpoint.epoch(), checkpoint,
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
  const absl::StatusOr<int64_t> number = JobNumber(job);
  if (!number.ok()) return number.status();
  return database_.Run("INSERT OR REPLACE INTO plans (job, value) VALUES (?1, ?2)", *number, plan);
}

absl::StatusOr<std::optional<v1::PlanResult>> SqliteTransaction::GetPlan(const std::string& job) {
  return FirstMessage<v1::PlanResult>(
      database_.Query("SELECT value FROM plans WHERE job = (SELECT id FROM jobs WHERE name = ?1)", job));
}

}  // namespace legoai::store

// A history in which every rule holds, for the tests of the checkers to put one fault into.
#pragma once

#include "tests/scenarios/checker.h"

namespace legoai::scenarios {

inline constexpr char kJob[] = "projects/default/jobs/A";

// The next transition, with its attempt's beginning and end. Attempt N is under way from 100 N to 100 N + 50, on two slots.
inline void Add(JobHistory* history, v1::JobState to) {
  v1::Job& job = history->job;
  v1::Transition& transition = history->transitions.emplace_back();
  transition.set_from(job.state());
  transition.set_to(to);
  job.set_version(job.version() + 2);  // one without a row of the history lies between
  transition.set_version(job.version());
  job.set_state(to);
  if (to == v1::LEASED) {
    job.set_epoch(job.epoch() + 1);
    job.set_attempts(job.attempts() + 1);
    v1::Attempt& attempt = history->attempts.emplace_back();
    attempt.set_attempt(job.attempts());
    attempt.set_epoch(job.epoch());
    attempt.set_start_time_us(100 * job.epoch());
    if (job.committed_step() > 0) attempt.set_resume_step(job.committed_step());
    attempt.add_placements()->set_worker("workers/a");
    attempt.mutable_placements(0)->set_slots(2);
  }
  if (to == v1::RESTARTING || IsFinalState(to)) history->attempts.back().set_end_time_us(100 * job.epoch() + 50);
  transition.set_epoch(job.epoch());
}

// A checkpoint that the attempt under way has committed.
inline v1::Checkpoint* Commit(JobHistory* history, int64_t step) {
  v1::Checkpoint& checkpoint = history->checkpoints.emplace_back();
  checkpoint.set_step(step);
  checkpoint.set_epoch(history->job.epoch());
  checkpoint.set_attempt(history->job.attempts());
  checkpoint.set_time_us(100 * history->job.epoch() + 10);
  history->job.set_committed_step(step);
  return &checkpoint;
}

// Two attempts with three checkpoints each, then success.
inline JobHistory Whole() {
  JobHistory history;
  history.job.set_name(kJob);
  v1::Training& training = *history.job.mutable_spec()->mutable_recipe()->mutable_training();
  training.set_steps(60);
  training.set_global_batch_size(4);
  history.job.mutable_progress()->set_step(60);
  for (const v1::JobState state : {v1::SUBMITTED, v1::PLANNING, v1::QUEUED, v1::LEASED, v1::STARTING, v1::RUNNING}) {
    Add(&history, state);
  }
  for (const int64_t step : {10, 20, 30}) Commit(&history, step);
  for (const v1::JobState state : {v1::RESTARTING, v1::LEASED, v1::RUNNING}) Add(&history, state);
  for (const int64_t step : {40, 50, 60}) Commit(&history, step);
  Add(&history, v1::SUCCEEDED);
  return history;
}

inline bool Says(const std::vector<std::string>& rules, const std::string& part) {
  for (const std::string& rule : rules) {
    if (rule.find(part) != std::string::npos) return true;
  }
  return false;
}

}  // namespace legoai::scenarios

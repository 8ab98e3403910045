// What agents report of their leases, written into the store; the fence is here. gRPC-free.
//
// A report counts only if it is about a lease that the agent holds, and is possible. Whatever does not carry the epoch of the
// job's latest lease, or comes when the job has no lease any more, changes nothing: a fenced-off agent can neither commit a
// checkpoint, nor end a job, nor add to its curve. Thread-safety: functions of the transaction that is given.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/legoai/v1/job.pb.h"
#include "proto/legoai/v1/worker_service.pb.h"
#include "server/store/store.h"

namespace legoai::server {

// Of an attempt, the latest: what it is measured by when it ends.
inline constexpr int64_t kStepsMeasured = 10'000;

// What has to be done once the transaction is durable.
struct Effects {
  std::vector<std::string> changed_jobs;
  std::vector<v1::LeaseId> ended_leases;
  int64_t lost_attempts = 0;   // that had to be given up, for whatever reason
  bool worker_leaves = false;  // it stopped an attempt although nobody had cancelled it
  int64_t fenced = 0;          // facts that were not of the latest epoch
  int64_t refused = 0;         // facts that were not the agent's to tell, or cannot be
  std::string refusal = {};    // why, of the first of them
};

// Who reports.
struct Sender {
  std::string instance;                            // of the agent
  std::set<std::pair<std::string, int64_t>> held;  // jobs and epochs of the leases that it holds
};

// Applies facts of one agent, in order. Those that are durable already are skipped; what is refused changes nothing, and counts
// as heard.
absl::Status ApplyTelemetry(store::Transaction& transaction, const Sender& sender, const std::vector<v1::Telemetry>& facts,
                            int64_t now_us, Effects* effects);

// Records the checkpoint under the lease's epoch. `held`: the lease is the asking agent's, which saves its checkpoints in
// `directory`. FailedPrecondition, with the reason, is a denial.
absl::Status CommitCheckpoint(store::Transaction& transaction, const v1::CommitRequest& request, bool held,
                              const std::string& directory, int64_t now_us, Effects* effects);

// The lease is void although its agent did not say that it ended: the attempt is lost; the job restarts, or is cancelled if that
// was asked for. Nothing if it is not the job's latest lease any more.
absl::Status LoseAttempt(store::Transaction& transaction, const std::string& job, int64_t epoch, const std::string& reason,
                         int64_t now_us, Effects* effects);

// The folder of runs that an agent names: absolute, and in its plain form, so that paths below it can be compared as text.
// Errors: FieldError (worker.runs).
absl::Status CheckRuns(const std::string& runs);

// The folder that holds step-N of what is saved under the lease: RUNS/JOB/epoch-E/checkpoints. Errors: a lease that cannot be.
absl::StatusOr<std::string> CheckpointsOf(const std::string& runs, const v1::LeaseId& lease);

// Of refusals of one worker, counted from 1, which are worth a line of the log: the first ten, then each time that they have
// doubled. So an agent that sends them without end fills no disk.
bool ShouldLogRefusal(int64_t count);

}  // namespace legoai::server

// Writes agents' reports about their leases into the store, with fencing. gRPC-free.
//
// A report is accepted only if it is valid and about a lease that the agent holds. A report without the epoch of the job's latest
// lease, or for a job without a lease, changes nothing: a fenced-off agent can neither commit a checkpoint, nor end a job, nor
// add to its metrics. Thread-safety: functions of the given transaction.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/legoai/v1/job.pb.h"
#include "proto/legoai/v1/worker_service.pb.h"
#include "server/store/store.h"

namespace legoai::server {

// How many of an attempt's latest steps are used to measure it when it ends.
inline constexpr int64_t kStepsMeasured = 10'000;

// What to do once the transaction is durable.
struct Effects {
  std::vector<std::string> changed_jobs;
  std::vector<v1::LeaseId> ended_leases;
  std::vector<v1::LeaseId> ended_parts;  // of which the sender's own has ended, and no more
  int64_t lost_attempts = 0;   // abandoned for any reason
  std::string leaving = {};    // a worker that stopped an attempt that nobody had cancelled
  int64_t fenced = 0;          // facts not of the latest epoch
  int64_t refused = 0;         // facts that the agent may not report, or that are invalid
  std::string refusal = {};    // the reason for the first of them
};

// A lease of which the sender holds all or a part.
struct HeldLease {
  bool first = true;  // it speaks for all ranks
  bool alone = true;  // all of them are its own
  bool torn = false;  // some of its workers are not connected now, or silent; needed where MayEndForLostWorker
};

// Whether the fact ends an attempt by an error that may be no more than the loss of a peer.
bool MayEndForLostWorker(const v1::Telemetry& fact);

// Who reports.
struct Sender {
  std::string instance;                                       // of the agent
  std::string worker;
  std::map<std::pair<std::string, int64_t>, HeldLease> held;  // by job and epoch
};

// Applies facts of one agent, in order. Facts that are already durable are skipped; refused ones change nothing and are
// acknowledged.
absl::Status ApplyTelemetry(store::Transaction& transaction, const Sender& sender, const std::vector<v1::Telemetry>& facts,
                            int64_t now_us, Effects* effects);

// Records the checkpoint under the lease's epoch. `held`: the asking agent, which saves its checkpoints in `directory`, holds the
// lease. FailedPrecondition, with the reason, is a denial.
absl::Status CommitCheckpoint(store::Transaction& transaction, const v1::CommitRequest& request, bool held,
                              const std::string& directory, int64_t now_us, Effects* effects);

// Ends a lease whose agent has not reported its end: the attempt is lost; the job restarts, or is cancelled if that was
// requested. Does nothing if it is not the job's latest lease.
absl::Status LoseAttempt(store::Transaction& transaction, const std::string& job, int64_t epoch, const std::string& reason,
                         int64_t now_us, Effects* effects);

// Checks that the folder of runs that an agent names is absolute and normalized, so that paths below it can be compared as text.
// Errors: FieldError (worker.runs).
absl::Status CheckRuns(const std::string& runs);

// The folder of the lease's checkpoints: RUNS/JOB/epoch-E/checkpoints. Errors: an invalid lease.
absl::StatusOr<std::string> CheckpointsOf(const std::string& runs, const v1::LeaseId& lease);

// Which refusals of one worker, counted from 1, are logged: the first ten, then every doubling, so that an agent that repeats
// them forever does not fill the disk.
bool ShouldLogRefusal(int64_t count);

}  // namespace legoai::server

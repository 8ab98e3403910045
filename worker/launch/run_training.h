// Trains on this host, or on several (TrainRequest::gang), without a server, for `lego train`.
//
// Prepares (prepare_training.h), opens the run directory, starts nproc trainers under a Launcher, writes recipe, run.json and
// metrics, commits every checkpoint unless the caller decides (TrainCallbacks::commit), and returns the outcome. Resumes from the
// latest checkpoint unless the request says `fresh`: then existing checkpoints and export are renamed to
// checkpoints.before-attempt-N (in an object store before-attempt-N below the prefix) and hf.before-attempt-N, not removed. A
// leased attempt resumes from the checkpoint of its lease.
//
// A checkpoint that is found damaged, here or by a rank that loads it, is put aside as step-N.damaged with a warning; the next
// older one is used, and run.json names those that were skipped. A leased attempt ends instead: its error carries the damage
// (core/checkpoint/directory.h), and the service chooses.
//
// Of several hosts, the first does all of that in a folder that all share, and the others only run their ranks (gang_member.h):
// they have neither `prepared` nor metrics, and an outcome without figures. The loss of a host ends the attempt on all.
//
// When the disk is full, it waits together with the ranks until there is room: Progress.waits says for what. A stop ends the
// wait.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/process/child_process.h"
#include "proto/legoai/v1/flight_record.pb.h"
#include "proto/legoai/v1/launch.pb.h"
#include "proto/legoai/v1/metrics.pb.h"
#include "worker/launch/prepare_training.h"

namespace legoai::launch {

// All run on the thread of RunTraining. Each may be empty.
struct TrainCallbacks {
  std::function<void(const PreparedTraining&)> prepared;  // before anything is started
  // Checkpoints that were there are put aside: another attempt of a call with `fresh` is `begun_anew`. Not on members of a gang.
  std::function<void()> begun_anew;
  std::function<void(int64_t rank, int64_t pid)> started;
  std::function<void(const v1::Progress&)> progress;    // of rank 0: every step and phase
  std::function<void(const v1::StepMetrics&)> metrics;  // as in metrics.jsonl
  std::function<void(const std::string& level, const std::string& text)> log;
  std::function<void(int64_t rank, const v1::Log&)> rank_log;  // what ranks say, if `log` should not hear of it
  std::function<void(int64_t rank, const v1::StepTraceWritten&)> step_trace;
  // Something has gone wrong: what each rank that had come so far was doing, with what the launcher knows of it, one after
  // another. It is in flight/rank-R.json, too.
  std::function<void(const v1::FlightDump&)> flight_dumped;
  // On members of a gang: as `ended` of MemberCallbacks.
  std::function<void()> gang_ended;
  // As in LaunchCallbacks.
  std::function<std::optional<absl::Status>(int64_t step, const std::vector<std::string>& digests)> commit;
};

struct TrainOutcome {
  v1::Exit::Cause cause = v1::Exit::FINISHED;  // STOPPED: stopped by request (exit code 130 of `lego train`)
  int64_t step = 0;                            // optimizer steps done
  int64_t attempt = 0;                         // 0: nothing was started, because nothing was left to do or it was stopped before
  std::optional<int64_t> resumed_from;
  PreparedTraining prepared;
  std::string run_directory;
  std::string hf_directory;  // empty: not written
  // Of this attempt; of all earlier ones if nothing was left to do. A leased attempt, which may have a million steps, has already
  // reported them and keeps none, so the last two figures below are unset.
  std::vector<v1::StepMetrics> metrics;
  std::vector<int64_t> peak_memory_bytes;     // by rank; only the largest if nothing was left to do
  std::optional<double> median_step_seconds;  // of all reports except the first step's, a warm-up
  std::optional<double> validation_loss;      // the last
};

// `stop` may be null. Blocks; no process is left when it returns, or if this process is killed. A stop during preparation is
// honoured too: then nothing is started. Errors: those of PrepareTraining, FindCheckpoint, GangHosts::Gather, RunMember and
// Launcher::Run; a run directory in use. After a failure run.json has the reason, and flight/rank-R.json what every rank was
// doing.
absl::StatusOr<TrainOutcome> RunTraining(const TrainRequest& request, const TrainCallbacks& callbacks, StopPipe* stop);

}  // namespace legoai::launch

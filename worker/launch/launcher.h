// Starts the trainer processes of one host and watches them until all have ended.
//
// It detects a rank that dies, reports a failure, violates the protocol, or falls silent (stopped, hung). Then every rank is
// asked what it waits in, the cause is separated from its consequences, all ranks are stopped (SIGTERM, after a grace period
// SIGKILL) and reaped, and one Status names the rank and the cause. No process is left behind: children die with the thread that
// runs Run().
//
// A rank is silent if it has sent no message for longer than the time-out, in any phase. Long work is not silent: it reports
// progress (trainer_link.h), and ranks that wait for it report that they wait. Silence is measured only while the launcher itself
// is running: time in which the machine slept, the clock was set or the launcher was stopped (Ctrl-Z) does not count.
//
// A silence is blamed on a process that is stopped or does not answer; else on the rank that is in no communication while others
// wait in theirs; else on the one that fell silent first.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/process/child_process.h"
#include "proto/legoai/v1/launch.pb.h"
#include "worker/launch/pending_commits.h"
#include "worker/launch/rank_process.h"

namespace legoai::launch {

struct LaunchOptions {
  std::string trainer;                 // path of legoai-trainer; it is called with --socket=FD
  std::vector<std::string> arguments;  // before --socket
  int64_t world_size = 1;
  v1::Start start;                // the same for all ranks; rank, local_rank, world_size and rendezvous are set by the launcher
  int64_t rendezvous_port = 0;    // 0: any free port
  bool pin = true;                // rank r runs on the (r mod n)-th of n processors
  std::vector<int> processors;    // the n processors; empty: AllowedCpus()
  std::vector<std::string> gpus;  // UUID of each rank's GPU; empty: rank r uses the r-th that CUDA shows it
  std::string log_directory;      // stdout and stderr of rank r go to rank-r.log there; empty: they are inherited
  absl::Duration init_timeout = absl::Seconds(300);   // longest silence of a rank until its first step is done
  absl::Duration train_timeout = absl::Seconds(100);  // and afterwards
  absl::Duration answer_timeout = absl::Seconds(10);  // to answer when asked what it waits in; a stopped process gets none
  absl::Duration discard_grace = absl::Seconds(5);    // for ranks to stop without saving, before they are killed
  absl::Duration stop_grace = absl::Seconds(5);       // between SIGTERM and SIGKILL
  absl::Duration kill_grace = absl::Seconds(60);      // after SIGKILL; a process stuck in a device is then left behind and named
  std::function<absl::Duration()> clock;              // measures the limits, for tests; empty: as described above
};

// All run on the thread of Run(). Each may be empty.
struct LaunchCallbacks {
  std::function<void(int64_t rank, pid_t pid)> started;
  std::function<void(int64_t rank, const v1::Progress&)> progress;
  std::function<void(int64_t rank, const v1::StepMetrics&)> metrics;
  std::function<void(int64_t rank, const v1::Log&)> log;
  std::function<void(int64_t rank, const v1::StepTraceWritten&)> step_trace;
  // Something has gone wrong, every rank was asked what it does, and none is stopped for it yet: the time to look at the flight
  // rings. By rank, what each is like; and what Run() will return. Once.
  std::function<void(const std::vector<v1::RankCondition>& ranks, const absl::Status& failure)> troubled;
  // All ranks have this step on disk; `digests` by rank. OK: Commit; an error: Deny with its message. Nothing: the verdict is not
  // known yet, and the ranks continue as far as they may (pending_commits.h); the launcher asks again periodically, and at once
  // after StopPipe::Wake(). If several are pending, it asks for each, in order of steps. Empty: always commits.
  PendingCommits::Decide commit;
};

struct LaunchOutcome {
  v1::Exit::Cause cause = v1::Exit::FINISHED;  // or STOPPED
  int64_t step = 0;
};

class Launcher {
 public:
  // `stop` is not owned and may be null; a request in it is passed on to the ranks.
  Launcher(LaunchOptions options, LaunchCallbacks callbacks, StopPipe* stop = nullptr);
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // Blocks until every child is reaped. Call once. A stop without saving succeeds even if a rank hangs. Errors: a rank's own
  // Status, prefixed with the rank, FieldViolation kept; Unavailable: a rank died; DeadlineExceeded: a rank fell silent;
  // FieldError: the trainer cannot be run, the port is in use; Cancelled: killed as asked.
  absl::StatusOr<LaunchOutcome> Run();

  // Whether the ranks were asked to stop, even if Run() returned something else.
  bool asked_to_stop() const { return asked_to_stop_; }

 private:
  enum class Phase { kRunning, kAsking, kTerminating, kKilling, kGivenUp };

  absl::Status StartAll();
  void Poll();
  void Receive(RankProcess& rank);
  void Dispatch(RankProcess& rank, const v1::FromTrainer& message);
  void Vote(RankProcess& rank, const v1::CheckpointReady& ready);
  void Arrive(RankProcess& rank, int64_t meeting);
  void EndMeeting();
  void Tick();
  void AskForVerdicts();
  std::optional<int64_t> HeldBy() const;
  void HandleStop(Stop stop);
  void Reap();
  void CheckSilence();
  void Trouble(const absl::Status& reason);
  void FailSilentRanks();
  void ReportTrouble();
  const RankProcess* Culprit() const;
  void EnterPhase(Phase phase);
  void Advance();
  void SignalAll(int signal_number);
  void Broadcast(const v1::ToTrainer& message);
  bool AllReaped() const;
  absl::Duration PollTimeout() const;
  absl::StatusOr<LaunchOutcome> Conclude() const;

  const LaunchOptions options_;
  const LaunchCallbacks callbacks_;
  StopPipe* const stop_;
  int64_t failures_ = 0;
  std::vector<std::unique_ptr<RankProcess>> ranks_;
  Phase phase_ = Phase::kRunning;
  PendingCommits pending_;
  std::optional<int64_t> meeting_;  // that all ranks have arrived at, but have not been told yet
  bool asked_to_stop_ = false;
  bool killed_ = false;                          // as asked
  std::optional<absl::Duration> discard_since_;  // when the ranks were asked to stop without saving
  bool discarded_ = false;                       // they did not stop in time and were killed
  bool timed_out_ = false;                       // the failure is a time-out
  bool told_trouble_ = false;
  absl::Duration now_;  // on the clock of the limits
  std::chrono::steady_clock::time_point looked_ = std::chrono::steady_clock::now();
  absl::Duration phase_since_;
};

}  // namespace legoai::launch

// Starts the trainer processes of one host and watches them until all have ended.
//
// What it guards against: a rank that dies, says it failed, breaks the protocol, or falls silent (stopped, hung). Then every rank
// is asked what it waits in, the cause is told from its consequences, all are stopped (SIGTERM, after a grace SIGKILL) and
// reaped, and the answer is one Status that names the rank and the cause. No process stays behind: children die with the thread
// that runs Run().
//
// A rank is silent when no message has come from it for longer than the time-out, in any phase. Long work is not silent: it tells
// of its progress (trainer_link.h), and who waits for it says that it waits. Silence is counted in time in which the launcher
// itself looked: a machine that slept, a clock that was set, a launcher that was stopped (Ctrl-Z) are not the ranks' silence.
//
// Whom a silence is blamed on: a process that is stopped or does not answer; else the rank that answers that it is in no
// communication while others wait in theirs; else the one that fell silent first.
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
  v1::Start start;                // the same for all ranks; rank, local_rank, world_size and rendezvous are filled in here
  int64_t rendezvous_port = 0;    // 0: any free port
  bool pin = true;                // rank r runs on the (r mod n)-th of n processors
  std::vector<int> processors;    // which these are; empty: AllowedCpus()
  std::vector<std::string> gpus;  // UUID of rank r's GPU; empty: rank r has the r-th that CUDA shows it
  std::string log_directory;      // stdout and stderr of rank r go to rank-r.log there; empty: they are inherited
  absl::Duration init_timeout = absl::Seconds(300);   // longest silence of a rank before its first step is done
  absl::Duration train_timeout = absl::Seconds(100);  // and afterwards
  absl::Duration answer_timeout = absl::Seconds(10);  // to answer when asked what it waits in; a stopped process gets none
  absl::Duration discard_grace = absl::Seconds(5);    // for ranks that should stop and save nothing; then they are killed
  absl::Duration stop_grace = absl::Seconds(5);       // between SIGTERM and SIGKILL
  absl::Duration kill_grace = absl::Seconds(60);      // after SIGKILL: a process that a device holds is then left behind, named
  std::function<absl::Duration()> clock;              // what the limits are counted by, for tests; empty: as said above
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
  // All ranks have this step on the disk; `digests` by rank. OK: Commit; an error: Deny with its message. Nothing: the verdict is
  // not known yet, and the ranks continue as far as they may (pending_commits.h); it is asked again whenever the launcher looks,
  // and at once after StopPipe::Wake(). Of several that are pending each is asked for, in order of steps. Empty: always commits.
  PendingCommits::Decide commit;
};

struct LaunchOutcome {
  v1::Exit::Cause cause = v1::Exit::FINISHED;  // or STOPPED
  int64_t step = 0;
};

class Launcher {
 public:
  // `stop` is not owned; ranks are asked to stop when it is. It may be null.
  Launcher(LaunchOptions options, LaunchCallbacks callbacks, StopPipe* stop = nullptr);
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // Blocks until every child is reaped. Call once. A stop that saves nothing is done, and no error, though a rank hangs.
  // Errors: a rank's own Status, its message beginning with the rank, FieldViolation kept; Unavailable: a rank died;
  // DeadlineExceeded: a rank fell silent; FieldError: the trainer cannot be run, the port is in use; Cancelled: killed as asked.
  absl::StatusOr<LaunchOutcome> Run();

  // Whether the ranks were asked to stop, though Run() may have ended with something else.
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
  std::optional<int64_t> meeting_;  // that all ranks have come to, and do not know of yet
  bool asked_to_stop_ = false;
  bool killed_ = false;                          // as asked
  std::optional<absl::Duration> discard_since_;  // when the ranks were asked to stop without saving
  bool discarded_ = false;                       // they did not in time, and were killed
  bool timed_out_ = false;                       // the trouble is that somebody waited in vain
  bool told_trouble_ = false;
  absl::Duration now_;  // as the limits count
  std::chrono::steady_clock::time_point looked_ = std::chrono::steady_clock::now();
  absl::Duration phase_since_;
};

}  // namespace legoai::launch

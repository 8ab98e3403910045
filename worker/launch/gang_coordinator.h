// Decides for all ranks of a job: meetings, commits of checkpoints, and what a failure means.
//
// Supervisors (host_supervisor.h), one for each host, tell it what the ranks say and what they see of them. When one fails,
// every rank is asked what it waits in, the cause is separated from its consequences, all ranks are ended, and one Status names
// the rank and the cause.
//
// A silence is blamed on a process that is stopped or does not answer; else on the rank that is in no communication while others
// wait in theirs; else on the one that fell silent first.
//
// Not thread-safe.
#pragma once

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
#include "proto/legoai/v1/flight_record.pb.h"
#include "proto/legoai/v1/gang.pb.h"
#include "proto/legoai/v1/launch.pb.h"
#include "worker/launch/gang_rank.h"
#include "worker/launch/pending_commits.h"
#include "worker/launch/watch_clock.h"

namespace legoai::launch {

// All run on the thread of the coordinator. Each may be empty.
struct LaunchCallbacks {
  std::function<void(int64_t rank, pid_t pid)> started;  // of the coordinator's own host
  std::function<void(int64_t rank, const v1::Progress&)> progress;
  std::function<void(int64_t rank, const v1::StepMetrics&)> metrics;
  std::function<void(int64_t rank, const v1::Log&)> log;
  std::function<void(int64_t rank, const v1::StepTraceWritten&)> step_trace;
  // Something has gone wrong, every rank was asked what it does, and none is stopped for it yet: the time to look at the flight
  // rings. By rank, what each is like; and what Run() will return. Once.
  std::function<void(const std::vector<v1::RankCondition>& ranks, const absl::Status& failure)> troubled;
  // Before that: what a rank of another host was doing.
  std::function<void(const v1::FlightDump&)> flight;
  // All ranks have this step on disk; `digests` by rank. OK: Commit; an error: Deny with its message. Nothing: the verdict is not
  // known yet, and the ranks continue as far as they may (pending_commits.h); the launcher asks again periodically, and at once
  // after StopPipe::Wake(). If several are pending, it asks for each, in order of steps. Empty: always commits.
  PendingCommits::Decide commit;
};

struct LaunchOutcome {
  v1::Exit::Cause cause = v1::Exit::FINISHED;  // or STOPPED
  int64_t step = 0;
};

class GangCoordinator {
 public:
  struct Options {
    int64_t world_size = 1;
    // The hosts, the coordinator's own first; each has as many ranks, in order. Their names ("host 1 at 10.0.0.3"), or an empty
    // one where there is only one.
    std::vector<std::string> hosts = {""};
    int64_t most_pending_commits = 0;
    absl::Duration discard_grace = absl::Seconds(5);  // for ranks to stop without saving, before they are killed
  };

  // `callbacks` and `clock` are not owned. `tell` brings a message to every supervisor.
  GangCoordinator(Options options, const LaunchCallbacks& callbacks, const WatchClock& clock,
                  std::function<void(const v1::ToHost&)> tell);
  GangCoordinator(const GangCoordinator&) = delete;
  GangCoordinator& operator=(const GangCoordinator&) = delete;

  // What the supervisor of a host says. One that speaks of ranks of another is lost.
  void Hear(int64_t host, const v1::FromHost& message);
  // The host is lost with all its ranks, for this reason; nothing more is heard of it. Nothing happens if its ranks have ended.
  void Lose(int64_t host, v1::Blame blame, const absl::Status& why);
  void HandleStop(Stop stop);
  // Asks for the verdicts that are not known yet, and passes on those that are.
  void AskForVerdicts();
  // Looks whether something has gone wrong, and goes on with what follows from it; to be called several times a second.
  void Advance();
  // All ranks have ended, or were left behind, or are lost.
  bool done() const;
  // When all is done. Errors: as of Launcher::Run.
  absl::StatusOr<LaunchOutcome> Conclude();

  // Whether the ranks were asked to stop, even if they failed.
  bool asked_to_stop() const { return asked_to_stop_; }

 private:
  enum class Phase { kRunning, kAsking, kEnding };
  struct Host {
    std::string name;
    bool answered = false;  // its ranks that were asked have answered, or had their time
    bool done = false;
    Failure failure;
  };

  bool SpeaksOfOthers(int64_t host, const v1::FromHost& message) const;
  void HearDone(int64_t host, const v1::HostDone& done);
  void BlameOwnHostIfAllAreSilent();
  std::string NameOf(int64_t host) const;
  void HearRank(GangRank& rank, const v1::FromTrainer& message);
  void Vote(GangRank& rank, const v1::CheckpointReady& ready);
  void Arrive(GangRank& rank, int64_t meeting);
  void EndMeeting();
  std::optional<int64_t> HeldBy() const;
  void TakeAnswers(int64_t host, const v1::HostAnswered& answers);
  void Trouble(const absl::Status& reason);
  void FailHungRanks();
  void ReportTrouble();
  const Failure* Worst() const;
  void End(bool kill);
  void Broadcast(const v1::ToTrainer& message);
  bool AllAnswered() const;
  bool AllEnded() const;

  const Options options_;
  const LaunchCallbacks& callbacks_;
  const WatchClock& clock_;
  const std::function<void(const v1::ToHost&)> tell_;
  int64_t failures_ = 0;
  const int64_t ranks_of_each_;
  std::vector<Host> hosts_;
  std::vector<std::unique_ptr<GangRank>> ranks_;
  Phase phase_ = Phase::kRunning;
  PendingCommits pending_;
  std::optional<int64_t> meeting_;  // that all ranks have arrived at, but have not been told yet
  bool asked_to_stop_ = false;
  bool killed_ = false;                          // as asked
  std::optional<absl::Duration> discard_since_;  // when the ranks were asked to stop without saving
  bool discarded_ = false;                       // they did not stop in time and were killed
  bool timed_out_ = false;                       // the failure is a time-out
  bool told_trouble_ = false;
};

}  // namespace legoai::launch

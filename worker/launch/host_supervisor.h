// Starts the ranks of one host and watches them until all have ended, for the coordinator of their gang (gang_coordinator.h).
//
// It passes on what its ranks say and what the coordinator says to them, and reports a rank that dies, violates the protocol, or
// falls silent (stopped, hung): has sent no message for longer than the time-out, in any phase. Long work is not silent: it
// reports progress (trainer_link.h), and ranks that wait for it report that they wait. Whether a failure ends the job, and whose
// fault it is, the coordinator decides; then it has the ranks asked what they wait in, and ended (SIGTERM, after a grace period
// SIGKILL). No process is left behind: children die with the thread that called Start().
//
// Not thread-safe: all on the thread of Start().
#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/process/other_user.h"
#include "proto/legoai/v1/gang.pb.h"
#include "proto/legoai/v1/launch.pb.h"
#include "worker/launch/rank_process.h"
#include "worker/launch/watch_clock.h"

namespace legoai::launch {

struct HostOptions {
  std::string trainer;                 // path of legoai-trainer; it is called with --socket=FD
  std::vector<std::string> arguments;  // before --socket
  v1::Start start;                     // the same for all ranks; rank, local_rank and rendezvous_fd are set by the supervisor
  bool pin = true;                     // the r-th rank runs on the (r mod n)-th of n processors
  std::vector<int> processors;         // the n processors; empty: AllowedCpus()
  std::vector<std::string> gpus;       // UUID of each rank's GPU; empty: the r-th rank uses the r-th that CUDA shows it
  std::optional<OtherUser> user;       // as whom they run (core/process/other_user.h); unset: as this process
  std::vector<std::string> environment;  // of theirs, with `user`
  int64_t memory_bytes = 0;            // that each may take for itself on this host (ChildSpec); 0: no limit
  std::string log_directory;           // stdout and stderr of rank r go to rank-r.log there; empty: they are inherited
  absl::Duration init_timeout = absl::Seconds(300);   // longest silence of a rank until its first step is done
  absl::Duration train_timeout = absl::Seconds(100);  // and afterwards
  absl::Duration answer_timeout = absl::Seconds(10);  // to answer when asked what it waits in; a stopped process gets none
  absl::Duration stop_grace = absl::Seconds(5);       // between SIGTERM and SIGKILL
  absl::Duration kill_grace = absl::Seconds(60);      // after SIGKILL; a process stuck in a device is then left behind and named
};

class HostSupervisor {
 public:
  // Called on the thread of Receive(), Look() and Handle().
  using Report = std::function<void(const v1::FromHost&)>;

  // The host has `ranks` ranks of the gang, from `first_rank`. `clock` is not owned; the caller has it tick.
  HostSupervisor(HostOptions options, int64_t first_rank, int64_t ranks, const WatchClock& clock, Report report);
  HostSupervisor(const HostSupervisor&) = delete;
  HostSupervisor& operator=(const HostSupervisor&) = delete;

  // `rendezvous_fd`: the listening socket that rank 0 inherits, if it is one of these; -1: none. `started` may be empty. After an
  // error, of which the first is a FieldError if the trainer cannot be run, no process is left.
  absl::Status Start(int rendezvous_fd, const std::function<void(int64_t rank, pid_t pid)>& started);

  void Handle(const v1::ToHost& message);

  // For poll: the sockets of the ranks.
  void AddDescriptors(std::vector<pollfd>* fds) const;
  // Reads from those that are readable; other descriptors are passed over.
  void Receive(const std::vector<pollfd>& fds);
  // Reaps, looks for silence, and goes on with what it was asked for; to be called several times a second, after a tick.
  void Look();
  // How long the next Look() may take to come.
  absl::Duration Patience() const;
  // All have ended, or were left behind; the coordinator was told.
  bool done() const { return done_; }

 private:
  enum class Phase { kRunning, kAsking, kTerminating, kKilling, kGivenUp };

  absl::StatusOr<std::unique_ptr<RankProcess>> StartRank(int64_t rank, int rendezvous_fd, const std::vector<int>& cpus);
  void Receive(RankProcess& rank);
  void Note(RankProcess& rank, const v1::FromTrainer& message);
  void Fail(RankProcess& rank, v1::Blame blame, const absl::Status& status);
  void Send(RankProcess& rank, const v1::ToTrainer& message);
  void Ask();
  void Answer();
  void Reap();
  void Ended(RankProcess& rank, int wait_status);
  void CheckSilence();
  void Advance();
  void EnterPhase(Phase phase);
  void SignalAll(int signal_number);
  bool AllReaped() const;

  const HostOptions options_;
  const int64_t first_rank_, count_;
  const WatchClock& clock_;
  const Report report_;
  std::vector<std::unique_ptr<RankProcess>> ranks_;
  Phase phase_ = Phase::kRunning;
  absl::Duration phase_since_;
  bool answered_ = false;  // the coordinator was told what the ranks answered
  bool done_ = false;
};

}  // namespace legoai::launch

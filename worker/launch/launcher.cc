#include "worker/launch/launcher.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/checkpoint/directory.h"
#include "core/process/child_process.h"
#include "core/process/host_resources.h"
#include "proto/errors.h"
#include "proto/text.h"

namespace legoai::launch {
namespace {

// A failure that says nothing but that a peer or an answer was missing.
bool IsConsequence(int code) {
  switch (static_cast<absl::StatusCode>(code)) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kAborted: return true;
    default: return false;
  }
}

absl::Status ExitStatusWithoutDamage(const v1::Exit& exit) {
  if (exit.has_violation()) {
    const v1::FieldViolation& violation = exit.violation();
    return FieldError(violation.field(), violation.value(), violation.remedy(), static_cast<absl::StatusCode>(exit.code()));
  }
  const auto code = exit.code() == 0 ? absl::StatusCode::kUnknown : static_cast<absl::StatusCode>(exit.code());
  return absl::Status(code, exit.message());
}

absl::Status ExitStatus(const v1::Exit& exit) {
  absl::Status status = ExitStatusWithoutDamage(exit);
  return exit.has_damage() ? checkpoint::WithDamage(std::move(status), exit.damage()) : status;
}

// Why a process may not answer.
const char* Condition(pid_t pid) {
  switch (ProcessState(pid)) {
    case 'T': return "the process is stopped (SIGSTOP)";
    case 'D': return "the process waits for a disk or another device that does not answer";
    default: return "the process hangs";
  }
}

// One rank: a socket pair, a process at its other end, and Start.
absl::StatusOr<std::unique_ptr<RankProcess>> StartRank(const LaunchOptions& options, int64_t rank, const ListenSocket& listener,
                                                       const std::vector<int>& cpus, absl::Duration now, int64_t* failures) {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("socketpair: ", std::strerror(errno)));
  }
  const timeval timeout = {10, 0};  // a rank that neither reads nor writes must not stop the launcher
  setsockopt(fds[0], SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  setsockopt(fds[0], SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  ChildSpec spec;
  spec.arguments = options.arguments;
  spec.arguments.insert(spec.arguments.begin(), options.trainer);
  spec.arguments.push_back(absl::StrCat("--socket=", fds[1]));
  spec.inherited = {fds[1]};
  if (rank == 0) spec.inherited.push_back(listener.fd);
  if (options.pin && !cpus.empty()) spec.cpu = cpus[rank % cpus.size()];
  if (!options.log_directory.empty()) spec.log_path = absl::StrCat(options.log_directory, "/rank-", rank, ".log");
  absl::StatusOr<pid_t> pid = SpawnChild(spec);
  close(fds[1]);
  if (!pid.ok()) {
    close(fds[0]);
    return pid.status();
  }
  auto process = std::make_unique<RankProcess>(rank, *pid, fds[0], now, failures);
  v1::ToTrainer message;
  v1::Start& start = *message.mutable_start();
  start = options.start;
  start.set_rank(rank);
  start.set_local_rank(rank);
  if (!options.gpus.empty()) start.set_gpu(options.gpus[static_cast<size_t>(rank)]);
  start.set_world_size(options.world_size);
  start.set_rendezvous_host("127.0.0.1");
  start.set_rendezvous_port(listener.port);
  start.set_rendezvous_fd(rank == 0 ? listener.fd : -1);
  process->Send(message);
  return process;
}

}  // namespace

Launcher::Launcher(LaunchOptions options, LaunchCallbacks callbacks, StopPipe* stop)
    : options_(std::move(options)),
      callbacks_(std::move(callbacks)),
      stop_(stop),
      pending_(options_.start.recipe().checkpoint().max_pending_commits(), callbacks_.commit) {}

absl::StatusOr<LaunchOutcome> Launcher::Run() {
  Tick();
  const std::optional<Stop> early = stop_ != nullptr ? stop_->Take() : std::nullopt;
  if (early == Stop::kKill) return absl::CancelledError("killed as asked, before a rank was started");
  const absl::Status started = StartAll();
  if (!started.ok()) {
    SignalAll(SIGKILL);
    while (!AllReaped()) {
      Reap();
      absl::SleepFor(absl::Milliseconds(5));
    }
    return started;
  }
  if (early) HandleStop(*early);
  while (!AllReaped() && phase_ != Phase::kGivenUp) {
    Tick();
    Poll();
    AskForVerdicts();
    Reap();
    CheckSilence();
    Advance();
  }
  if (!killed_ && !discarded_) AskForVerdicts();  // for what the ranks have said last
  ReportTrouble();                                // if all ended before they could be asked
  return Conclude();
}

// A rank is looked at several times a second, so what is more than a second between two looks is no silence of the ranks.
void Launcher::Tick() {
  constexpr absl::Duration kLongest = absl::Seconds(1);
  const auto looked = std::exchange(looked_, std::chrono::steady_clock::now());
  now_ = options_.clock ? options_.clock() : now_ + std::min(absl::FromChrono(looked_ - looked), kLongest);
}

absl::Status Launcher::StartAll() {
  if (const auto gpus = static_cast<int64_t>(options_.gpus.size()); gpus > 0 && gpus < options_.world_size)
    return FieldError("gpus", absl::StrCat(gpus), absl::StrCat("each of ", options_.world_size, " ranks needs one of its own"));
  absl::StatusOr<ListenSocket> listener = ListenOnLoopback(options_.rendezvous_port);
  if (!listener.ok()) return listener.status();
  const std::vector<int> cpus = options_.processors.empty() ? AllowedCpus() : options_.processors;
  absl::Status status;
  for (int64_t rank = 0; rank < options_.world_size && status.ok(); ++rank) {
    auto process = StartRank(options_, rank, *listener, cpus, now_, &failures_);
    status = process.status();
    if (!process.ok()) break;
    ranks_.push_back(*std::move(process));
    if (callbacks_.started) callbacks_.started(rank, ranks_.back()->pid());
  }
  close(listener->fd);
  return status;
}

void Launcher::Poll() {
  std::vector<pollfd> fds = {{stop_ != nullptr ? stop_->fd() : -1, POLLIN, 0}};
  std::vector<RankProcess*> ranks;
  for (auto& rank : ranks_) {
    if (rank->socket() < 0) continue;
    fds.push_back({rank->socket(), POLLIN, 0});
    ranks.push_back(rank.get());
  }
  if (poll(fds.data(), fds.size(), static_cast<int>(absl::ToInt64Milliseconds(PollTimeout()))) <= 0) return;
  if (fds[0].revents != 0) {
    if (const std::optional<Stop> stop = stop_->Take()) HandleStop(*stop);
  }
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (fds[i + 1].revents != 0) Receive(*ranks[i]);
  }
}

// Ends of processes and of phases are looked at soon after they can come.
absl::Duration Launcher::PollTimeout() const {
  for (const auto& rank : ranks_) {
    if (!rank->reaped() && (rank->socket() < 0 || rank->exit)) return absl::Milliseconds(5);
  }
  return absl::Milliseconds(phase_ == Phase::kRunning ? 100 : 10);
}

void Launcher::Receive(RankProcess& rank) {
  const absl::StatusOr<bool> open = rank.reader().Fill();
  v1::FromTrainer message;
  while (true) {
    const absl::StatusOr<bool> got = rank.reader().Next(&message);
    if (!got.ok()) {
      rank.Fail(Blame::kCause, Annotate(got.status(), "broke the protocol"));
      rank.CloseSocket();
      return;
    }
    if (!*got) break;
    Dispatch(rank, message);
  }
  if (!open.ok() || !*open) rank.CloseSocket();
}

void Launcher::Dispatch(RankProcess& rank, const v1::FromTrainer& message) {
  rank.last_heard = now_;
  if (message.has_progress()) {
    rank.last_progress = message.progress();
    if (const std::optional<int64_t> step = HeldBy()) rank.last_progress.set_waits(WaitsForVerdict(*step));
    if (callbacks_.progress) callbacks_.progress(rank.rank(), rank.last_progress);
  }
  if (message.has_metrics() && callbacks_.metrics) callbacks_.metrics(rank.rank(), message.metrics());
  if (message.has_log() && callbacks_.log) callbacks_.log(rank.rank(), message.log());
  if (message.has_step_trace() && callbacks_.step_trace) callbacks_.step_trace(rank.rank(), message.step_trace());
  if (message.has_flight_answer()) {
    rank.answered = true;
    rank.waits_in = message.flight_answer().waits_in();
  }
  if (message.has_arrived()) Arrive(rank, message.arrived().meeting());
  if (message.has_checkpoint_ready()) Vote(rank, message.checkpoint_ready());
  if (message.has_exit()) {
    rank.exit = message.exit();
    if (message.exit().cause() != v1::Exit::FAILED) return;
    rank.Fail(IsConsequence(message.exit().code()) ? Blame::kConsequence : Blame::kCause, ExitStatus(message.exit()));
  }
}

void Launcher::Vote(RankProcess& rank, const v1::CheckpointReady& ready) {
  rank.ready = ready;
  std::vector<std::string> digests;
  for (const auto& other : ranks_) {
    if (!other->ready || other->ready->step() != ready.step()) return;
    digests.push_back(other->ready->digest());
  }
  for (const auto& other : ranks_) other->ready.reset();
  pending_.Add(ready.step(), std::move(digests));
}

// Who decides may be far away: meanwhile the ranks are watched, and can be stopped.
void Launcher::AskForVerdicts() {
  for (const PendingCommits::Verdict& verdict : pending_.Ask()) {
    v1::ToTrainer answer;
    if (verdict.status.ok()) {
      answer.mutable_commit()->set_step(verdict.step);
    } else {
      answer.mutable_deny()->set_step(verdict.step);
      answer.mutable_deny()->set_reason(std::string(verdict.status.message()));
    }
    Broadcast(answer);
  }
  EndMeeting();
}

// The step for whose verdict the ranks are held in their meeting. Those that shall discard what they do wait for none.
std::optional<int64_t> Launcher::HeldBy() const { return meeting_ && !discard_since_ ? pending_.WaitsFor() : std::nullopt; }

void Launcher::EndMeeting() {
  if (!meeting_ || HeldBy()) return;
  v1::ToTrainer message;
  message.mutable_met()->set_meeting(*std::exchange(meeting_, std::nullopt));
  Broadcast(message);
}

void Launcher::Arrive(RankProcess& rank, int64_t meeting) {
  rank.meeting = meeting;
  if (std::any_of(ranks_.begin(), ranks_.end(), [&](const auto& other) { return other->meeting != meeting; })) return;
  meeting_ = meeting;
}

void Launcher::HandleStop(Stop stop) {
  asked_to_stop_ = true;
  if (stop == Stop::kKill) {
    killed_ = true;
    SignalAll(SIGKILL);
    return EnterPhase(Phase::kKilling);
  }
  if (stop == Stop::kDiscard && !discard_since_) discard_since_ = now_;
  v1::ToTrainer message;
  message.mutable_stop()->set_save(stop == Stop::kSave);
  Broadcast(message);
}

void Launcher::Reap() {
  for (auto& rank : ranks_) {
    if (rank->reaped()) continue;
    const std::optional<int> wait_status = ReapIfEnded(rank->pid());
    if (!wait_status) continue;
    while (rank->socket() >= 0) Receive(*rank);  // its last words
    rank->Ended(*wait_status, phase_ >= Phase::kTerminating);
  }
}

void Launcher::CheckSilence() {
  if (phase_ != Phase::kRunning) return;
  for (auto& rank : ranks_) {
    const absl::Duration limit = rank->last_progress.step() > 0 ? options_.train_timeout : options_.init_timeout;
    if (rank->reaped() || now_ - rank->last_heard <= limit) continue;
    rank->Fail(Blame::kConsequence, absl::DeadlineExceededError(absl::StrCat("no message for ", DurationText(limit))));
  }
}

void Launcher::EnterPhase(Phase phase) {
  phase_ = phase;
  phase_since_ = now_;
}

void Launcher::Trouble(const absl::Status& reason) {
  EnterPhase(Phase::kAsking);
  timed_out_ = absl::IsDeadlineExceeded(reason);
  v1::ToTrainer message;
  message.mutable_flight_question();
  for (auto& rank : ranks_) {
    if (rank->reaped() || rank->socket() < 0 || rank->exit) continue;
    rank->asked = true;
    rank->Send(message);
  }
}

// All that were asked have answered, or had their time.
void Launcher::FailSilentRanks() {
  const RankProcess* waiting = nullptr;
  for (const auto& rank : ranks_) {
    if (!rank->waits_in.empty() || (rank->exit && rank->exit->code() == static_cast<int>(absl::StatusCode::kDeadlineExceeded)))
      waiting = rank.get();
  }
  for (auto& rank : ranks_) {
    if (rank->reaped() || rank->socket() < 0 || !rank->asked) continue;
    if (!rank->answered) {
      rank->Fail(Blame::kUnresponsive, absl::DeadlineExceededError(absl::StrCat("does not answer: ", Condition(rank->pid()))));
    } else if (timed_out_ && waiting != nullptr && rank->waits_in.empty()) {
      rank->Fail(Blame::kHung, absl::DeadlineExceededError(
                                   absl::StrCat("hangs, or works longer than the time-out, while rank ", waiting->rank(),
                                                " waits", waiting->waits_in.empty() ? "" : " in ", waiting->waits_in)));
    }
  }
}

// After the one that is to blame has been found; not where the ranks were killed as asked.
void Launcher::ReportTrouble() {
  const RankProcess* culprit = Culprit();
  if (culprit == nullptr || killed_ || discarded_ || std::exchange(told_trouble_, true) || !callbacks_.troubled) return;
  std::vector<v1::RankCondition> conditions;
  for (const auto& rank : ranks_) conditions.push_back(rank->Condition(now_));
  callbacks_.troubled(conditions, culprit->failure);
}

// From trouble to the end of all processes: ask, terminate, kill. Each phase is left as soon as it has done its work.
void Launcher::Advance() {
  const auto failed = std::find_if(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->blame != Blame::kNone; });
  const absl::Duration in_phase = now_ - phase_since_;
  if (phase_ == Phase::kRunning && discard_since_ && now_ - *discard_since_ > options_.discard_grace) {
    discarded_ = true;
    SignalAll(SIGKILL);
    EnterPhase(Phase::kKilling);
  } else if (phase_ == Phase::kRunning && failed != ranks_.end()) {
    Trouble((*failed)->failure);
  } else if (phase_ == Phase::kAsking) {
    const bool waiting = std::any_of(ranks_.begin(), ranks_.end(), [](const auto& rank) {
      // It has closed its socket without a word: it is dying, and how it died is the cause of what the others say.
      if (rank->socket() < 0) return !rank->reaped() && !rank->exit && rank->blame == Blame::kNone;
      return !rank->reaped() && rank->asked && !rank->answered && ProcessState(rank->pid()) != 'T';
    });
    if (waiting && in_phase < options_.answer_timeout) return;
    FailSilentRanks();
    ReportTrouble();
    SignalAll(SIGTERM);
    EnterPhase(Phase::kTerminating);
  } else if (phase_ == Phase::kTerminating && in_phase > options_.stop_grace) {
    SignalAll(SIGKILL);
    EnterPhase(Phase::kKilling);
  } else if (phase_ == Phase::kKilling && in_phase > options_.kill_grace) {
    for (auto& rank : ranks_) {
      if (rank->reaped()) continue;
      rank->Fail(Blame::kUnresponsive, absl::DeadlineExceededError(
                                           absl::StrCat("process ", rank->pid(), " cannot be killed: ", Condition(rank->pid()))));
    }
    EnterPhase(Phase::kGivenUp);
  }
}

void Launcher::SignalAll(int signal_number) {
  for (auto& rank : ranks_) {
    if (!rank->reaped()) kill(-rank->pid(), signal_number);
  }
}

void Launcher::Broadcast(const v1::ToTrainer& message) {
  for (auto& rank : ranks_) rank->Send(message);
}

bool Launcher::AllReaped() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->reaped(); });
}

// Null: nobody has failed.
const RankProcess* Launcher::Culprit() const {
  const RankProcess* culprit = nullptr;
  for (const auto& rank : ranks_) {
    if (rank->blame == Blame::kNone) continue;
    if (culprit == nullptr || rank->blame > culprit->blame ||
        (rank->blame == culprit->blame && rank->failed_as < culprit->failed_as)) {
      culprit = rank.get();
    }
  }
  return culprit;
}

absl::StatusOr<LaunchOutcome> Launcher::Conclude() const {
  if (killed_ && AllReaped()) return absl::CancelledError("killed as asked");
  if (discarded_ && AllReaped()) return LaunchOutcome{v1::Exit::STOPPED, ranks_[0]->last_progress.step()};
  if (const RankProcess* culprit = Culprit()) return culprit->failure;
  return LaunchOutcome{ranks_[0]->exit->cause(), ranks_[0]->exit->step()};
}

}  // namespace legoai::launch

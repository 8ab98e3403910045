#include "worker/launch/host_supervisor.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/process/child_process.h"
#include "core/process/host_resources.h"
#include "proto/errors.h"
#include "proto/text.h"
#include "worker/launch/exit_status.h"

namespace legoai::launch {
namespace {

// Why a process may not answer.
const char* Condition(pid_t pid) {
  switch (ProcessState(pid)) {
    case 'T': return "the process is stopped (SIGSTOP)";
    case 'D': return "the process waits for a disk or another device that does not answer";
    default: return "the process hangs";
  }
}

}  // namespace

HostSupervisor::HostSupervisor(HostOptions options, int64_t first_rank, int64_t ranks, const WatchClock& clock, Report report)
    : options_(std::move(options)), first_rank_(first_rank), count_(ranks), clock_(clock), report_(std::move(report)) {}

absl::Status HostSupervisor::Start(int rendezvous_fd, const std::function<void(int64_t rank, pid_t pid)>& started) {
  if (const auto gpus = static_cast<int64_t>(options_.gpus.size()); gpus > 0 && gpus < count_)
    return FieldError("gpus", absl::StrCat(gpus), absl::StrCat("each of ", count_, " ranks needs one of its own"));
  const std::vector<int> cpus = options_.processors.empty() ? AllowedCpus() : options_.processors;
  absl::Status status;
  for (int64_t rank = first_rank_; rank < first_rank_ + count_ && status.ok(); ++rank) {
    auto process = StartRank(rank, rank == 0 ? rendezvous_fd : -1, cpus);
    status = process.status();
    if (!process.ok()) break;
    ranks_.push_back(*std::move(process));
    if (started) started(rank, ranks_.back()->pid());
  }
  if (status.ok()) return status;
  SignalAll(SIGKILL);
  while (!AllReaped()) {
    for (auto& rank : ranks_) {
      if (!rank->reaped()) rank->wait_status = ReapIfEnded(rank->pid());
    }
    absl::SleepFor(absl::Milliseconds(5));
  }
  return status;
}

// One rank: a socket pair, a process at its other end, and Start.
absl::StatusOr<std::unique_ptr<RankProcess>> HostSupervisor::StartRank(int64_t rank, int rendezvous_fd,
                                                                       const std::vector<int>& cpus) {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("socketpair: ", std::strerror(errno)));
  }
  const timeval timeout = {10, 0};  // a rank that neither reads nor writes must not stop the supervisor
  setsockopt(fds[0], SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  setsockopt(fds[0], SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  const auto local_rank = static_cast<size_t>(rank - first_rank_);
  ChildSpec spec;
  spec.arguments = options_.arguments;
  spec.arguments.insert(spec.arguments.begin(), options_.trainer);
  spec.arguments.push_back(absl::StrCat("--socket=", fds[1]));
  spec.inherited = {fds[1]};
  if (rendezvous_fd >= 0) spec.inherited.push_back(rendezvous_fd);
  if (options_.pin && !cpus.empty()) spec.cpu = cpus[local_rank % cpus.size()];
  spec.user = options_.user;
  spec.environment = options_.environment;
  spec.memory_bytes = options_.memory_bytes;
  if (!options_.log_directory.empty()) spec.log_path = absl::StrCat(options_.log_directory, "/rank-", rank, ".log");
  absl::StatusOr<pid_t> pid = SpawnChild(spec);
  close(fds[1]);
  if (!pid.ok()) {
    close(fds[0]);
    return pid.status();
  }
  auto process = std::make_unique<RankProcess>(rank, *pid, fds[0], clock_.now());
  v1::ToTrainer message;
  v1::Start& start = *message.mutable_start();
  start = options_.start;
  start.set_rank(rank);
  start.set_local_rank(rank - first_rank_);
  if (!options_.gpus.empty()) start.set_gpu(options_.gpus[local_rank]);
  start.set_rendezvous_fd(rendezvous_fd);
  Send(*process, message);
  return process;
}

void HostSupervisor::AddDescriptors(std::vector<pollfd>* fds) const {
  for (const auto& rank : ranks_) {
    if (rank->socket() >= 0) fds->push_back({rank->socket(), POLLIN, 0});
  }
}

void HostSupervisor::Receive(const std::vector<pollfd>& fds) {
  for (auto& rank : ranks_) {
    const auto is_readable = [&](const pollfd& fd) { return fd.fd == rank->socket() && fd.revents != 0; };
    if (rank->socket() >= 0 && std::any_of(fds.begin(), fds.end(), is_readable)) Receive(*rank);
  }
}

// Ends of processes and of phases are looked at soon after they can come.
absl::Duration HostSupervisor::Patience() const {
  for (const auto& rank : ranks_) {
    if (!rank->reaped() && (rank->socket() < 0 || rank->exit)) return absl::Milliseconds(5);
  }
  return absl::Milliseconds(phase_ == Phase::kRunning ? 100 : 10);
}

void HostSupervisor::Receive(RankProcess& rank) {
  const absl::StatusOr<bool> open = rank.reader().Fill();
  v1::FromTrainer message;
  while (true) {
    const absl::StatusOr<bool> got = rank.reader().Next(&message);
    if (!got.ok()) {
      Fail(rank, v1::BLAME_CAUSE, Annotate(got.status(), "broke the protocol"));
      rank.CloseSocket();
      return;
    }
    if (!*got) break;
    Note(rank, message);
  }
  if (!open.ok() || !*open) rank.CloseSocket();
}

void HostSupervisor::Note(RankProcess& rank, const v1::FromTrainer& message) {
  rank.last_heard = clock_.now();
  if (message.has_progress()) rank.step = message.progress().step();
  if (message.has_flight_answer()) rank.answered = true;
  if (message.has_exit()) rank.exit = message.exit();
  v1::FromHost said;
  *said.mutable_rank_says() = message;
  said.mutable_rank_says()->set_rank(rank.rank());
  report_(said);
}

void HostSupervisor::Fail(RankProcess& rank, v1::Blame blame, const absl::Status& status) {
  if (blame <= rank.blame) return;
  rank.blame = blame;
  v1::FromHost message;
  v1::RankFault& fault = *message.mutable_fault();
  fault.set_rank(rank.rank());
  fault.set_blame(blame);
  *fault.mutable_failure() = MakeExit(v1::Exit::FAILED, rank.step, status);
  report_(message);
}

void HostSupervisor::Send(RankProcess& rank, const v1::ToTrainer& message) {
  const absl::Status sent = rank.Send(message);
  if (!sent.ok()) Fail(rank, v1::BLAME_UNRESPONSIVE, sent);
}

void HostSupervisor::Handle(const v1::ToHost& message) {
  if (message.has_to_ranks()) {
    for (auto& rank : ranks_) Send(*rank, message.to_ranks());
  }
  if (message.has_ask()) Ask();
  if (message.has_end()) {
    SignalAll(message.end().kill() ? SIGKILL : SIGTERM);
    EnterPhase(message.end().kill() ? Phase::kKilling : Phase::kTerminating);
  }
}

void HostSupervisor::Look() {
  if (done_) return;
  Reap();
  CheckSilence();
  Advance();
  if (!AllReaped() && phase_ != Phase::kGivenUp) return;
  done_ = true;
  v1::FromHost message;
  message.mutable_done();
  report_(message);
}

void HostSupervisor::Reap() {
  for (auto& rank : ranks_) {
    if (rank->reaped()) continue;
    const std::optional<int> wait_status = ReapIfEnded(rank->pid());
    if (!wait_status) continue;
    while (rank->socket() >= 0) Receive(*rank);  // its last words
    Ended(*rank, *wait_status);
  }
}

void HostSupervisor::Ended(RankProcess& rank, int wait_status) {
  rank.wait_status = wait_status;
  // One that has said why it failed, or was found to, has nothing to add by its end.
  const bool told = rank.exit && rank.exit->cause() == v1::Exit::FAILED;
  if (!told && !rank.EndedWell() && rank.blame < v1::BLAME_UNRESPONSIVE) {
    Fail(rank, phase_ >= Phase::kTerminating ? v1::BLAME_CONSEQUENCE : v1::BLAME_CAUSE,
         absl::UnavailableError(absl::StrCat("the process ", DescribeWaitStatus(wait_status))));
  }
  v1::FromHost message;
  message.mutable_ended()->set_rank(rank.rank());
  report_(message);
}

void HostSupervisor::CheckSilence() {
  if (phase_ != Phase::kRunning) return;
  for (auto& rank : ranks_) {
    const absl::Duration limit = rank->step > 0 ? options_.train_timeout : options_.init_timeout;
    if (rank->reaped() || clock_.now() - rank->last_heard <= limit) continue;
    Fail(*rank, v1::BLAME_CONSEQUENCE, absl::DeadlineExceededError(absl::StrCat("no message for ", DurationText(limit))));
  }
}

void HostSupervisor::EnterPhase(Phase phase) {
  phase_ = phase;
  phase_since_ = clock_.now();
}

void HostSupervisor::Ask() {
  EnterPhase(Phase::kAsking);
  v1::ToTrainer message;
  message.mutable_flight_question();
  for (auto& rank : ranks_) {
    if (rank->reaped() || rank->socket() < 0 || rank->exit) continue;
    rank->asked = true;
    Send(*rank, message);
  }
}

// All that were asked have answered, or had their time.
void HostSupervisor::Answer() {
  v1::FromHost message;
  for (auto& rank : ranks_) {
    if (rank->reaped()) continue;
    const bool connected = rank->socket() >= 0;
    if (connected && rank->asked && !rank->answered)
      Fail(*rank, v1::BLAME_UNRESPONSIVE,
           absl::DeadlineExceededError(absl::StrCat("does not answer: ", Condition(rank->pid()))));
    v1::HostAnswered::Rank& state = *message.mutable_answered()->add_ranks();
    state.set_rank(rank->rank());
    state.set_process_state(std::string(1, ProcessState(rank->pid())));
    state.set_connected(connected);
  }
  message.mutable_answered();
  report_(message);
}

// Each phase is left as soon as it has done its work.
void HostSupervisor::Advance() {
  const absl::Duration in_phase = clock_.now() - phase_since_;
  if (phase_ == Phase::kAsking && !answered_) {
    const bool waiting = std::any_of(ranks_.begin(), ranks_.end(), [](const auto& rank) {
      // It has closed its socket without a word: it is dying, and how it died is the cause of what the others say.
      if (rank->socket() < 0) return !rank->reaped() && !rank->exit && rank->blame == v1::BLAME_NONE;
      return !rank->reaped() && rank->asked && !rank->answered && ProcessState(rank->pid()) != 'T';
    });
    if (waiting && in_phase < options_.answer_timeout) return;
    answered_ = true;
    Answer();
  } else if (phase_ == Phase::kTerminating && in_phase > options_.stop_grace) {
    SignalAll(SIGKILL);
    EnterPhase(Phase::kKilling);
  } else if (phase_ == Phase::kKilling && in_phase > options_.kill_grace) {
    for (auto& rank : ranks_) {
      if (rank->reaped()) continue;
      Fail(*rank, v1::BLAME_UNRESPONSIVE, absl::DeadlineExceededError(absl::StrCat("process ", rank->pid(), " cannot be killed: ",
                                                                                   Condition(rank->pid()))));
    }
    EnterPhase(Phase::kGivenUp);
  }
}

void HostSupervisor::SignalAll(int signal_number) {
  for (auto& rank : ranks_) {
    if (!rank->reaped()) kill(-rank->pid(), signal_number);
  }
}

bool HostSupervisor::AllReaped() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->reaped(); });
}

}  // namespace legoai::launch

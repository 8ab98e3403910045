#include "worker/launch/trainer_link.h"

#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "worker/launch/exit_status.h"
#include "worker/launch/pending_commits.h"

namespace legoai::launch {
namespace {

// How often a rank says that it goes on, or waits: often against any time-out, seldom against the cost of a message.
constexpr absl::Duration kBeat = absl::Milliseconds(250);

absl::StatusOr<v1::Start> ReadStart(MessageReader& reader) {
  v1::ToTrainer first;
  ASSIGN_OR_RETURN(bool got, reader.Read(&first));
  if (!got) return absl::UnavailableError("the launcher closed the connection before it sent Start");
  if (!first.has_start()) return absl::FailedPreconditionError("the launcher's first message is not Start");
  return first.start();
}

}  // namespace

absl::StatusOr<std::unique_ptr<TrainerLink>> TrainerLink::Connect(int fd, std::string_view build_version) {
  MessageReader reader(fd);
  ASSIGN_OR_RETURN(v1::Start start, ReadStart(reader));
  if (start.build_version() != build_version) {
    const absl::Status mismatch = FieldError("build_version", start.build_version(),
                                             absl::StrCat("the launcher was built from other sources than the trainer (",
                                                          std::string(build_version), "); build both together"),
                                             absl::StatusCode::kFailedPrecondition);
    v1::FromTrainer message;
    *message.mutable_exit() = MakeExit(v1::Exit::FAILED, 0, mismatch);
    message.set_rank(start.rank());
    message.set_epoch(start.epoch());
    WriteMessage(fd, message).IgnoreError();
    return mismatch;
  }
  return std::unique_ptr<TrainerLink>(new TrainerLink(fd, std::move(start), std::move(reader)));
}

TrainerLink::TrainerLink(int fd, v1::Start start, MessageReader reader)
    : fd_(fd), start_(std::move(start)), reader_(std::move(reader)), listener_([this] { Listen(); }) {}

TrainerLink::~TrainerLink() {
  closing_ = true;
  shutdown(fd_, SHUT_RD);
  listener_.join();
  close(fd_);
}

void TrainerLink::Listen() {
  v1::ToTrainer message;
  while (true) {
    absl::StatusOr<bool> got = reader_.Read(&message);
    if (got.ok() && *got) {
      Handle(message);
    } else {
      if (!closing_) _exit(kLauncherGoneExitCode);
      return;
    }
  }
}

void TrainerLink::Handle(const v1::ToTrainer& message) {
  if (message.has_stop()) RequestStop(message.stop().save());
  if (message.has_flight_question()) AnswerFlightQuestion();
  if (message.has_commit()) TakeVerdict(message.commit().step(), absl::OkStatus());
  if (message.has_deny()) TakeVerdict(message.deny().step(), absl::AbortedError(message.deny().reason()));
  const MutexLock lock(mutex_);
  if (message.has_met()) met_ = message.met().meeting();
  changed_.NotifyAll();
}

// Who is told that all verdicts are there finds them heard.
void TrainerLink::TakeVerdict(int64_t step, const absl::Status& verdict) {
  {
    const MutexLock lock(hear_mutex_);
    if (hear_verdict_) hear_verdict_(step, verdict);
  }
  const MutexLock lock(mutex_);
  while (!offered_.empty() && offered_.front() <= step) offered_.pop_front();
  verdict_ = verdict;
}

void TrainerLink::SetHearVerdict(HearVerdict hear) {
  const MutexLock lock(hear_mutex_);
  hear_verdict_ = std::move(hear);
}

void TrainerLink::AnswerFlightQuestion() {
  std::function<std::string()> waits_in;
  std::string waits_for;
  {
    const MutexLock lock(mutex_);
    waits_in = waits_in_;
    waits_for = waits_for_;
  }
  if (waits_for.empty() && waits_in) waits_for = waits_in();
  v1::FromTrainer message;
  message.mutable_flight_answer()->set_waits_in(waits_for);
  Send(std::move(message)).IgnoreError();
}

void TrainerLink::SetWaitsIn(std::function<std::string()> waits_in) {
  const MutexLock lock(mutex_);
  waits_in_ = std::move(waits_in);
}

void TrainerLink::RequestStop(bool save) {
  StopRequest none = StopRequest::kNone;
  if (!save) {
    stop_.store(StopRequest::kDiscard);
  } else {
    stop_.compare_exchange_strong(none, StopRequest::kSave);
  }
}

absl::Status TrainerLink::Send(v1::FromTrainer message) {
  message.set_rank(start_.rank());
  message.set_epoch(start_.epoch());
  const MutexLock lock(send_mutex_);
  return WriteMessage(fd_, message);
}

absl::Status TrainerLink::SendProgress(std::string_view phase, int64_t step, int64_t steps, int64_t total) {
  v1::FromTrainer message;
  v1::Progress& progress = *message.mutable_progress();
  progress.set_phase(std::string(phase));
  progress.set_step(step);
  progress.set_steps(steps);
  progress.set_total(total);
  {
    const MutexLock lock(mutex_);
    progress_ = progress;
    told_ = absl::Now();
  }
  return Send(std::move(message));
}

void TrainerLink::Advance(int64_t done) {
  v1::FromTrainer message;
  {
    const MutexLock lock(mutex_);
    progress_.set_done(progress_.done() + done);
    const absl::Time now = absl::Now();
    // A clock that was set back must not silence this.
    if (now >= told_ && now - told_ < kBeat && progress_.done() != progress_.total()) return;
    told_ = now;
    *message.mutable_progress() = progress_;
  }
  Send(std::move(message)).IgnoreError();  // without a launcher the listening thread ends the process
}

absl::Status TrainerLink::SendWaits(const std::string& waits) {
  v1::FromTrainer message;
  {
    const MutexLock lock(mutex_);
    progress_.set_waits(waits);
    told_ = absl::Now();
    *message.mutable_progress() = progress_;
  }
  return Send(std::move(message));
}

absl::Status TrainerLink::SendLog(std::string_view level, std::string_view text) {
  v1::FromTrainer message;
  message.mutable_log()->set_level(std::string(level));
  message.mutable_log()->set_text(std::string(text));
  message.mutable_log()->set_time_unix_seconds(absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
  return Send(std::move(message));
}

absl::Status TrainerLink::SendExit(v1::Exit::Cause cause, int64_t step, const absl::Status& status) {
  v1::FromTrainer message;
  *message.mutable_exit() = MakeExit(cause, step, status);
  return Send(std::move(message));
}

// `waits`: what Progress says of it, if that is known here.
absl::Status TrainerLink::Await(const char* what, const std::function<bool()>& answered,
                                const std::function<std::string()>& waits) {
  MutexLock lock(mutex_);
  waits_for_ = what;
  for (bool told = false;; told = true) {
    const auto next = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(kBeat);
    while (!answered() && changed_.WaitUntil(lock, next)) {
    }
    const bool done = answered();
    if (done) waits_for_ = "";
    if (done && !told) return absl::OkStatus();
    v1::FromTrainer beat;
    *beat.mutable_progress() = progress_;
    beat.mutable_progress()->set_waits(!done && waits ? waits() : "");
    lock.Unlock();
    const absl::Status sent = Send(std::move(beat));
    if (done || !sent.ok()) return sent;
    lock.Lock();
  }
}

absl::Status TrainerLink::Meet() {
  v1::FromTrainer message;
  message.mutable_arrived()->set_meeting(++arrived_);
  RETURN_IF_ERROR(Send(std::move(message)));
  return Await("a meeting of all ranks", [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return met_ >= arrived_; });
}

absl::Status TrainerLink::Offer(int64_t step, const std::string& digest) {
  v1::FromTrainer message;
  message.mutable_checkpoint_ready()->set_step(step);
  message.mutable_checkpoint_ready()->set_digest(digest);
  message.mutable_checkpoint_ready()->set_epoch(start_.epoch());
  {
    const MutexLock lock(mutex_);
    offered_.push_back(step);
  }
  const absl::Status sent = Send(std::move(message));
  return sent.ok() ? Meet() : sent;
}

absl::Status TrainerLink::AwaitVerdicts() {
  const auto discards = [this] { return stop_request() == StopRequest::kDiscard; };
  const absl::Status waited = Await(
      "the launcher's verdict on a checkpoint",
      [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return offered_.empty() || discards(); },
      [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return WaitsForVerdict(offered_.front()); });
  if (!waited.ok()) return waited;
  const MutexLock lock(mutex_);
  return offered_.empty() ? verdict_ : absl::CancelledError("asked to stop and discard");
}

}  // namespace legoai::launch

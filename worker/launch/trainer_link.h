// The trainer's end of the protocol with its launcher (proto/legoai/v1/launch.proto): reads Start, then listens on a separate
// thread, so that a rank whose step hangs still answers. Thread-safe.
//
// A trainer never runs unsupervised: when the launcher closes the socket, the process exits at once with kLauncherGoneExitCode.
//
// The launcher considers a silent rank hung. So operations that may take long report progress:
// - work that grows with the model (load, save, export) calls Advance() with the bytes it has read or written; during such work
//   only these calls send Progress messages, so a rank with a slow disk reports and one with a hung disk does not.
// - ranks wait for such work of other ranks in Meet(), not in a collective, whose time-out is that of a step. A rank in Meet()
//   reports that it waits, and the launcher watches those that work.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/process/framing.h"
#include "core/process/mutex.h"
#include "proto/legoai/v1/launch.pb.h"

namespace legoai::launch {

inline constexpr int kLauncherGoneExitCode = 3;

class TrainerLink {
 public:
  // Waits for Start. Takes ownership of `fd`. FailedPrecondition, also reported to the launcher: Start was made by a build other
  // than `build_version`.
  static absl::StatusOr<std::unique_ptr<TrainerLink>> Connect(int fd, std::string_view build_version);
  ~TrainerLink();

  const v1::Start& start() const { return start_; }

  // Sets rank and epoch of the message.
  absl::Status Send(v1::FromTrainer message);
  // A phase begins, or a step is done. `total`: the amount of work in the phase, if it is counted.
  absl::Status SendProgress(std::string_view phase, int64_t step, int64_t steps, int64_t total = 0);
  // `done` more of the phase's total is done. Reports to the launcher at a limited rate.
  void Advance(int64_t done);
  // What the rank waits for, as a sentence, until the next phase begins; empty: it is working. Sent at once and with every later
  // Progress.
  absl::Status SendWaits(const std::string& waits);
  absl::Status SendLog(std::string_view level, std::string_view text);
  // The last message: `status` is the reason for a failure, and OK for any other cause.
  absl::Status SendExit(v1::Exit::Cause cause, int64_t step, const absl::Status& status);

  // Set by Stop or RequestStop; kDiscard overrides kSave.
  enum class StopRequest { kNone, kSave, kDiscard };
  StopRequest stop_request() const { return stop_.load(); }
  void RequestStop(bool save);  // async-signal-safe

  // Waits until every rank of the job has called it as often as this one: a barrier without time-out, for work of different
  // length. The launcher ends the job when a rank falls silent. Unavailable: the launcher is gone.
  absl::Status Meet();

  // Tells the launcher that this rank's part of a checkpoint is on disk, and waits like Meet() until all ranks have done so and
  // few enough checkpoints await their verdict (pending_commits.h).
  absl::Status Offer(int64_t step, const std::string& digest);

  // Called with each verdict as it arrives, in order of steps. OK: commit; Aborted: denied, with the reason. It runs on the
  // listening thread and must not wait for a disk; when this returns, the previous callback is no longer called. Empty: none.
  using HearVerdict = std::function<void(int64_t step, const absl::Status& verdict)>;
  void SetHearVerdict(HearVerdict hear);

  // Waits, and reports that it waits, until every offered checkpoint has its verdict; returns the last one. OK also if nothing
  // was offered. Cancelled: the rank was asked to stop and discard.
  absl::Status AwaitVerdicts();

  // `waits_in` returns the communication that the rank waits in; empty: none. It runs on the listening thread.
  void SetWaitsIn(std::function<std::string()> waits_in);

 private:
  TrainerLink(int fd, v1::Start start, MessageReader reader);
  void Listen();
  void Handle(const v1::ToTrainer& message);
  void TakeVerdict(int64_t step, const absl::Status& verdict);
  void AnswerFlightQuestion();
  absl::Status Await(const char* what, const std::function<bool()>& answered,
                     const std::function<std::string()>& waits = nullptr);

  const int fd_;
  const v1::Start start_;
  MessageReader reader_;
  std::atomic<StopRequest> stop_{StopRequest::kNone};
  std::atomic<bool> closing_{false};
  int64_t arrived_ = 0;  // meetings that this rank has entered; for its own thread
  Mutex send_mutex_;
  Mutex hear_mutex_;  // also held while hear_verdict_ is called
  HearVerdict hear_verdict_ ABSL_GUARDED_BY(hear_mutex_);
  Mutex mutex_;
  Condition changed_;
  std::deque<int64_t> offered_ ABSL_GUARDED_BY(mutex_);  // steps without verdict
  absl::Status verdict_ ABSL_GUARDED_BY(mutex_);         // the last
  int64_t met_ ABSL_GUARDED_BY(mutex_) = 0;              // meetings that all ranks have entered
  v1::Progress progress_ ABSL_GUARDED_BY(mutex_);        // as last sent, plus the work since
  absl::Time told_ ABSL_GUARDED_BY(mutex_);              // when
  const char* waits_for_ ABSL_GUARDED_BY(mutex_) = "";
  std::function<std::string()> waits_in_ ABSL_GUARDED_BY(mutex_);
  std::thread listener_;
};

}  // namespace legoai::launch

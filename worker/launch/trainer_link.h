// The trainer's end of the protocol with its launcher (proto/legoai/v1/launch.proto): reads Start, then listens on a thread of
// its own, so that a rank whose step hangs still answers. Thread-safe.
//
// A trainer never runs unsupervised: when the launcher closes the socket, the process ends at once with kLauncherGoneExitCode.
//
// The launcher takes a rank that says nothing for a while for one that hangs. So whatever may take long says how it goes on:
// - work that grows with the model (load, save, export) calls Advance() with the bytes that it has read or written; from these
//   calls, and from nothing else, come Progress messages. A rank whose disk is slow is heard of, one whose disk hangs is not.
// - who has to wait for such work of other ranks does so in Meet(), not in a collective, whose time-out is that of a step. It
//   says that it waits for as long as it does: the launcher looks at those who work.
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
  // Waits for Start. Takes over `fd`. Tells the launcher the reason, too, if it is FailedPrecondition: Start was made by another
  // build than `build_version`.
  static absl::StatusOr<std::unique_ptr<TrainerLink>> Connect(int fd, std::string_view build_version);
  ~TrainerLink();

  const v1::Start& start() const { return start_; }

  // Rank and epoch are filled in here.
  absl::Status Send(v1::FromTrainer message);
  // A phase begins, or a step is done. `total`: how much there is to do in the phase, if that is counted.
  absl::Status SendProgress(std::string_view phase, int64_t step, int64_t steps, int64_t total = 0);
  // `done` more of the phase's total is done. Tells the launcher, though not more often than makes sense.
  void Advance(int64_t done);
  // For what it waits, in a sentence, until the next phase begins; empty: it is at work. Told at once, and with every later beat.
  absl::Status SendWaits(const std::string& waits);
  absl::Status SendLog(std::string_view level, std::string_view text);
  // The last message: `status` is the reason of a failure, and OK for any other cause.
  absl::Status SendExit(v1::Exit::Cause cause, int64_t step, const absl::Status& status);

  // Set by Stop or RequestStop; a stop that saves is overruled by one that does not.
  enum class StopRequest { kNone, kSave, kDiscard };
  StopRequest stop_request() const { return stop_.load(); }
  void RequestStop(bool save);  // async-signal-safe

  // Waits until every rank of the job has called it as often as this one: a barrier without time-out, for ranks whose work takes
  // of different length. It is the launcher that ends the job when a rank falls silent. Unavailable: the launcher is gone.
  absl::Status Meet();

  // Tells the launcher that this rank's part of a checkpoint is on the disk, and waits as Meet() does: until all ranks have said
  // so, and no more checkpoints wait for their verdict than may (pending_commits.h).
  absl::Status Offer(int64_t step, const std::string& digest);

  // Hears each verdict as it comes, in order of steps. OK: commit; Aborted: denied, with the reason. It runs on the listening
  // thread, and so must not wait for a disk; the earlier one is not called any more when this returns. Empty: nobody hears.
  using HearVerdict = std::function<void(int64_t step, const absl::Status& verdict)>;
  void SetHearVerdict(HearVerdict hear);

  // Waits, and says so, until all that was offered has its verdict; returns the last. OK also where nothing was offered.
  // Cancelled: the rank was asked meanwhile to stop and discard.
  absl::Status AwaitVerdicts();

  // `waits_in` names the communication that the rank waits in; empty: none. It runs on the listening thread.
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
  int64_t arrived_ = 0;  // meetings that this rank has come to; of its own thread
  Mutex send_mutex_;
  Mutex hear_mutex_;  // held while hear_verdict_ is called, too
  HearVerdict hear_verdict_ ABSL_GUARDED_BY(hear_mutex_);
  Mutex mutex_;
  Condition changed_;
  std::deque<int64_t> offered_ ABSL_GUARDED_BY(mutex_);  // steps without verdict
  absl::Status verdict_ ABSL_GUARDED_BY(mutex_);         // the last
  int64_t met_ ABSL_GUARDED_BY(mutex_) = 0;              // meetings that all have come to
  v1::Progress progress_ ABSL_GUARDED_BY(mutex_);        // as it was told last, and what was done since
  absl::Time told_ ABSL_GUARDED_BY(mutex_);              // when
  const char* waits_for_ ABSL_GUARDED_BY(mutex_) = "";
  std::function<std::string()> waits_in_ ABSL_GUARDED_BY(mutex_);
  std::thread listener_;
};

}  // namespace legoai::launch

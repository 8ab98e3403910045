// The trainer's end of the protocol with its launcher (proto/legoai/v1/launch.proto): reads Start, then listens on a thread of
// its own, so that a rank whose step hangs still answers. Torch-free. Thread-safe.
//
// A trainer never runs unsupervised: when the launcher closes the socket, the process ends at once with kLauncherGoneExitCode.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/legoai/v1/launch.pb.h"
#include "worker/launch/framing.h"

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
  absl::Status SendProgress(std::string_view phase, int64_t step, int64_t steps);
  absl::Status SendLog(std::string_view level, std::string_view text);
  // The last message: `status` is the reason of a failure, and OK for any other cause.
  absl::Status SendExit(v1::Exit::Cause cause, int64_t step, const absl::Status& status);

  // Set by Stop or RequestStop; a stop that saves is overruled by one that does not.
  enum class StopRequest { kNone, kSave, kDiscard };
  StopRequest stop_request() const { return stop_.load(); }
  void RequestStop(bool save);  // async-signal-safe

  // Tells the launcher that this rank's part is on the disk, and waits. OK: commit. Aborted: denied, with the reason.
  // DeadlineExceeded: no answer within `timeout`.
  absl::Status AwaitCommit(int64_t step, const std::string& digest, absl::Duration timeout);

  // `dump` gets the reason and gives the path of the dump; it runs on the listening thread.
  void SetFlightDump(std::function<std::string(const std::string& reason)> dump);

 private:
  TrainerLink(int fd, v1::Start start, MessageReader reader);
  void Listen();
  void Handle(const v1::ToTrainer& message);
  void DumpFlight(const std::string& reason);

  const int fd_;
  const v1::Start start_;
  MessageReader reader_;
  std::atomic<StopRequest> stop_{StopRequest::kNone};
  std::atomic<bool> closing_{false};
  std::mutex send_mutex_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  int64_t verdict_step_ = -1;  // of the last Commit or Deny
  absl::Status verdict_;
  std::function<std::string(const std::string&)> dump_;
  std::thread listener_;
};

}  // namespace legoai::launch

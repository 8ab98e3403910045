// A watch of one job, independent of gRPC and HTTP: sends the job's newest state to a client until the job has ended.
//
// It has no thread of its own. The Notifier wakes it, a pool polls the job, and the front end reports when the client has taken
// what was sent. At most one poll or message is in progress, and polls are at least kMinPollInterval apart: changes in between
// become one message, however fast the job and however slow the client.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/process/mutex.h"
#include "proto/legoai/v1/control_plane.pb.h"
#include "server/jobs/notifier.h"
#include "server/rpc/control_plane.h"

namespace legoai::server {

// ControlPlane::PollJob, or a test's.
using JobPoll = std::function<absl::StatusOr<std::optional<v1::WatchJobResponse>>(const v1::WatchJobRequest&, WatchState*)>;

// What all watches of a front end share.
struct JobWatchSource {
  using Clock = std::chrono::steady_clock;

  JobPoll poll;
  Notifier* notifier;  // not owned; must outlive the watches
  // Runs `work` on another thread after `after`; drops it if the server is stopping. Must not block.
  std::function<void(std::function<void()> work, Clock::duration after)> post;
  std::function<Clock::time_point()> now = Clock::now;
};

// The connection to the client. Called by the threads of JobWatchSource::post and by those that call the watch, one at a time.
class JobWatchSink {
 public:
  virtual ~JobWatchSink() = default;
  // The job exists, and the client already has its newest state. At most once, before any other call.
  virtual void NothingNew() {}
  // The front end calls JobWatch::Sent() once the client has taken it.
  virtual void Send(v1::WatchJobResponse response) = 0;
  // The last call: OK after a final state was taken, otherwise why the watch ended. The watch may be destroyed from here on.
  virtual void Finish(const absl::Status& status) = 0;
};

// Thread-safe.
class JobWatch {
 public:
  // Owns neither pointer. `request` holds the version that the client already has.
  JobWatch(const JobWatchSource* source, v1::WatchJobRequest request, JobWatchSink* sink)
      : source_(source), sink_(sink), request_(std::move(request)) {}
  // Only before Begin(), after JobWatchSink::Finish(), or once nothing that was posted can run any more.
  ~JobWatch() = default;
  JobWatch(const JobWatch&) = delete;
  JobWatch& operator=(const JobWatch&) = delete;

  // If `admitted` is an error, the watch ends with it at once.
  void Begin(const absl::Status& admitted);
  // The client has taken the last message, or, if not `ok`, has left.
  void Sent(bool ok);
  // Ends the watch with this error as soon as nothing is in progress. Never blocks. May be called at any time, even during
  // Begin().
  void End(const absl::Status& error);

 private:
  using Clock = JobWatchSource::Clock;

  // The job may have changed.
  void Wake();
  // By whoever is in progress.
  void PostPoll();
  void Poll();
  // Nothing is in progress any more: ends the watch, or polls again if it was woken meanwhile.
  void OnIdle();
  void Close(const absl::Status& error);

  const JobWatchSource* const source_;
  JobWatchSink* const sink_;
  // Used by whoever is in progress.
  v1::WatchJobRequest request_;
  WatchState seen_;
  Clock::time_point next_poll_;  // the earliest
  bool polled_ = false;
  bool sent_final_ = false;

  Mutex mutex_;
  bool busy_ ABSL_GUARDED_BY(mutex_) = true;   // Begin(), a poll or a message is in progress
  bool woken_ ABSL_GUARDED_BY(mutex_) = true;  // since the last poll began
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status closing_ ABSL_GUARDED_BY(mutex_);  // not OK: the watch ends as soon as nothing is in progress

  std::unique_ptr<Notifier::Subscription> subscription_;  // last, so that it ends before what it wakes is destroyed
};

}  // namespace legoai::server

// A watch of one job, free of gRPC and HTTP: it sends the newest state of the job to a client until the job has ended.
//
// It has no thread. The Notifier wakes it, a pool looks at the job, the front end says when the client has taken what was sent.
// At most one look or message is under way, and looks are kBetweenLooks apart, so that changes in between become one message,
// however fast the job and however slow the client is.
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

// ControlPlane::LookAtJob.
using JobLook = std::function<absl::StatusOr<std::optional<v1::WatchJobResponse>>(const v1::WatchJobRequest&, LiveSeen*)>;

// What the watches of a front end have in common.
struct JobWatchSource {
  using Clock = std::chrono::steady_clock;

  JobLook look;
  Notifier* notifier;  // not owned; must outlive the watches
  // Runs `work` on another thread when `after` is over, or never where the server stops. Must not block.
  std::function<void(std::function<void()> work, Clock::duration after)> post;
  std::function<Clock::time_point()> now = Clock::now;
};

// The way to the client. Calls come from the threads of JobWatchSource::post and from those that call the watch, one at a time.
class JobWatchSink {
 public:
  virtual ~JobWatchSink() = default;
  // There is such a job, and the client has its newest state already. At most once, as the first call.
  virtual void NothingNew() {}
  // JobWatch::Sent() is due when the client has taken it.
  virtual void Send(v1::WatchJobResponse response) = 0;
  // The last call: OK after a final state was taken, else why the watch ends. From here on the watch may be destroyed.
  virtual void Finish(const absl::Status& status) = 0;
};

// Thread-safe.
class JobWatch {
 public:
  // Owns neither pointer. `request` says after which version the client goes on.
  JobWatch(const JobWatchSource* source, v1::WatchJobRequest request, JobWatchSink* sink)
      : source_(source), sink_(sink), request_(std::move(request)) {}
  // Begin() was not called, Finish() was, or nothing that was posted runs any more.
  ~JobWatch() = default;
  JobWatch(const JobWatch&) = delete;
  JobWatch& operator=(const JobWatch&) = delete;

  // `admitted`: whether there is to be a watch at all; otherwise it ends at once with this error.
  void Begin(const absl::Status& admitted);
  // The client has taken the last message; not `ok`: it has left.
  void Sent(bool ok);
  // Ends with this error as soon as nothing is under way. Never blocks; may be called at any time, Begin() included.
  void End(const absl::Status& error);

 private:
  using Clock = JobWatchSource::Clock;

  // Something may have changed.
  void Wake();
  // By the one who is under way.
  void PostLook();
  void Look();
  // What is under way is done: ends the watch, or looks again if it was woken meanwhile.
  void Pause();
  void Close(const absl::Status& error);

  const JobWatchSource* const source_;
  JobWatchSink* const sink_;
  // Of whoever is under way.
  v1::WatchJobRequest request_;
  LiveSeen seen_;
  Clock::time_point next_look_;  // the earliest
  bool looked_ = false;
  bool sent_final_ = false;

  Mutex mutex_;
  bool busy_ ABSL_GUARDED_BY(mutex_) = true;   // Begin(), a look or a message is under way
  bool woken_ ABSL_GUARDED_BY(mutex_) = true;  // since the last look began
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status closing_ ABSL_GUARDED_BY(mutex_);  // not OK: the watch ends as soon as nothing is under way

  std::unique_ptr<Notifier::Subscription> subscription_;  // last: what it wakes is gone after it
};

}  // namespace legoai::server

// One WatchJob stream. It has no thread: the Notifier wakes it, a pool looks at the job, gRPC tells when the client has taken
// what was sent. At most one of these is under way, and looks are kBetweenLooks apart, so that changes in between become one
// message.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "core/process/mutex.h"
#include "proto/legoai/v1/control_plane.pb.h"
#include "server/jobs/notifier.h"
#include "server/rpc/admission.h"
#include "server/rpc/control_plane.h"
#include "server/rpc/thread_pool.h"

namespace legoai::server {

class WatchReactor;

// All watches that are open. Thread-safe.
class WatchSet {
 public:
  WatchSet(size_t most, size_t most_per_client) : most_(most), most_per_client_(most_per_client), quota_(most, most_per_client) {}
  // Errors: ResourceExhausted where there are too many, in all or of the watch's client; Unavailable after EndAll().
  absl::Status Add(WatchReactor* watch);
  void Remove(WatchReactor* watch);
  void EndAll();

 private:
  const size_t most_, most_per_client_;
  ClientQuota quota_;
  Mutex mutex_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<WatchReactor*> watches_ ABSL_GUARDED_BY(mutex_);
};

// Belongs to gRPC from Begin() on, and deletes itself when the stream is over.
class WatchReactor : public grpc::ServerWriteReactor<v1::WatchJobResponse> {
 public:
  // None is owned; `request` is copied. `client`: who watches, as ClientOf() names it. `ended` hears of the code with which the
  // stream ends.
  WatchReactor(ControlPlane* control, ThreadPool* pool, WatchSet* watches, std::string client, const v1::WatchJobRequest& request,
               std::function<void(absl::StatusCode)> ended);
  const std::string& client() const { return client_; }

  // `admitted`: whether there is to be a stream at all.
  void Begin(const absl::Status& admitted);
  // Something may have changed. Never blocks.
  void Wake();
  // The server stops.
  void End();

 private:
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  void Look();
  // By the one who is under way.
  void PostLook();
  // The stream ends as soon as nothing is under way.
  void Close(const absl::Status& status);
  // After a look or a write: ends the stream, or looks again if something was said meanwhile.
  void Rest();
  void Finish(const absl::Status& status);

  ControlPlane* const control_;
  ThreadPool* const pool_;
  WatchSet* const watches_;
  const std::string client_;
  const std::function<void(absl::StatusCode)> ended_;
  v1::WatchJobRequest request_;                           // of whoever is under way
  v1::WatchJobResponse response_;                         // the same
  LiveSeen seen_;                                         // the same
  ThreadPool::Clock::time_point next_look_;               // the same; the earliest
  bool registered_ = false;                               // of Begin and OnDone
  std::unique_ptr<Notifier::Subscription> subscription_;  // the same

  Mutex mutex_;
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;      // a look or a write is under way
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;     // since the look under way began
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;  // Finish was called
  absl::Status closing_ ABSL_GUARDED_BY(mutex_);   // not OK: ends the stream as soon as nothing is under way
};

}  // namespace legoai::server

// The two calls of ControlPlane that gRPC streams, WatchJob and Plan. Neither has a thread of its own.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "core/process/mutex.h"
#include "proto/legoai/v1/control_plane.pb.h"
#include "server/rpc/admission.h"
#include "server/rpc/control_plane.h"
#include "server/rpc/job_watch.h"
#include "server/rpc/thread_pool.h"

namespace legoai::server {

class WatchReactor;

// All watches that are open. Thread-safe.
class WatchSet {
 public:
  WatchSet(size_t most, size_t most_per_client) : quota_(most, most_per_client, "watches") {}
  // Errors: ResourceExhausted where there are too many, in all or of the watch's client; Unavailable after EndAll().
  absl::Status Add(WatchReactor* watch);
  void Remove(WatchReactor* watch);
  void EndAll();

 private:
  ClientQuota quota_;
  Mutex mutex_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<WatchReactor*> watches_ ABSL_GUARDED_BY(mutex_);
};

// One WatchJob stream. Belongs to gRPC from Begin() on, and deletes itself when the stream is over.
class WatchReactor : public grpc::ServerWriteReactor<v1::WatchJobResponse>, private JobWatchSink {
 public:
  // Owns neither pointer. `client`: who watches, as ClientOf() names it. `ended` hears of the code with which the stream ends.
  WatchReactor(const JobWatchSource* source, WatchSet* watches, std::string client, const v1::WatchJobRequest& request,
               std::function<void(absl::StatusCode)> ended)
      : watches_(watches), client_(std::move(client)), ended_(std::move(ended)), watch_(source, request, this) {}
  const std::string& client() const { return client_; }

  // `admitted`: whether there is to be a stream at all.
  void Begin(const absl::Status& admitted);
  void End(const absl::Status& error) { watch_.End(error); }

 private:
  void OnWriteDone(bool ok) override { watch_.Sent(ok); }
  void OnCancel() override { watch_.End(absl::CancelledError("the client has left")); }
  void OnDone() override;

  void Send(v1::WatchJobResponse response) override;
  void Finish(const absl::Status& status) override;

  WatchSet* const watches_;
  const std::string client_;
  const std::function<void(absl::StatusCode)> ended_;
  bool registered_ = false;        // of Begin and OnDone
  v1::WatchJobResponse response_;  // of the write under way
  JobWatch watch_;
};

// One Plan stream. The planning runs on a thread of a pool, which never waits for the client: progress that comes while the
// client has not yet taken the last one is left out, the result is sent as soon as it has. Belongs to gRPC from Begin() on, and
// deletes itself when the stream is over.
class PlanReactor : public grpc::ServerWriteReactor<v1::PlanResponse> {
 public:
  // `control` is not owned; `request` is copied. `ended` hears of the code with which the stream ends.
  PlanReactor(ControlPlane* control, const v1::PlanRequest& request, std::function<void(absl::StatusCode)> ended)
      : control_(control), request_(request), ended_(std::move(ended)) {}

  // `admitted`: whether there is anything to be done.
  void Begin(WorkQueue* plans, const absl::Status& admitted);

 private:
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override { delete this; }

  void Run();
  // False where the client has left.
  bool Send(const v1::PlanResponse& response);
  // Nothing more is sent but what waits.
  void End(const absl::Status& status);
  void Finish(const absl::Status& status);
  bool cancelled();

  ControlPlane* const control_;
  const v1::PlanRequest request_;
  const std::function<void(absl::StatusCode)> ended_;
  v1::PlanResponse response_;  // of the write under way

  Mutex mutex_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<v1::PlanResponse> result_ ABSL_GUARDED_BY(mutex_);  // waits for the write under way
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace legoai::server

// The server-streaming calls of ControlPlane over gRPC: WatchJob and Plan. Neither has a thread of its own.
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
#include "server/access/gate.h"
#include "server/rpc/admission.h"
#include "server/rpc/control_plane.h"
#include "server/rpc/job_watch.h"
#include "server/rpc/thread_pool.h"

namespace legoai::server {

class WatchReactor;

// The open watches. Thread-safe.
class WatchSet {
 public:
  WatchSet(size_t most, size_t most_per_client) : quota_(most, most_per_client, "watches") {}
  // Errors: ResourceExhausted if too many are open, in total or by this client; Unavailable after EndAll().
  absl::Status Add(WatchReactor* watch);
  void Remove(WatchReactor* watch);
  void EndAll();
  // Those whose token does not count any more, with Unauthenticated.
  void EndOthers(const access::Gate& gate);

 private:
  ClientQuota quota_;
  Mutex mutex_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<WatchReactor*> watches_ ABSL_GUARDED_BY(mutex_);
};

// One WatchJob stream. Owned by gRPC from Begin() on; deletes itself when the stream is over.
class WatchReactor : public grpc::ServerWriteReactor<v1::WatchJobResponse>, private JobWatchSink {
 public:
  // Owns neither pointer. `client`: as ClientOf() names it. `ended` is called with the code with which the stream ends.
  WatchReactor(const JobWatchSource* source, WatchSet* watches, std::string client, const v1::WatchJobRequest& request,
               std::function<void(absl::StatusCode)> ended, access::Identity who)
      : watches_(watches),
        client_(std::move(client)),
        who_(std::move(who)),
        ended_(std::move(ended)),
        watch_(source, request, this) {}
  const std::string& client() const { return client_; }
  const access::Identity& who() const { return who_; }

  // If `admitted` is an error, the stream ends with it at once.
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
  const access::Identity who_;
  const std::function<void(absl::StatusCode)> ended_;
  bool registered_ = false;        // used by Begin and OnDone
  v1::WatchJobResponse response_;  // of the write in progress
  JobWatch watch_;
};

// One Plan stream. Planning runs on a thread of a pool and never waits for the client: progress reported before the client has
// taken the previous message is dropped; the result is sent as soon as it has. Owned by gRPC from Begin() on; deletes itself when
// the stream is over.
class PlanReactor : public grpc::ServerWriteReactor<v1::PlanResponse> {
 public:
  // As ControlPlane::Plan, which it is or which is asked elsewhere.
  using Send = std::function<bool(const v1::PlanResponse&)>;
  using Planner = std::function<absl::Status(const v1::PlanRequest&, const Send&, const std::function<bool()>& cancelled)>;
  // `request` is copied. `ended` is called with the code with which the stream ends.
  PlanReactor(Planner planner, const v1::PlanRequest& request, std::function<void(absl::StatusCode)> ended)
      : planner_(std::move(planner)), request_(request), ended_(std::move(ended)) {}

  // If `admitted` is an error, the stream ends with it at once.
  void Begin(WorkQueue* plans, const absl::Status& admitted);

 private:
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override { delete this; }

  void Run();
  // False if the client has left.
  bool SendOne(const v1::PlanResponse& response);
  // Ends the stream once what waits is sent.
  void End(const absl::Status& status);
  void Finish(const absl::Status& status);
  bool cancelled();

  const Planner planner_;
  const v1::PlanRequest request_;
  const std::function<void(absl::StatusCode)> ended_;
  v1::PlanResponse response_;  // of the write in progress

  Mutex mutex_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<v1::PlanResponse> result_ ABSL_GUARDED_BY(mutex_);  // waits for the write in progress
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace legoai::server

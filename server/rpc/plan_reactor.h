// One Plan stream. The planning runs on a thread of a pool, which never waits for the client: progress that comes while the
// client has not yet taken the last one is left out, the result is sent as soon as it has.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "core/process/mutex.h"
#include "proto/legoai/v1/control_plane.pb.h"
#include "server/rpc/control_plane.h"
#include "server/rpc/thread_pool.h"

namespace legoai::server {

// Belongs to gRPC from Begin() on, and deletes itself when the stream is over.
class PlanReactor : public grpc::ServerWriteReactor<v1::PlanResponse> {
 public:
  // `control` is not owned; `request` is copied. `ended` hears of the code with which the stream ends.
  PlanReactor(ControlPlane* control, const v1::PlanRequest& request, std::function<void(absl::StatusCode)> ended)
      : control_(control), request_(request), ended_(std::move(ended)) {}

  // `admitted`: whether there is anything to be done.
  void Begin(ThreadPool* pool, const absl::Status& admitted);

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

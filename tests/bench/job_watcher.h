// Somebody who watches a job of a server under load, and how long after its agent told of a step the watch tells of it.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/process/mutex.h"
#include "proto/legoai/v1/control_plane.grpc.pb.h"

namespace legoai::integration {

// One WatchJob stream of this process. Thread-safe.
class JobWatcher : public grpc::ClientReadReactor<v1::WatchJobResponse> {
 public:
  using Clock = std::chrono::steady_clock;
  // When the agent sent a step; nothing for one of before.
  using SentAt = std::function<std::optional<Clock::time_point>(int64_t step)>;

  // Begins. The stub must outlive it, as must what `sent_at` looks at, which any thread of gRPC calls.
  JobWatcher(v1::ControlPlane::Stub* stub, const std::string& job, SentAt sent_at);

  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;
  // Cancels the stream and waits for its end.
  void End();

  int64_t messages() const;
  // Of each message that told of a later step than the one before: since that step was sent.
  std::vector<double> seconds() const;
  // Why the server ended the stream; empty: it goes on, or was cancelled here.
  std::string error() const;

 private:
  const SentAt sent_at_;
  grpc::ClientContext context_;
  v1::WatchJobRequest request_;
  v1::WatchJobResponse incoming_;
  mutable Mutex mutex_;
  Condition ended_;
  int64_t messages_ ABSL_GUARDED_BY(mutex_) = 0, step_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<double> seconds_ ABSL_GUARDED_BY(mutex_);
  bool done_ ABSL_GUARDED_BY(mutex_) = false, cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::string error_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace legoai::integration

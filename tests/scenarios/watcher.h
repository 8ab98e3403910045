// A client that watches one job to its end, and begins anew after the version that it has wherever its stream breaks: so it is
// told of every transition once, whichever server it asks. A thread each; thread-safe.
#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "core/process/mutex.h"
#include "proto/legoai/v1/control_plane.grpc.pb.h"
#include "tests/scenarios/checker.h"

namespace legoai::scenarios {

class Watcher {
 public:
  // Begins. `stub` is shared and not owned.
  Watcher(std::string job, v1::ControlPlane::Stub* stub);
  ~Watcher();  // gives up, where the job's end is not told yet

  // The job's end was told.
  bool done() const { return done_; }
  // Of a job whose end was told: what it was told is the job's history in the store. The rules that are broken.
  std::vector<std::string> Broken(const JobHistory& history) const;
  int64_t streams() const { return streams_; }  // that were begun

 private:
  void Run();
  // Until the stream ends.
  void Watch();
  void Hear(const v1::WatchJobResponse& response);

  const std::string job_;
  v1::ControlPlane::Stub* const stub_;
  std::atomic<bool> stop_ = false, done_ = false;
  std::atomic<int64_t> streams_ = 0;
  int64_t version_ = 0;  // the thread's own
  mutable Mutex mutex_;
  std::vector<v1::Transition> told_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> broken_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // last: it uses the others
};

}  // namespace legoai::scenarios

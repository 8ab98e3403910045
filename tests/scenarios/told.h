// What clients of the service were told, kept by whoever checks it (checker.h): the service has no part in it. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/process/mutex.h"
#include "proto/legoai/v1/job.pb.h"

namespace legoai::scenarios {

// The latest that any client has heard of a job that was acknowledged.
struct ToldJob {
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
  int64_t version = 0, epoch = 0, committed_step = 0;
  int64_t steps_back = 0;  // the committed step goes back with it alone: the checkpoint was found damaged
  bool cancelled = false;  // a cancellation was acknowledged
  std::string retry_of;
};

bool IsFinalState(v1::JobState state);

// Epochs grow, and so do committed steps, unless the later answer tells of more checkpoints that were found damaged.
bool WentBack(const ToldJob& known, const v1::Job& job);

// What tells submissions apart: it must be stored as it was asked for.
struct Asked {
  int64_t steps = 0, interval = 0, slots = 0, priority = 0;
  std::string dataset;
  bool operator==(const Asked& other) const;
  bool operator!=(const Asked& other) const { return !(*this == other); }
  std::string Text() const;
};
Asked AskedOf(const v1::JobSpec& spec);

class Told {
 public:
  // Before a submission or a retry is sent: whatever becomes of the call, it may have come through. `spec`: of a submission.
  void Sent(const std::string& request_id, const v1::JobSpec* spec = nullptr);
  // An answer to it. The same request_id must always give the same job.
  void Accepted(const std::string& request_id, const v1::Job& job);

  // To be taken before a call and given with what came back: an answer may not be older than what was known when it was asked
  // for.
  std::map<std::string, ToldJob> Known() const;
  void Heard(const std::map<std::string, ToldJob>& before, const v1::Job& job);
  void CancelAcknowledged(const std::string& job);
  void Break(const std::string& rule);

  std::set<std::string> Requests() const;
  std::map<std::string, std::string> Acknowledged() const;  // request_id -> job
  std::map<std::string, Asked> AskedFor() const;            // by request_id
  std::vector<std::string> Broken() const;

 private:
  mutable Mutex mutex_;
  std::set<std::string> requests_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Asked> asked_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::string> acknowledged_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, ToldJob> jobs_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> broken_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace legoai::scenarios

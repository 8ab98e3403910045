// The jobs that are not over, as far as decisions need them, kept in memory: only those that have changed are read again, so that
// a look costs what has changed and not what there is.
//
// Thread-safety: Changed() is for every thread, all else for one. gRPC-free.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/process/mutex.h"
#include "proto/legoai/v1/job.pb.h"
#include "server/store/store.h"

namespace legoai::server {

struct ActiveJob {
  std::string name;
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
  int64_t version = 0;
  int64_t epoch = 0;
  std::string reason;
  v1::Resources wanted;
  int64_t world_size = 0;  // slots of its recipe; 0: none yet
  int64_t priority = 0;
  int64_t submitted_us = 0;
  // As long as its steps will take: while it runs by what was measured, pauses for saving and evaluation included.
  std::optional<absl::Duration> time_left = {};
  int64_t not_before_us = 0;  // back-off: no attempt before; microseconds UTC
  // Of the latest lease; 0: not seen.
  int64_t leased_us = 0;
  int64_t first_step = 0, first_report_us = 0;  // the first report of steps that was seen
};

class ActiveJobs {
 public:
  // By id, which is the order of creation; then by name.
  struct EarlierFirst {
    bool operator()(const std::string& a, const std::string& b) const;
  };
  using Map = std::map<std::string, ActiveJob, EarlierFirst>;  // by name

  // The store is not owned.
  explicit ActiveJobs(store::Store* store) : store_(store) {}

  // All that are not over. Call once, before Refresh().
  void Begin(const std::vector<v1::Job>& jobs);
  // After its change is durable.
  void Changed(const std::string& job);
  // Reads what has changed. True where that may change decisions: a job has come, is over, or is in another state; progress of a
  // running one is not such. After an error the same is read by the next call.
  absl::StatusOr<bool> Refresh();

  const Map& all() const { return jobs_; }
  const ActiveJob* Find(const std::string& job) const;  // null: there is none, or it is over
  // From a lease to the first report of steps: the longest that was seen.
  absl::Duration longest_start() const { return longest_start_; }

 private:
  bool Take(const v1::Job& job);
  void Measure(const v1::Job& job, const ActiveJob& before, ActiveJob* now);

  store::Store* const store_;
  Map jobs_;
  bool begun_anew_ = false;  // since the last Refresh()
  absl::Duration longest_start_;
  Mutex mutex_;
  std::set<std::string> changed_ ABSL_GUARDED_BY(mutex_);
};

// Why each waiting job waits, and its place in the queue, as of the controller's last decision. In memory alone: it follows from
// what is stored and who is connected, and the start of one job changes the places of all behind it. Thread-safe.
class WaitReasons {
 public:
  struct Wait {
    int64_t version = 0;  // of the job, for which it holds
    std::string reason;
    int64_t position = 0;  // in the queue of its pool, from 1; 0: it is in none
    bool operator==(const Wait&) const = default;
  };
  using Waits = std::unordered_map<std::string, Wait>;  // by job

  // Returns the names of those of which something else is said now.
  std::vector<std::string> Replace(Waits waits);

  // Sets reason and queue position of `job`, as it was read from the store. False, and nothing is done, where nothing is said of
  // it, or of another version.
  bool Describe(v1::Job* job) const;

 private:
  mutable Mutex mutex_;
  Waits waits_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace legoai::server

// An in-memory cache of active jobs, with what decisions need: only changed jobs are read again, so a refresh costs in proportion
// to the changes and not to the number of jobs.
//
// Thread-safety: Changed() may be called from any thread, everything else from one. gRPC-free.
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
  int64_t workers = 1;     // over which they are, as many on each
  int64_t priority = 0;
  int64_t submitted_us = 0;
  // Remaining time of its steps; for a running job as measured, including saving and evaluation.
  std::optional<absl::Duration> time_left = {};
  std::optional<v1::StopRequest> stop = {};  // of its trainers; a job that is cancelling has one
  int64_t not_before_us = 0;  // back-off: no attempt before this time; microseconds UTC
  // Of the latest lease; 0: not seen.
  int64_t leased_us = 0;
  int64_t first_step = 0, first_report_us = 0;  // the first report of steps
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

  // `jobs`: all active ones. Call once, before Refresh().
  void Begin(const std::vector<v1::Job>& jobs);
  // Call it after the change is durable.
  void Changed(const std::string& job);
  // Reads the changed jobs. True if that may change decisions: a new job, an ended one, or another state, but not progress of a
  // running one. After an error the next call reads the same jobs again.
  absl::StatusOr<bool> Refresh();

  const Map& all() const { return jobs_; }
  const ActiveJob* Find(const std::string& job) const;  // null: there is none, or it has ended
  // The longest time seen from a lease to the first report of steps.
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

// Why each waiting job waits, and its position in the queue, as of the controller's last decision. Only in memory: it follows
// from the store and the connected workers, and the start of one job changes the positions of all behind it. Thread-safe.
class WaitReasons {
 public:
  struct Wait {
    int64_t version = 0;  // the version of the job for which it holds
    std::string reason;
    int64_t position = 0;  // in the queue of its pool, from 1; 0: not queued
    bool operator==(const Wait&) const = default;
  };
  using Waits = std::unordered_map<std::string, Wait>;  // by job

  // Returns the names of jobs whose entry has changed.
  std::vector<std::string> Replace(Waits waits);

  // Sets reason and queue position of `job`, which was read from the store. False, and nothing is done, if there is no entry for
  // this version of it.
  bool Describe(v1::Job* job) const;

 private:
  mutable Mutex mutex_;
  Waits waits_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace legoai::server

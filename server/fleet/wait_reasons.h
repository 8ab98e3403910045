// Why each waiting job waits, and its place in the queue, as of the controller's last decision. In memory alone: it follows from
// what is stored and who is connected, and the start of one job changes the places of all behind it. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/process/mutex.h"
#include "proto/legoai/v1/job.pb.h"

namespace legoai::server {

class WaitReasons {
 public:
  struct Wait {
    int64_t version = 0;  // of the job, for which it holds
    std::string reason;
    int64_t position = 0;  // in the queue of its pool, from 1; 0: it is in none
    bool operator==(const Wait&) const = default;
  };
  using Waits = std::unordered_map<std::string, Wait>;  // by job

  // Gives the names of those of which something else is said now.
  std::vector<std::string> Replace(Waits waits);

  // Sets reason and queue position of `job`, as it was read from the store. False, and nothing is done, where nothing is said of
  // it, or of another version.
  bool Describe(v1::Job* job) const;

 private:
  mutable Mutex mutex_;
  Waits waits_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace legoai::server

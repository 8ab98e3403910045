// Which worker's slots are leased to which job at this moment, and when each lease was last renewed. It lives in memory: the
// store has the jobs, and after a restart of the server every lease counts as just renewed. Time is monotonic and given. Not
// thread-safe: the controller guards it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/legoai/v1/worker.pb.h"

namespace legoai::server {

struct Lease {
  std::string job;
  int64_t epoch = 0;
  std::string worker = {};
  int64_t slots = 0;
  absl::Duration renewed = {};  // when, on the controller's clock
  uint64_t told_session = 0;    // the session in which the agent was told of it
  uint64_t stop_session = 0;    // and that in which it was told to stop it; 0: not yet
  int64_t attempt = 0;          // of the job
  std::string instance = {};    // of the agent that was told of it, or is to be
};

class LeaseBook {
 public:
  explicit LeaseBook(absl::Duration time_to_live) : time_to_live_(time_to_live) {}

  void Grant(const Lease& lease);  // a job has one lease at most: an earlier one is replaced
  // Nothing if the job has no lease, or not of this epoch.
  Lease* Find(const std::string& job, int64_t epoch);
  void Release(const std::string& job, int64_t epoch);
  void Renew(const std::string& job, int64_t epoch, const std::string& worker, absl::Duration now);

  // Nobody could be heard for so long: the server itself did not run.
  void ExtendAll(absl::Duration pause);

  std::vector<Lease> Expired(absl::Duration now) const;
  std::vector<Lease> OfWorker(const std::string& worker) const;
  std::map<std::string, Lease>& all() { return leases_; }  // by job; not to be added to, or taken from
  int64_t UsedSlots(const std::string& worker) const;
  std::vector<v1::SlotUse> Use(const std::string& worker) const;

 private:
  const absl::Duration time_to_live_;
  std::map<std::string, Lease> leases_;                     // by job
  std::map<std::string, std::set<std::string>> of_worker_;  // jobs
};

}  // namespace legoai::server

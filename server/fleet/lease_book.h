// Which worker's slots are currently leased to which job, and when each lease was last renewed. Only in memory: the store has the
// jobs, and after a restart of the server every lease counts as just renewed. The caller passes monotonic time. Thread-safe: it
// has one mutex and depends on no other part.
#pragma once

#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "core/process/mutex.h"
#include "proto/legoai/v1/worker.pb.h"
#include "proto/legoai/v1/worker_service.pb.h"

namespace legoai::server {

// A worker's part of a lease; a job's lease has one for each of its workers.
struct Lease {
  std::string job;
  int64_t epoch = 0;
  std::string worker = {};
  int64_t slots = 0;
  absl::Duration renewed = {};    // on the controller's clock
  uint64_t told_session = 0;      // the session in which the agent was told of the lease
  uint64_t stop_session = 0;      // the session in which it was told to stop; 0: not yet
  bool stop_saves = false;        // as it was told
  int64_t stop_until_us = 0;      // UTC; the deadline of that, as it was told
  int64_t attempt = 0;            // of the job
  std::string instance = {};      // of the agent that holds or will get it
  int64_t first_rank = 0;         // 0: its agent speaks for all
  std::string gang_address = {};  // where its workers meet; empty: it has one, or an earlier server has given it
  int64_t gang_port = 0;          // there
  int64_t workers = 1;            // of the lease, as the book was given them
  bool ended = false;             // its ranks have ended as the first worker says: it has no more say, and cannot be lost

  bool IsFirst() const { return first_rank == 0; }
};

class LeaseBook {
 public:
  explicit LeaseBook(absl::Duration time_to_live) : time_to_live_(time_to_live) {}

  // All parts of a lease, of one job and epoch, by first rank; replaces an earlier lease of the job.
  void Grant(const std::vector<Lease>& parts);
  // By first rank; none if the job has no lease of this epoch.
  std::vector<Lease> Find(const std::string& job, int64_t epoch) const;
  // The part that this process of the worker's agent holds. As quick for a lease of many workers.
  std::optional<Lease> FindHeld(const v1::LeaseId& lease, const std::string& worker, const std::string& instance) const;
  void Release(const std::string& job, int64_t epoch);
  // The worker's part has ended as the first worker says, whose word of the whole is still to come.
  void EndPart(const std::string& job, int64_t epoch, const std::string& worker);
  // Renews those that this process holds, and returns the others.
  std::vector<v1::LeaseId> Renew(const google::protobuf::RepeatedPtrField<v1::LeaseId>& leases, const std::string& worker,
                                 const std::string& instance, absl::Duration now);
  // The agent of its first worker was told to stop it in this session, after a checkpoint, for which there is time until the
  // deadline, or at once.
  void ToldToStop(const std::string& job, int64_t epoch, uint64_t session, bool save, int64_t deadline_us);

  // Nobody could be heard for that long: the server itself did not run.
  void ExtendAll(absl::Duration pause);

  std::vector<Lease> Expired(absl::Duration now) const;  // but for parts that have ended
  std::vector<Lease> OfWorker(const std::string& worker) const;
  std::vector<Lease> All() const;  // by job and first rank

 private:
  using Parts = std::vector<Lease>;
  struct OfJob {
    Parts parts;
    std::map<std::string, size_t> of_worker;  // where its part is
  };
  const Parts* FindHere(const std::string& job, int64_t epoch) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The worker's part of the lease; null: it has none.
  const Lease* FindPartHere(const std::string& job, int64_t epoch, const std::string& worker) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Lease* PartHere(const std::string& job, int64_t epoch, const std::string& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return const_cast<Lease*>(FindPartHere(job, epoch, worker));
  }
  std::vector<Lease> ListIf(const std::function<bool(const Lease&)>& wanted) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReleaseHere(const std::string& job, int64_t epoch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const absl::Duration time_to_live_;
  mutable Mutex mutex_;
  std::map<std::string, OfJob> leases_ ABSL_GUARDED_BY(mutex_);                     // by job
  std::map<std::string, std::set<std::string>> of_worker_ ABSL_GUARDED_BY(mutex_);  // jobs
};

}  // namespace legoai::server

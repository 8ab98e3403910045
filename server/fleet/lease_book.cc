#include "server/fleet/lease_book.h"

namespace legoai::server {

void LeaseBook::Grant(const Lease& lease) {
  const MutexLock lock(mutex_);
  if (const auto earlier = leases_.find(lease.job); earlier != leases_.end()) ReleaseHere(lease.job, earlier->second.epoch);
  leases_[lease.job] = lease;
  of_worker_[lease.worker].insert(lease.job);
}

const Lease* LeaseBook::FindHere(const std::string& job, int64_t epoch) const {
  const auto found = leases_.find(job);
  return found != leases_.end() && found->second.epoch == epoch ? &found->second : nullptr;
}

std::optional<Lease> LeaseBook::Find(const std::string& job, int64_t epoch) const {
  const MutexLock lock(mutex_);
  const Lease* const lease = FindHere(job, epoch);
  return lease == nullptr ? std::nullopt : std::optional(*lease);
}

bool LeaseBook::IsHeld(const v1::LeaseId& lease, const std::string& worker, const std::string& instance) const {
  const MutexLock lock(mutex_);
  const Lease* const held = FindHere(lease.job(), lease.epoch());
  return held != nullptr && held->worker == worker && held->instance == instance;
}

void LeaseBook::ReleaseHere(const std::string& job, int64_t epoch) {
  const Lease* const lease = FindHere(job, epoch);
  if (lease == nullptr) return;
  const auto jobs = of_worker_.find(lease->worker);
  jobs->second.erase(job);
  if (jobs->second.empty()) of_worker_.erase(jobs);
  leases_.erase(job);
}

void LeaseBook::Release(const std::string& job, int64_t epoch) {
  const MutexLock lock(mutex_);
  ReleaseHere(job, epoch);
}

std::vector<v1::LeaseId> LeaseBook::Renew(const google::protobuf::RepeatedPtrField<v1::LeaseId>& leases,
                                          const std::string& worker, const std::string& instance, absl::Duration now) {
  const MutexLock lock(mutex_);
  std::vector<v1::LeaseId> others;
  for (const v1::LeaseId& lease : leases) {
    const auto found = leases_.find(lease.job());
    const bool own = found != leases_.end() && found->second.epoch == lease.epoch() && found->second.worker == worker &&
                     found->second.instance == instance;
    own ? void(found->second.renewed = now) : others.push_back(lease);
  }
  return others;
}

void LeaseBook::ToldToStop(const std::string& job, int64_t epoch, uint64_t session, bool save, int64_t deadline_us) {
  const MutexLock lock(mutex_);
  const auto found = leases_.find(job);
  if (found == leases_.end() || found->second.epoch != epoch) return;
  found->second.stop_session = session;
  found->second.stop_saves = save;
  found->second.stop_until_us = deadline_us;
}

void LeaseBook::ExtendAll(absl::Duration pause) {
  const MutexLock lock(mutex_);
  for (auto& [job, lease] : leases_) lease.renewed += pause;
}

std::vector<Lease> LeaseBook::Expired(absl::Duration now) const {
  const MutexLock lock(mutex_);
  std::vector<Lease> expired;
  for (const auto& [job, lease] : leases_) {
    if (now - lease.renewed > time_to_live_) expired.push_back(lease);
  }
  return expired;
}

std::vector<Lease> LeaseBook::OfWorker(const std::string& worker) const {
  const MutexLock lock(mutex_);
  std::vector<Lease> of_worker;
  const auto jobs = of_worker_.find(worker);
  if (jobs == of_worker_.end()) return of_worker;
  for (const std::string& job : jobs->second) of_worker.push_back(leases_.at(job));
  return of_worker;
}

std::vector<Lease> LeaseBook::All() const {
  const MutexLock lock(mutex_);
  std::vector<Lease> all;
  for (const auto& [job, lease] : leases_) all.push_back(lease);
  return all;
}

}  // namespace legoai::server

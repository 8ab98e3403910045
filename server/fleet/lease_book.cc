#include "server/fleet/lease_book.h"

namespace legoai::server {

void LeaseBook::Grant(const std::vector<Lease>& parts) {
  const MutexLock lock(mutex_);
  const std::string& job = parts.front().job;
  if (const auto earlier = leases_.find(job); earlier != leases_.end()) ReleaseHere(job, earlier->second.front().epoch);
  leases_[job] = parts;
  for (const Lease& part : parts) of_worker_[part.worker].insert(job);
}

const LeaseBook::Parts* LeaseBook::FindHere(const std::string& job, int64_t epoch) const {
  const auto found = leases_.find(job);
  return found != leases_.end() && found->second.front().epoch == epoch ? &found->second : nullptr;
}

std::vector<Lease> LeaseBook::Find(const std::string& job, int64_t epoch) const {
  const MutexLock lock(mutex_);
  const Parts* const parts = FindHere(job, epoch);
  return parts == nullptr ? Parts() : *parts;
}

std::optional<Lease> LeaseBook::FindHeld(const v1::LeaseId& lease, const std::string& worker,
                                         const std::string& instance) const {
  const MutexLock lock(mutex_);
  const Parts* const parts = FindHere(lease.job(), lease.epoch());
  if (parts == nullptr) return std::nullopt;
  for (const Lease& part : *parts) {
    if (part.worker == worker && part.instance == instance) return part;
  }
  return std::nullopt;
}

void LeaseBook::ReleaseHere(const std::string& job, int64_t epoch) {
  const Parts* const parts = FindHere(job, epoch);
  if (parts == nullptr) return;
  for (const Lease& part : *parts) {
    const auto jobs = of_worker_.find(part.worker);
    jobs->second.erase(job);
    if (jobs->second.empty()) of_worker_.erase(jobs);
  }
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
    bool own = false;
    const auto found = leases_.find(lease.job());
    if (found != leases_.end()) {
      for (Lease& part : found->second) {
        if (part.epoch != lease.epoch() || part.worker != worker || part.instance != instance) continue;
        part.renewed = now;
        own = true;
      }
    }
    if (!own) others.push_back(lease);
  }
  return others;
}

void LeaseBook::ToldToStop(const std::string& job, int64_t epoch, uint64_t session, bool save, int64_t deadline_us) {
  const MutexLock lock(mutex_);
  const auto found = leases_.find(job);
  if (found == leases_.end() || found->second.front().epoch != epoch) return;
  Lease& first = found->second.front();
  first.stop_session = session;
  first.stop_saves = save;
  first.stop_until_us = deadline_us;
}

void LeaseBook::ExtendAll(absl::Duration pause) {
  const MutexLock lock(mutex_);
  for (auto& [job, parts] : leases_) {
    for (Lease& part : parts) part.renewed += pause;
  }
}

std::vector<Lease> LeaseBook::ListIf(const std::function<bool(const Lease&)>& wanted) const {
  std::vector<Lease> list;
  for (const auto& [job, parts] : leases_) {
    for (const Lease& part : parts) {
      if (wanted(part)) list.push_back(part);
    }
  }
  return list;
}

std::vector<Lease> LeaseBook::Expired(absl::Duration now) const {
  const MutexLock lock(mutex_);
  return ListIf([&](const Lease& part) { return now - part.renewed > time_to_live_; });
}

std::vector<Lease> LeaseBook::OfWorker(const std::string& worker) const {
  const MutexLock lock(mutex_);
  std::vector<Lease> of_worker;
  const auto jobs = of_worker_.find(worker);
  if (jobs == of_worker_.end()) return of_worker;
  for (const std::string& job : jobs->second) {
    for (const Lease& part : leases_.at(job)) {
      if (part.worker == worker) of_worker.push_back(part);
    }
  }
  return of_worker;
}

std::vector<Lease> LeaseBook::All() const {
  const MutexLock lock(mutex_);
  return ListIf([](const Lease&) { return true; });
}

}  // namespace legoai::server

#include "server/fleet/lease_book.h"

namespace legoai::server {

void LeaseBook::Grant(const Lease& lease) {
  if (const auto earlier = leases_.find(lease.job); earlier != leases_.end()) Release(lease.job, earlier->second.epoch);
  leases_[lease.job] = lease;
  of_worker_[lease.worker].insert(lease.job);
}

Lease* LeaseBook::Find(const std::string& job, int64_t epoch) {
  const auto found = leases_.find(job);
  return found != leases_.end() && found->second.epoch == epoch ? &found->second : nullptr;
}

void LeaseBook::Release(const std::string& job, int64_t epoch) {
  const Lease* const lease = Find(job, epoch);
  if (lease == nullptr) return;
  const auto jobs = of_worker_.find(lease->worker);
  jobs->second.erase(job);
  if (jobs->second.empty()) of_worker_.erase(jobs);
  leases_.erase(job);
}

void LeaseBook::Renew(const std::string& job, int64_t epoch, const std::string& worker, absl::Duration now) {
  Lease* const lease = Find(job, epoch);
  if (lease != nullptr && lease->worker == worker) lease->renewed = now;
}

void LeaseBook::ExtendAll(absl::Duration pause) {
  for (auto& [job, lease] : leases_) lease.renewed += pause;
}

std::vector<Lease> LeaseBook::Expired(absl::Duration now) const {
  std::vector<Lease> expired;
  for (const auto& [job, lease] : leases_) {
    if (now - lease.renewed > time_to_live_) expired.push_back(lease);
  }
  return expired;
}

std::vector<Lease> LeaseBook::OfWorker(const std::string& worker) const {
  std::vector<Lease> of_worker;
  const auto jobs = of_worker_.find(worker);
  if (jobs == of_worker_.end()) return of_worker;
  for (const std::string& job : jobs->second) of_worker.push_back(leases_.at(job));
  return of_worker;
}

int64_t LeaseBook::UsedSlots(const std::string& worker) const {
  int64_t used = 0;
  for (const Lease& lease : OfWorker(worker)) used += lease.slots;
  return used;
}

std::vector<v1::SlotUse> LeaseBook::Use(const std::string& worker) const {
  std::vector<v1::SlotUse> use;
  for (const Lease& lease : OfWorker(worker)) {
    v1::SlotUse& one = use.emplace_back();
    one.set_job(lease.job);
    one.set_epoch(lease.epoch);
    one.set_slots(lease.slots);
  }
  return use;
}

}  // namespace legoai::server

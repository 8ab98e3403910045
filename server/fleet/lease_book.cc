#include "server/fleet/lease_book.h"

namespace legoai::server {

void LeaseBook::Grant(const std::vector<Lease>& parts) {
  const MutexLock lock(mutex_);
  const std::string& job = parts.front().job;
  if (const auto earlier = leases_.find(job); earlier != leases_.end()) ReleaseHere(job, earlier->second.parts.front().epoch);
  OfJob& of_job = leases_[job] = {parts, {}};
  for (size_t i = 0; i < parts.size(); ++i) {
    of_job.parts[i].workers = static_cast<int64_t>(parts.size());
    of_job.of_worker[parts[i].worker] = i;
    of_worker_[parts[i].worker].insert(job);
  }
}

const LeaseBook::Parts* LeaseBook::FindHere(const std::string& job, int64_t epoch) const {
  const auto found = leases_.find(job);
  return found != leases_.end() && found->second.parts.front().epoch == epoch ? &found->second.parts : nullptr;
}

const Lease* LeaseBook::FindPartHere(const std::string& job, int64_t epoch, const std::string& worker) const {
  const auto found = leases_.find(job);
  if (found == leases_.end()) return nullptr;
  const auto part = found->second.of_worker.find(worker);
  if (part == found->second.of_worker.end()) return nullptr;
  const Lease& lease = found->second.parts[part->second];
  return lease.epoch == epoch ? &lease : nullptr;
}

std::vector<Lease> LeaseBook::Find(const std::string& job, int64_t epoch) const {
  const MutexLock lock(mutex_);
  const Parts* const parts = FindHere(job, epoch);
  return parts == nullptr ? Parts() : *parts;
}

std::optional<Lease> LeaseBook::FindHeld(const v1::LeaseId& lease, const std::string& worker,
                                         const std::string& instance) const {
  const MutexLock lock(mutex_);
  const Lease* const part = FindPartHere(lease.job(), lease.epoch(), worker);
  return part != nullptr && part->instance == instance ? std::optional(*part) : std::nullopt;
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
    Lease* const part = PartHere(lease.job(), lease.epoch(), worker);
    if (part != nullptr && part->instance == instance) {
      part->renewed = now;
    } else {
      others.push_back(lease);
    }
  }
  return others;
}

void LeaseBook::EndPart(const std::string& job, int64_t epoch, const std::string& worker) {
  const MutexLock lock(mutex_);
  if (Lease* const part = PartHere(job, epoch, worker)) part->ended = true;
}

void LeaseBook::ToldToStop(const std::string& job, int64_t epoch, uint64_t session, bool save, int64_t deadline_us) {
  const MutexLock lock(mutex_);
  const auto found = leases_.find(job);
  if (found == leases_.end() || found->second.parts.front().epoch != epoch) return;
  Lease& first = found->second.parts.front();
  first.stop_session = session;
  first.stop_saves = save;
  first.stop_until_us = deadline_us;
}

void LeaseBook::ExtendAll(absl::Duration pause) {
  const MutexLock lock(mutex_);
  for (auto& [job, of_job] : leases_) {
    for (Lease& part : of_job.parts) part.renewed += pause;
  }
}

std::vector<Lease> LeaseBook::ListIf(const std::function<bool(const Lease&)>& wanted) const {
  std::vector<Lease> list;
  for (const auto& [job, of_job] : leases_) {
    for (const Lease& part : of_job.parts) {
      if (wanted(part)) list.push_back(part);
    }
  }
  return list;
}

std::vector<Lease> LeaseBook::Expired(absl::Duration now) const {
  const MutexLock lock(mutex_);
  return ListIf([&](const Lease& part) { return !part.ended && now - part.renewed > time_to_live_; });
}

std::vector<Lease> LeaseBook::OfWorker(const std::string& worker) const {
  const MutexLock lock(mutex_);
  std::vector<Lease> of_worker;
  const auto jobs = of_worker_.find(worker);
  if (jobs == of_worker_.end()) return of_worker;
  for (const std::string& job : jobs->second) {
    const OfJob& of_job = leases_.at(job);
    of_worker.push_back(of_job.parts[of_job.of_worker.at(worker)]);
  }
  return of_worker;
}

std::vector<Lease> LeaseBook::All() const {
  const MutexLock lock(mutex_);
  return ListIf([](const Lease&) { return true; });
}

}  // namespace legoai::server

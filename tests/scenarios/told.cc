#include "tests/scenarios/told.h"

#include <tuple>

#include "absl/strings/str_cat.h"
#include "proto/enum_text.h"

namespace legoai::scenarios {

bool IsFinalState(v1::JobState state) { return state == v1::SUCCEEDED || state == v1::FAILED || state == v1::CANCELLED; }

bool WentBack(const ToldJob& known, const v1::Job& job) {
  if (job.epoch() < known.epoch || job.steps_back() < known.steps_back) return true;
  return job.committed_step() < known.committed_step && job.steps_back() == known.steps_back;
}

bool Asked::operator==(const Asked& other) const {
  return std::tie(steps, interval, slots, priority, dataset) ==
         std::tie(other.steps, other.interval, other.slots, other.priority, other.dataset);
}

std::string Asked::Text() const {
  return absl::StrCat(steps, " steps saved every ", interval, " on ", slots, " slots of ", dataset, " with priority ", priority);
}

Asked AskedOf(const v1::JobSpec& spec) {
  return {spec.recipe().training().steps(), spec.recipe().checkpoint().interval(), spec.resources().slots(),
          spec.policy().priority(), spec.dataset().uri()};
}

void Told::Sent(const std::string& request_id, const v1::JobSpec* spec) {
  const MutexLock lock(mutex_);
  requests_.insert(request_id);
  if (spec != nullptr) asked_.emplace(request_id, AskedOf(*spec));
}

void Told::Accepted(const std::string& request_id, const v1::Job& job) {
  const MutexLock lock(mutex_);
  const auto [known, fresh] = acknowledged_.emplace(request_id, job.name());
  if (!fresh && known->second != job.name()) {
    broken_.push_back(absl::StrCat("one job per request_id: ", request_id, " was answered with ", known->second,
                                   " and then with ", job.name()));
  }
}

std::map<std::string, ToldJob> Told::Known() const {
  const MutexLock lock(mutex_);
  return jobs_;
}

void Told::Heard(const std::map<std::string, ToldJob>& before, const v1::Job& job) {
  const MutexLock lock(mutex_);
  if (const auto old = before.find(job.name()); old != before.end()) {
    const ToldJob& known = old->second;
    if (job.version() < known.version) {
      broken_.push_back(absl::StrCat("versions never go back: ", job.name(), " was told at version ", known.version,
                                     ", and afterwards at ", job.version()));
    }
    if (WentBack(known, job)) {
      broken_.push_back(absl::StrCat("epochs and committed steps never go back: ", job.name(), " was told at epoch ", known.epoch,
                                     " and step ", known.committed_step, ", and afterwards at ", job.epoch(), " and ",
                                     job.committed_step()));
    }
    if (IsFinalState(known.state) && job.state() != known.state) {
      broken_.push_back(absl::StrCat("a final state never changes: ", job.name(), " was told ", EnumText(known.state),
                                     ", and afterwards ", EnumText(job.state())));
    }
  }
  ToldJob& now = jobs_[job.name()];
  if (job.version() < now.version) return;  // another client was faster
  if (job.version() == now.version && job.state() != now.state) {
    broken_.push_back(absl::StrCat("a version has one state: ", job.name(), " was told ", EnumText(now.state), " at version ",
                                   now.version, ", and also ", EnumText(job.state())));
  }
  now.state = job.state();
  now.version = job.version();
  now.epoch = job.epoch();
  now.committed_step = job.committed_step();
  now.steps_back = job.steps_back();
  now.retry_of = job.retry_of();
}

void Told::CancelAcknowledged(const std::string& job) {
  const MutexLock lock(mutex_);
  jobs_[job].cancelled = true;
}

void Told::Break(const std::string& rule) {
  const MutexLock lock(mutex_);
  broken_.push_back(rule);
}

std::set<std::string> Told::Requests() const {
  const MutexLock lock(mutex_);
  return requests_;
}

std::map<std::string, std::string> Told::Acknowledged() const {
  const MutexLock lock(mutex_);
  return acknowledged_;
}

std::map<std::string, Asked> Told::AskedFor() const {
  const MutexLock lock(mutex_);
  return asked_;
}

std::vector<std::string> Told::Broken() const {
  const MutexLock lock(mutex_);
  return broken_;
}

}  // namespace legoai::scenarios

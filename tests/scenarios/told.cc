#include "tests/scenarios/told.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/enum_text.h"

namespace legoai::scenarios {

bool IsFinalState(v1::JobState state) { return state == v1::SUCCEEDED || state == v1::FAILED || state == v1::CANCELLED; }

void Told::Sent(const std::string& request_id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  requests_.insert(request_id);
}

void Told::Accepted(const std::string& request_id, const v1::Job& job) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto [known, fresh] = acknowledged_.emplace(request_id, job.name());
  if (!fresh && known->second != job.name()) {
    broken_.push_back(absl::StrCat("one job per request_id: ", request_id, " was answered with ", known->second,
                                   " and then with ", job.name()));
  }
}

std::map<std::string, ToldJob> Told::Known() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return jobs_;
}

void Told::Heard(const std::map<std::string, ToldJob>& before, const v1::Job& job) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto old = before.find(job.name()); old != before.end()) {
    const ToldJob& known = old->second;
    if (job.version() < known.version) {
      broken_.push_back(absl::StrCat("versions never go back: ", job.name(), " was told at version ", known.version,
                                     ", and afterwards at ", job.version()));
    }
    if (IsFinalState(known.state) && job.state() != known.state) {
      broken_.push_back(absl::StrCat("a final state never changes: ", job.name(), " was told ", EnumText(known.state),
                                     ", and afterwards ", EnumText(job.state())));
    }
  }
  ToldJob& now = jobs_[job.name()];
  if (job.version() < now.version) return;  // another client was faster
  now.state = job.state();
  now.version = job.version();
  now.epoch = job.epoch();
  now.committed_step = job.committed_step();
  now.steps = job.spec().recipe().training().steps();
  now.retry_of = job.retry_of();
}

void Told::CancelAcknowledged(const std::string& job) {
  const std::lock_guard<std::mutex> lock(mutex_);
  jobs_[job].cancelled = true;
}

void Told::Break(const std::string& rule) {
  const std::lock_guard<std::mutex> lock(mutex_);
  broken_.push_back(rule);
}

std::set<std::string> Told::Requests() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return requests_;
}

std::map<std::string, std::string> Told::Acknowledged() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return acknowledged_;
}

std::vector<std::string> Told::Broken() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return broken_;
}

}  // namespace legoai::scenarios

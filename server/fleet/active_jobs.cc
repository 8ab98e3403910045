#include "server/fleet/active_jobs.h"

#include <string_view>
#include <tuple>
#include <utility>

#include "server/jobs/transition.h"

namespace legoai::server {
namespace {

std::string_view Id(std::string_view name) { return name.substr(name.rfind('/') + 1); }

std::optional<absl::Duration> TimeLeft(const v1::Job& job) {
  const int64_t steps = job.spec().recipe().training().steps() - job.progress().step();
  const double each = job.progress().step_seconds() > 0 ? job.progress().step_seconds() : job.chosen().step_time_seconds();
  if (!(each > 0) || steps < 0) return std::nullopt;
  return absl::Seconds(each * static_cast<double>(steps));
}

ActiveJob AsActive(const v1::Job& job) {
  return {.name = job.name(),
          .state = job.state(),
          .version = job.version(),
          .epoch = job.epoch(),
          .reason = job.reason(),
          .wanted = job.spec().resources(),
          .world_size = job.world_size(),
          .priority = job.spec().policy().priority(),
          .submitted_us = job.create_time_us(),
          .time_left = TimeLeft(job)};
}

}  // namespace

bool ActiveJobs::EarlierFirst::operator()(const std::string& a, const std::string& b) const {
  return std::pair(Id(a), std::string_view(a)) < std::pair(Id(b), std::string_view(b));
}

void ActiveJobs::Begin(const std::vector<v1::Job>& jobs) {
  for (const v1::Job& job : jobs) Take(job);
  begun_anew_ = true;
}

void ActiveJobs::Changed(const std::string& job) {
  const std::lock_guard<std::mutex> lock(mutex_);
  changed_.insert(job);
}

absl::StatusOr<bool> ActiveJobs::Refresh() {
  std::set<std::string> names;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    names.swap(changed_);
  }
  bool moved = std::exchange(begun_anew_, false);
  if (names.empty()) return moved;
  std::vector<v1::Job> jobs;
  const absl::Status read = store_->Read([&](store::ReadTransaction& transaction) -> absl::Status {
    for (const std::string& name : names) {
      auto job = transaction.GetJob(name);
      if (!job.ok()) return job.status();
      if (*job) jobs.push_back(**std::move(job));
    }
    return absl::OkStatus();
  });
  if (!read.ok()) {
    begun_anew_ = moved;
    const std::lock_guard<std::mutex> lock(mutex_);
    changed_.merge(names);
    return read;
  }
  for (const v1::Job& job : jobs) moved = Take(job) || moved;
  return moved;
}

bool ActiveJobs::Take(const v1::Job& job) {
  if (IsFinal(job.state())) return jobs_.erase(job.name()) > 0;
  const auto [place, is_new] = jobs_.try_emplace(job.name());
  ActiveJob now = AsActive(job);
  const bool moved =
      is_new || place->second.state != now.state || (now.version != place->second.version && !HoldsLease(now.state));
  place->second = std::move(now);
  return moved;
}

const ActiveJob* ActiveJobs::Find(const std::string& job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? nullptr : &found->second;
}

}  // namespace legoai::server

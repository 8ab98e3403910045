#include "server/fleet/active_jobs.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "proto/status.h"
#include "server/jobs/transition.h"

namespace legoai::server {
namespace {

std::string_view Id(std::string_view name) { return name.substr(name.rfind('/') + 1); }

// `paced`: seconds from one step's report to the next one's, on average; 0: not known. What is lost with an attempt is done
// again, as slowly as is predicted now or was measured before.
std::optional<absl::Duration> TimeLeft(const v1::Job& job, double paced) {
  const bool runs = job.state() == v1::RUNNING;
  const int64_t saved = job.has_committed_step() ? job.committed_step() : job.starts_from().step();
  const int64_t done = runs ? job.progress().step() : saved;
  const int64_t steps = job.spec().recipe().training().steps() - done;
  const double each = std::max(job.progress().step_seconds(), runs ? paced : job.chosen().step_time_seconds());
  if (!(each > 0) || steps < 0) return std::nullopt;
  return absl::Seconds(each * static_cast<double>(steps));
}

// Seconds a step between two reports.
double Pace(const v1::Job& job, const ActiveJob& now) {
  const int64_t steps = job.progress().step() - now.first_step;
  if (now.first_report_us == 0 || steps <= 0) return 0;
  return static_cast<double>(job.progress().update_time_us() - now.first_report_us) / 1e6 / static_cast<double>(steps);
}

// What its trainers are to do. A cancellation that an earlier release has stored says nothing of it: they stop at once.
std::optional<v1::StopRequest> StopOf(const v1::Job& job) {
  if (!job.has_stop() && job.state() != v1::CANCELLING) return std::nullopt;
  v1::StopRequest stop = job.stop();
  if (!job.has_stop()) stop.set_reason(job.reason());
  return stop;
}

ActiveJob AsActive(const v1::Job& job) {
  return {.name = job.name(),
          .state = job.state(),
          .version = job.version(),
          .epoch = job.epoch(),
          .reason = job.reason(),
          .wanted = job.spec().resources(),
          .world_size = job.world_size(),
          .workers = std::max<int64_t>(1, job.worker_count()),
          .priority = job.spec().policy().priority(),
          .submitted_us = job.create_time_us(),
          .stop = StopOf(job),
          .not_before_us = job.not_before_time_us()};
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
  const MutexLock lock(mutex_);
  changed_.insert(job);
}

absl::StatusOr<bool> ActiveJobs::Refresh() {
  std::set<std::string> names;
  {
    const MutexLock lock(mutex_);
    names.swap(changed_);
  }
  bool moved = std::exchange(begun_anew_, false);
  if (names.empty()) return moved;
  std::vector<v1::Job> jobs;
  const absl::Status read = store_->Read([&](store::ReadTransaction& transaction) -> absl::Status {
    for (const std::string& name : names) {
      ASSIGN_OR_RETURN(auto job, transaction.GetJob(name));
      if (job) jobs.push_back(*std::move(job));
    }
    return absl::OkStatus();
  });
  if (!read.ok()) {
    begun_anew_ = moved;
    const MutexLock lock(mutex_);
    changed_.merge(names);
    return read;
  }
  for (const v1::Job& job : jobs) moved = Take(job) || moved;
  return moved;
}

void ActiveJobs::Measure(const v1::Job& job, const ActiveJob& before, ActiveJob* now) {
  if (before.epoch == now->epoch) {
    now->leased_us = before.leased_us;
    now->first_step = before.first_step, now->first_report_us = before.first_report_us;
  }
  if (job.state() == v1::LEASED && now->leased_us == 0) now->leased_us = job.update_time_us();
  if (job.state() == v1::RUNNING && now->first_report_us == 0) {
    now->first_step = job.progress().step(), now->first_report_us = job.progress().update_time_us();
    if (now->leased_us > 0) {
      longest_start_ = std::max(longest_start_, absl::Microseconds(now->first_report_us - now->leased_us));
    }
  }
  now->time_left = TimeLeft(job, Pace(job, *now));
}

bool ActiveJobs::Take(const v1::Job& job) {
  if (IsFinal(job.state())) return jobs_.erase(job.name()) > 0;
  const auto [place, is_new] = jobs_.try_emplace(job.name());
  ActiveJob now = AsActive(job);
  Measure(job, place->second, &now);
  const bool moved =
      is_new || place->second.state != now.state || (now.version != place->second.version && !HoldsLease(now.state));
  place->second = std::move(now);
  return moved;
}

const ActiveJob* ActiveJobs::Find(const std::string& job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? nullptr : &found->second;
}

std::vector<std::string> WaitReasons::Replace(Waits waits) {
  std::vector<std::string> changed;
  const MutexLock lock(mutex_);
  for (const auto& [job, wait] : waits) {
    const auto before = waits_.find(job);
    if (before == waits_.end() || before->second != wait) changed.push_back(job);
  }
  for (const auto& [job, wait] : waits_) {
    if (waits.count(job) == 0) changed.push_back(job);
  }
  waits_ = std::move(waits);
  return changed;
}

bool WaitReasons::Describe(v1::Job* job) const {
  const MutexLock lock(mutex_);
  const auto found = waits_.find(job->name());
  if (found == waits_.end() || found->second.version != job->version()) return false;
  job->set_reason(found->second.reason);
  if (found->second.position > 0) job->set_queue_position(found->second.position);
  return true;
}

}  // namespace legoai::server

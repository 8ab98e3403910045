#include "server/fleet/plans_under_way.h"

#include <future>

#include "absl/strings/str_cat.h"

namespace legoai::server {

std::shared_ptr<const std::atomic<bool>> PlansUnderWay::Add(const std::string& job, const v1::Cluster& cluster,
                                                            const std::string& keeps) {
  const MutexLock lock(mutex_);
  Plan& plan = plans_[job] = Plan();
  plan.cluster = cluster;
  plan.keeps = keeps;
  *plan.cancelled = ending_;
  return plan.cancelled;
}

bool PlansUnderWay::SetResult(const std::string& job, absl::StatusOr<v1::PlanResult> result) {
  const MutexLock lock(mutex_);
  const auto found = plans_.find(job);
  if (ending_ || found == plans_.end()) return false;
  found->second.result = std::move(result);
  return true;
}

void PlansUnderWay::Erase(const std::string& job) {
  const MutexLock lock(mutex_);
  plans_.erase(job);
}

std::vector<PlansUnderWay::Ended> PlansUnderWay::WithResults() const {
  const MutexLock lock(mutex_);
  std::vector<Ended> ended;
  for (const auto& [job, plan] : plans_) {
    if (plan.result) ended.push_back({job, plan.cluster, *plan.result});
  }
  return ended;
}

bool PlansUnderWay::IsBusy(const std::function<bool(const std::string& job)>& is_planned) {
  const MutexLock lock(mutex_);
  bool busy = false;
  for (const auto& [job, plan] : plans_) {
    if (!is_planned(job)) *plan.cancelled = true;
    busy = busy || !(*plan.cancelled || plan.result);
  }
  return busy;
}

std::map<std::string, int64_t> PlansUnderWay::KeptSlots() const {
  const MutexLock lock(mutex_);
  std::map<std::string, int64_t> kept;
  for (const auto& [job, plan] : plans_) {
    if (!*plan.cancelled && !plan.keeps.empty()) kept[plan.keeps] += plan.cluster.devices_per_node();
  }
  return kept;
}

void PlansUnderWay::End() {
  const MutexLock lock(mutex_);
  ending_ = true;
  for (const auto& [job, plan] : plans_) *plan.cancelled = true;
}

Planning::Planning(std::function<std::unique_ptr<planner::Estimator>()> make)
    : make_(std::move(make)), thread_([this] { Work(); }) {}

Planning::~Planning() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

bool Planning::ending() const {
  const MutexLock lock(mutex_);
  return ending_;
}

absl::Status Planning::Enqueue(Task task, bool always) {
  {
    const MutexLock lock(mutex_);
    if (ending_) return absl::CancelledError("the server is ending");
    if (!always && static_cast<int64_t>(tasks_.size()) >= kMostWaiting) {
      return absl::ResourceExhaustedError(absl::StrCat(
          tasks_.size(), " plans and simulations wait already: try again later, or run `lego plan` without --server"));
    }
    tasks_.push_back(std::move(task));
  }
  changed_.NotifyAll();
  return absl::OkStatus();
}

// Tasks that still wait when the server ends run too: each sees that it is cancelled, and answers whoever waits.
void Planning::Work() {
  const std::unique_ptr<planner::Estimator> estimator = make_();
  while (true) {
    Task task;
    {
      MutexLock lock(mutex_);
      while (!ending_ && tasks_.empty()) changed_.Wait(lock);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task(*estimator);
  }
}

void Planning::PlanLater(const v1::PlanRequest& request, const Progress& progress, const Cancel& cancel,
                         std::function<void(absl::StatusOr<v1::PlanResult>)> done) {
  const auto cancelled = [this, cancel] { return ending() || (cancel && cancel()); };
  const absl::Status queued = Enqueue(
      [=](planner::Estimator& estimator) {
        done(cancelled() ? absl::CancelledError("cancelled") : planner::Plan(request, estimator, progress, cancelled));
      },
      /*always=*/true);
  if (!queued.ok()) done(queued);
}

absl::StatusOr<v1::PlanResult> Planning::Plan(const v1::PlanRequest& request, const Progress& progress, const Cancel& cancel) {
  std::promise<absl::StatusOr<v1::PlanResult>> answer;
  const auto cancelled = [&] { return ending() || (cancel && cancel()); };
  const absl::Status queued = Enqueue(
      [&](planner::Estimator& estimator) {
        answer.set_value(cancelled() ? absl::CancelledError("the caller has left")
                                     : planner::Plan(request, estimator, progress, cancelled));
      },
      /*always=*/false);
  return queued.ok() ? answer.get_future().get() : queued;
}

absl::StatusOr<v1::Estimate> Planning::Simulate(const v1::SimRequest& request, const Cancel& cancel) {
  std::promise<absl::StatusOr<v1::Estimate>> answer;
  const auto cancelled = [&] { return ending() || (cancel && cancel()); };
  const absl::Status queued = Enqueue(
      [&](planner::Estimator& estimator) {
        answer.set_value(cancelled() ? absl::CancelledError("the caller has left")
                                     : planner::EstimateOne(request, estimator, cancelled));
      },
      /*always=*/false);
  return queued.ok() ? answer.get_future().get() : queued;
}

}  // namespace legoai::server

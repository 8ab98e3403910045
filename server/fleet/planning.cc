#include "server/fleet/planning.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/status.h"

namespace legoai::server {
namespace {

// The group of users' calls; projects' names are not empty.
constexpr char kCalls[] = "";

}  // namespace

// Counts one call of a user while it lives.
class Planning::Call {
 public:
  explicit Call(Planning& planning) : planning_(planning) {
    const MutexLock lock(planning_.mutex_);
    const int64_t others = planning_.calls_++;
    if (planning_.ending_) {
      status_ = absl::CancelledError("the server is ending");
    } else if (others >= kMostCalls) {
      status_ = absl::ResourceExhaustedError(absl::StrCat(
          others, " plans and simulations are under way already: try again later, or run `lego plan` without --server"));
    }
  }
  ~Call() {
    const MutexLock lock(planning_.mutex_);
    --planning_.calls_;
    planning_.changed_.NotifyAll();  // under the lock: who waits for the last call ends the planning
  }
  const absl::Status& status() const { return status_; }

 private:
  Planning& planning_;
  absl::Status status_;
};

Planning::Planning(std::function<std::unique_ptr<planner::Estimator>()> make, int64_t processes)
    : simulators_(std::move(make), processes) {
  for (int64_t i = 0; i < kMostJobs; ++i) threads_.emplace_back([this] { Work(); });
}

Planning::~Planning() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
  MutexLock lock(mutex_);
  while (calls_ > 0) changed_.Wait(lock);
}

bool Planning::ending() const {
  const MutexLock lock(mutex_);
  return ending_;
}

// Tasks that still wait when the server ends run too: each sees that it is cancelled, and answers whoever waits.
void Planning::Work() {
  while (true) {
    std::function<void()> task;
    {
      MutexLock lock(mutex_);
      while (!ending_ && tasks_.empty()) changed_.Wait(lock);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

void Planning::PlanLater(const std::string& project, const v1::PlanRequest& request, const Progress& progress,
                         const Cancel& cancel, std::function<void(absl::StatusOr<v1::PlanResult>)> done) {
  const auto cancelled = [this, cancel] { return ending() || (cancel && cancel()); };
  auto task = [=, this] {
    if (cancelled()) return done(absl::CancelledError("cancelled"));
    const auto share = simulators_.Share(project);
    done(planner::Plan(request, *share, progress, cancelled, [&share] { return share->Clock(); }));
  };
  {
    const MutexLock lock(mutex_);
    if (!ending_) {
      tasks_.push_back(std::move(task));
      changed_.NotifyAll();
      return;
    }
  }
  done(absl::CancelledError("the server is ending"));
}

absl::StatusOr<v1::PlanResult> Planning::Plan(const v1::PlanRequest& request, const Progress& progress, const Cancel& cancel) {
  const Call call(*this);
  RETURN_IF_ERROR(call.status());
  const auto share = simulators_.Share(kCalls);
  const auto cancelled = [&] { return ending() || (cancel && cancel()); };
  return planner::Plan(request, *share, progress, cancelled, [&share] { return share->Clock(); });
}

absl::StatusOr<v1::Estimate> Planning::Simulate(const v1::SimRequest& request, const Cancel& cancel) {
  const Call call(*this);
  RETURN_IF_ERROR(call.status());
  const auto share = simulators_.Share(kCalls);
  return planner::EstimateOne(request, *share, [&] { return ending() || (cancel && cancel()); });
}

}  // namespace legoai::server

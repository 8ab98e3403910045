// How planning goes on is seen by whoever watches the job: from the planner through controller and notifier to the answer.
#include <gtest/gtest.h>

#include <chrono>
#include <optional>

#include "absl/time/clock.h"
#include "core/process/mutex.h"
#include "server/fleet/testing/fleet_fixture.h"
#include "server/rpc/control_plane.h"

namespace legoai::server {
namespace {

// As a watch's stream does: it looks again whenever the notifier says so.
class Watch {
 public:
  Watch(ControlPlane* control, const std::string& job) : control_(control) {
    request_.set_name(job);
    subscription_ = control->notifier().Subscribe(job, [this] {
      const MutexLock lock(mutex_);
      woken_ = true;
      changed_.NotifyAll();
    });
  }
  // The next answer for which `wanted` holds; fails the test after a minute.
  v1::WatchJobResponse Next(const std::function<bool(const v1::WatchJobResponse&)>& wanted) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (true) {
      const auto news = control_->PollJob(request_, &seen_);
      EXPECT_TRUE(news.ok()) << news.status();
      if (news.ok() && *news) {
        request_.set_after_version((*news)->job().version());
        if (wanted(**news)) return **news;
        continue;
      }
      MutexLock lock(mutex_);
      while (news.ok() && !woken_ && changed_.WaitUntil(lock, deadline)) {
      }
      if (!news.ok() || !woken_) {
        ADD_FAILURE() << "the watch is not told of it";
        return v1::WatchJobResponse();
      }
      woken_ = false;
    }
  }

 private:
  ControlPlane* const control_;
  v1::WatchJobRequest request_;
  WatchState seen_;
  Mutex mutex_;
  Condition changed_;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<Notifier::Subscription> subscription_;  // last: it uses the rest
};

TEST_F(FleetTest, AWatchSeesHowThePlanningOfAJobGoesOn) {
  ControlPlane control(store_.get(), controller_.get(), &notifier_, [] { return absl::ToUnixMicros(absl::Now()); });
  hold_plans_ = true;
  TestAgent agent("a");
  const std::string job = Submit(2);
  Watch watch(&control, job);
  Connect(&agent);
  const v1::WatchJobResponse news = watch.Next([](const auto& response) { return response.has_planning(); });
  EXPECT_EQ(news.job().state(), v1::PLANNING);
  EXPECT_GT(news.planning().space(), 0);
  EXPECT_GT(news.planning().to_capture(), 0);
  EXPECT_EQ(news.planning().captured(), 0) << "the estimator has not answered";
  hold_plans_ = false;
  const auto planned = watch.Next([](const auto& response) { return response.job().state() != v1::PLANNING; });
  EXPECT_FALSE(planned.has_planning());
  EXPECT_FALSE(notifier_.Planning(job).has_value());
  agent.link.NextStart();  // nothing more is said to it
}

}  // namespace
}  // namespace legoai::server

// A watch with a clock, a pool and a client that do as they are told.
#include "server/rpc/job_watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "proto/testing/seeded_random.h"
#include "server/jobs/transition.h"
#include "server/rpc/thread_pool.h"

namespace legoai::server {
namespace {

using Clock = JobWatchSource::Clock;
constexpr char kJob[] = "projects/default/jobs/01J";
constexpr Clock::duration kAtOnce{};

class JobWatchTest : public ::testing::Test, public JobWatchSink {
 protected:
  struct Posted {
    std::function<void()> work;
    Clock::duration after;
  };

  void Begin(int64_t after_version = 0, const absl::Status& admitted = absl::OkStatus()) {
    v1::WatchJobRequest request;
    request.set_name(kJob);
    request.set_after_version(after_version);
    watch_ = std::make_unique<JobWatch>(&source_, request, this);
    watch_->Begin(admitted);
  }
  void SetJob(int64_t version, v1::JobState state = v1::RUNNING) {
    version_ = version;
    state_ = state;
    notifier_.JobChanged(kJob);
  }
  // The one piece of work that was posted, and is due `after`.
  void RunPoll(Clock::duration after = kAtOnce) {
    ASSERT_EQ(posted_.size(), 1u);
    const Posted first = std::move(posted_.front());
    posted_.pop_front();
    EXPECT_EQ(first.after, after);
    now_ += first.after;
    first.work();
  }
  // What the service answers: what is newer than the client has it, and a final job always.
  absl::StatusOr<std::optional<v1::WatchJobResponse>> Poll(const v1::WatchJobRequest& request) {
    ++polls_;
    if (!failure_.ok()) return failure_;
    if (version_ == request.after_version() && !IsFinal(state_)) return std::nullopt;
    v1::WatchJobResponse response;
    response.mutable_job()->set_version(version_);
    response.mutable_job()->set_state(state_);
    return response;
  }

  void NothingNew() override { calls_.push_back("nothing new"); }
  void Send(v1::WatchJobResponse response) override { calls_.push_back("version " + std::to_string(response.job().version())); }
  void Finish(const absl::Status& status) override { calls_.push_back(absl::StatusCodeToString(status.code())); }
  // What the client was sent since it was last asked.
  std::vector<std::string> Calls() { return std::exchange(calls_, {}); }
  using Texts = std::vector<std::string>;

  Notifier notifier_;
  JobWatchSource source_{.poll = [this](const auto& request, WatchState*) { return Poll(request); },
                         .notifier = &notifier_,
                         .post = [this](auto work, auto after) { posted_.push_back({std::move(work), after}); },
                         .now = [this] { return now_; }};
  Clock::time_point now_ = Clock::now();
  int64_t version_ = 1;
  v1::JobState state_ = v1::RUNNING;
  absl::Status failure_;
  int polls_ = 0;
  std::deque<Posted> posted_;
  Texts calls_;
  std::unique_ptr<JobWatch> watch_;
};

TEST_F(JobWatchTest, SendsWhatIsNewAndEndsAfterAFinalState) {
  Begin();
  RunPoll();
  EXPECT_EQ(Calls(), Texts{"version 1"});
  watch_->Sent(true);
  EXPECT_TRUE(posted_.empty()) << "nothing has changed";
  SetJob(2);
  RunPoll(ControlPlane::kMinPollInterval);
  EXPECT_EQ(Calls(), Texts{"version 2"});
  watch_->Sent(true);
  SetJob(3, v1::SUCCEEDED);
  RunPoll(ControlPlane::kMinPollInterval);
  EXPECT_EQ(Calls(), Texts{"version 3"});
  watch_->Sent(true);
  EXPECT_EQ(Calls(), Texts{"OK"});
  SetJob(4);
  watch_->End(absl::UnavailableError("later"));
  EXPECT_TRUE(posted_.empty());
  EXPECT_TRUE(Calls().empty());
}

TEST_F(JobWatchTest, GoesOnWhereTheClientWas) {
  Begin(/*after_version=*/1);
  RunPoll();
  EXPECT_EQ(Calls(), Texts{"nothing new"}) << "the client hears that there is such a job";
  SetJob(2);
  RunPoll(ControlPlane::kMinPollInterval);
  EXPECT_EQ(Calls(), Texts{"version 2"});
  watch_->Sent(true);
  notifier_.JobChanged(kJob);
  RunPoll(ControlPlane::kMinPollInterval);
  EXPECT_TRUE(Calls().empty()) << "it hears so once";
}

TEST_F(JobWatchTest, WhoHasSeenTheFinalStateIsSentItAndTheEnd) {
  SetJob(7, v1::FAILED);
  Begin(/*after_version=*/7);
  RunPoll();
  watch_->Sent(true);
  EXPECT_EQ(Calls(), (Texts{"version 7", "OK"}));
}

TEST_F(JobWatchTest, PollsAreApartAndMissNothing) {
  Begin();
  SetJob(2);  // between the subscription and the first poll
  SetJob(3);
  RunPoll();
  EXPECT_EQ(Calls(), Texts{"version 3"});
  watch_->Sent(true);
  now_ += ControlPlane::kMinPollInterval / 4;
  for (int version = 4; version < 100; ++version) SetJob(version);
  RunPoll(ControlPlane::kMinPollInterval * 3 / 4);
  EXPECT_EQ(Calls(), Texts{"version 99"});
  EXPECT_EQ(polls_, 2);
  watch_->Sent(true);
  now_ += 2 * ControlPlane::kMinPollInterval;
  SetJob(100);
  RunPoll(kAtOnce);
}

TEST_F(JobWatchTest, ASlowClientGetsTheNewestStateWhenItHasTakenTheLast) {
  Begin();
  RunPoll();
  for (int version = 2; version < 50; ++version) SetJob(version);
  now_ += std::chrono::hours(1);
  EXPECT_TRUE(posted_.empty()) << "no poll for a client that does not read";
  EXPECT_EQ(Calls(), Texts{"version 1"});
  watch_->Sent(true);
  RunPoll();
  EXPECT_EQ(Calls(), Texts{"version 49"});
}

TEST_F(JobWatchTest, AnErrorOfAPollEndsIt) {
  failure_ = absl::NotFoundError("there is no such job");
  Begin();
  RunPoll();
  EXPECT_EQ(Calls(), Texts{"NOT_FOUND"});
}

TEST_F(JobWatchTest, WhoIsNotAdmittedIsToldSoAtOnce) {
  Begin(0, absl::ResourceExhaustedError("too many"));
  EXPECT_EQ(Calls(), Texts{"RESOURCE_EXHAUSTED"});
  SetJob(2);
  EXPECT_TRUE(posted_.empty());
}

TEST_F(JobWatchTest, AClientThatLeavesEndsIt) {
  Begin();
  RunPoll();
  watch_->Sent(false);
  EXPECT_EQ(Calls(), (Texts{"version 1", "CANCELLED"}));
  EXPECT_TRUE(posted_.empty());
}

TEST_F(JobWatchTest, TheEndWaitsForWhatIsUnderWay) {
  Begin();
  watch_->End(absl::UnavailableError("the server stops"));
  EXPECT_TRUE(Calls().empty()) << "a poll is in progress";
  RunPoll();
  EXPECT_EQ(Calls(), Texts{"UNAVAILABLE"});
  EXPECT_EQ(polls_, 0);

  Begin();
  RunPoll();
  watch_->End(absl::UnavailableError("the server stops"));
  watch_->End(absl::CancelledError("the client has left"));
  EXPECT_EQ(Calls(), Texts{"version 1"}) << "a message is in progress";
  watch_->Sent(true);
  EXPECT_EQ(Calls(), Texts{"UNAVAILABLE"}) << "the first error counts";
}

TEST_F(JobWatchTest, TheEndOfOneThatWaitsIsPosted) {
  Begin();
  RunPoll();
  watch_->Sent(true);
  Calls();
  watch_->End(absl::UnavailableError("the server stops"));
  EXPECT_TRUE(Calls().empty()) << "End must not block on the client";
  RunPoll(ControlPlane::kMinPollInterval);
  EXPECT_EQ(Calls(), Texts{"UNAVAILABLE"});
  EXPECT_EQ(polls_, 1);
}

// Real threads: the job changes, clients take their time and leave, the server ends watches; each finishes once, and what it was
// sent ascends.
class Client : public JobWatchSink {
 public:
  Client(const JobWatchSource* source, WorkQueue* queue, uint64_t seed) : queue_(queue), random_(seed) {
    v1::WatchJobRequest request;
    request.set_name(kJob);
    watch_ = std::make_unique<JobWatch>(source, request, this);
    watch_->Begin(absl::OkStatus());
  }
  void End() { watch_->End(absl::UnavailableError("the server stops")); }
  bool finished() const { return finished_; }

 private:
  void Send(v1::WatchJobResponse response) override {
    EXPECT_FALSE(finished_);
    EXPECT_GT(response.job().version(), version_);
    version_ = response.job().version();
    const bool leaves = random_() % 50 == 0;
    queue_->Post([this, leaves] { watch_->Sent(!leaves); }, std::chrono::microseconds(random_() % 2000));
  }
  void Finish(const absl::Status& status) override {
    if (status.ok()) {
      EXPECT_EQ(version_, 1000);
    }
    EXPECT_FALSE(finished_.exchange(true));  // then it may be destroyed
  }

  WorkQueue* const queue_;
  std::mt19937_64 random_;
  int64_t version_ = 0;
  std::atomic<bool> finished_ = false;
  std::unique_ptr<JobWatch> watch_;
};

TEST(JobWatch, EachFinishesOnce) {
  SeededRandom random;
  Notifier notifier;
  std::atomic<int64_t> version = 1;
  ThreadPool pool(4);
  WorkQueue queue(&pool, 4, SIZE_MAX);
  const JobWatchSource source{.poll = [&](const auto& request, WatchState*) -> std::optional<v1::WatchJobResponse> {
                                const int64_t now = version;
                                if (now == request.after_version()) return std::nullopt;
                                v1::WatchJobResponse response;
                                response.mutable_job()->set_version(now);
                                response.mutable_job()->set_state(now == 1000 ? v1::SUCCEEDED : v1::RUNNING);
                                return response;
                              },
                              .notifier = &notifier,
                              .post = [&](auto work, auto after) { queue.Post(std::move(work), after / 100); }};
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 50; ++i) clients.push_back(std::make_unique<Client>(&source, &queue, random()));
  while (version < 1000) {
    ++version;
    notifier.JobChanged(kJob);
    if (random() % 100 == 0) clients[random() % clients.size()]->End();
    if (random() % 10 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  for (const auto& client : clients) {
    while (!client->finished()) std::this_thread::yield();
  }
}

}  // namespace
}  // namespace legoai::server

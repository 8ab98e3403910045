#include "server/rpc/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

namespace legoai::server {
namespace {

TEST(WorkQueue, DoesEverythingOnce) {
  std::atomic<int> done = 0;
  int taken = 0;
  {
    ThreadPool pool(4);
    WorkQueue queue(&pool, 4, 10000);
    for (int i = 0; i < 5000; ++i) taken += queue.Post([&] { ++done; });
  }
  EXPECT_EQ(taken, 5000);
  EXPECT_EQ(done, 5000);
}

TEST(WorkQueue, RefusesWhatIsTooMuchAndTakesMoreLater) {
  std::promise<void> go, started;
  std::atomic<int> done = 0;
  ThreadPool pool(1);
  WorkQueue queue(&pool, 1, 2);
  ASSERT_TRUE(queue.Post([&] {
    started.set_value();
    go.get_future().wait();
  }));
  started.get_future().wait();
  EXPECT_TRUE(queue.Post([&] { ++done; }));
  std::promise<void> last;
  EXPECT_TRUE(queue.Post([&] { last.set_value(); }));
  EXPECT_FALSE(queue.Post([&] { ++done; }));
  go.set_value();
  last.get_future().wait();
  EXPECT_EQ(done, 1);
  std::promise<void> later;
  EXPECT_TRUE(queue.Post([&] { later.set_value(); }));
  later.get_future().wait();
}

TEST(WorkQueue, WorkIsDoneWhenItIsDueAndHoldsUpNothing) {
  using Clock = WorkQueue::Clock;
  constexpr auto kSoon = std::chrono::milliseconds(30);
  std::vector<std::string> done;
  std::promise<void> came;
  Clock::time_point due, at;
  {
    ThreadPool pool(1);
    WorkQueue queue(&pool, 1, 10);
    queue.Post([&] { done.push_back("at the end"); }, std::chrono::hours(1));
    due = Clock::now() + kSoon;
    queue.Post(
        [&] {
          at = Clock::now();
          done.push_back("soon");
          came.set_value();
        },
        kSoon);
    queue.Post([&] { done.push_back("at once"); });
    came.get_future().wait();
  }
  EXPECT_GE(at, due);
  EXPECT_EQ(done.size(), 3u);
  EXPECT_EQ(done.back(), "at the end");
}

TEST(WorkQueue, StopDropsWhatWaitsAndTakesNothingMore) {
  std::promise<void> begun, go;
  std::atomic<bool> dropped_ran = false, ended = false;
  ThreadPool pool(1);
  WorkQueue queue(&pool, 1, SIZE_MAX);
  queue.Post([&] {
    begun.set_value();
    go.get_future().wait();
    ended = true;
  });
  begun.get_future().wait();
  queue.Post([&] { dropped_ran = true; });
  std::thread stop([&] { queue.Stop(); });
  while (queue.Post([&] { dropped_ran = true; })) std::this_thread::yield();  // until it has begun to stop
  go.set_value();
  stop.join();
  EXPECT_TRUE(ended) << "what runs is waited for";
  EXPECT_FALSE(dropped_ran);
}

TEST(WorkQueue, ThreadsWorkAtTheSameTime) {
  std::atomic<int> inside = 0;
  std::promise<void> all;
  ThreadPool pool(3);
  WorkQueue queue(&pool, 3, 10);
  for (int i = 0; i < 3; ++i) {
    queue.Post([&] {
      if (++inside == 3) all.set_value();
      while (inside < 3) std::this_thread::yield();
    });
  }
  all.get_future().wait();
  EXPECT_EQ(inside, 3);
}

TEST(ThreadPool, AQueueTakesItsShareAndLeavesThreadsToTheOthers) {
  std::promise<void> go;
  const std::shared_future<void> gone = go.get_future().share();
  std::atomic<int> inside = 0, most_inside = 0, slow_done = 0;
  ThreadPool pool(3);
  WorkQueue slow(&pool, 2, 100), quick(&pool, 3, 100);
  for (int i = 0; i < 10; ++i) {
    slow.Post([&] {
      most_inside = std::max<int>(most_inside, ++inside);
      gone.wait();
      --inside;
      ++slow_done;
    });
  }
  while (inside < 2) std::this_thread::yield();
  // One thread is left, and does all of it however long the slow work takes.
  std::atomic<int> quick_done = 0;
  for (int i = 0; i < 50; ++i) quick.Post([&] { ++quick_done; });
  while (quick_done < 50) std::this_thread::yield();
  EXPECT_EQ(slow_done, 0);
  go.set_value();
  while (slow_done < 10) std::this_thread::yield();
  EXPECT_LE(most_inside, 2);
}

TEST(ThreadPool, AQueueThatStopsOrEndsLeavesTheOthersAlone) {
  std::promise<void> begun, go, later;
  ThreadPool pool(2);
  WorkQueue one(&pool, 1, 10);
  one.Post([&] {
    begun.set_value();
    go.get_future().wait();
  });
  begun.get_future().wait();
  std::atomic<bool> waits = false;
  one.Post([&] { waits = true; });
  {
    WorkQueue stops(&pool, 1, 10), ends(&pool, 1, 10);
    stops.Post([] {}, std::chrono::hours(1));
    stops.Stop();
    EXPECT_FALSE(stops.Post([] {}));
    ends.Post([&] { later.set_value(); }, std::chrono::hours(1));
  }
  later.get_future().wait();  // the end of a queue waits for its own work alone
  EXPECT_FALSE(waits);
  go.set_value();
  while (!waits) std::this_thread::yield();
}

}  // namespace
}  // namespace legoai::server

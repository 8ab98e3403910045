#include "server/rpc/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <vector>

namespace legoai::server {
namespace {

TEST(ThreadPool, DoesEverythingOnce) {
  std::atomic<int> done = 0;
  int taken = 0;
  {
    ThreadPool pool(4, 10000);
    for (int i = 0; i < 5000; ++i) taken += pool.Post([&] { ++done; });
  }
  EXPECT_EQ(taken, 5000);
  EXPECT_EQ(done, 5000);
}

TEST(ThreadPool, RefusesWhatIsTooMuchAndTakesMoreLater) {
  std::promise<void> go, started;
  std::atomic<int> done = 0;
  ThreadPool pool(1, 2);
  ASSERT_TRUE(pool.Post([&] {
    started.set_value();
    go.get_future().wait();
  }));
  started.get_future().wait();
  EXPECT_TRUE(pool.Post([&] { ++done; }));
  std::promise<void> last;
  EXPECT_TRUE(pool.Post([&] { last.set_value(); }));
  EXPECT_FALSE(pool.Post([&] { ++done; }));
  go.set_value();
  last.get_future().wait();
  EXPECT_EQ(done, 1);
  std::promise<void> later;
  EXPECT_TRUE(pool.Post([&] { later.set_value(); }));
  later.get_future().wait();
}

TEST(ThreadPool, WorkIsDoneWhenItIsDueAndHoldsUpNothing) {
  using Clock = ThreadPool::Clock;
  constexpr auto kSoon = std::chrono::milliseconds(30);
  std::vector<std::string> done;
  std::promise<void> came;
  Clock::time_point due, at;
  {
    ThreadPool pool(1, 10);
    pool.Post([&] { done.push_back("at the end"); }, std::chrono::hours(1));
    due = Clock::now() + kSoon;
    pool.Post(
        [&] {
          at = Clock::now();
          done.push_back("soon");
          came.set_value();
        },
        kSoon);
    pool.Post([&] { done.push_back("at once"); });
    came.get_future().wait();
  }
  EXPECT_GE(at, due);
  EXPECT_EQ(done.size(), 3u);
  EXPECT_EQ(done.back(), "at the end");
}

TEST(ThreadPool, StopDropsWhatWaitsAndTakesNothingMore) {
  std::promise<void> begun, go;
  std::atomic<bool> dropped_ran = false, ended = false;
  ThreadPool pool(1, SIZE_MAX);
  pool.Post([&] {
    begun.set_value();
    go.get_future().wait();
    ended = true;
  });
  begun.get_future().wait();
  pool.Post([&] { dropped_ran = true; });
  std::thread stop([&] { pool.Stop(); });
  while (pool.Post([&] { dropped_ran = true; })) std::this_thread::yield();  // until it has begun to stop
  go.set_value();
  stop.join();
  EXPECT_TRUE(ended) << "what runs is waited for";
  EXPECT_FALSE(dropped_ran);
}

TEST(ThreadPool, ThreadsWorkAtTheSameTime) {
  std::atomic<int> inside = 0;
  std::promise<void> all;
  ThreadPool pool(3, 10);
  for (int i = 0; i < 3; ++i) {
    pool.Post([&] {
      if (++inside == 3) all.set_value();
      while (inside < 3) std::this_thread::yield();
    });
  }
  all.get_future().wait();
  EXPECT_EQ(inside, 3);
}

}  // namespace
}  // namespace legoai::server

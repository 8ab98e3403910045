#include "core/process/mutex.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace legoai {
namespace {

class Counter {
 public:
  void Add() {
    MutexLock lock(mutex_);
    ++count_;
    grown_.NotifyAll();
  }
  void Await(int64_t count) {
    MutexLock lock(mutex_);
    while (count_ < count) grown_.Wait(lock);
  }
  bool AwaitFor(int64_t count, std::chrono::milliseconds time) {
    const auto deadline = std::chrono::steady_clock::now() + time;
    MutexLock lock(mutex_);
    while (count_ < count) {
      if (!grown_.WaitUntil(lock, deadline)) return count_ >= count;
    }
    return true;
  }

 private:
  Mutex mutex_;
  Condition grown_;
  int64_t count_ ABSL_GUARDED_BY(mutex_) = 0;
};

TEST(Mutex, NothingIsLostBetweenThreads) {
  constexpr int64_t kThreads = 4, kEach = 10'000;
  Counter counter;
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int64_t n = 0; n < kEach; ++n) counter.Add();
    });
  }
  counter.Await(kThreads * kEach);
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(counter.AwaitFor(kThreads * kEach, std::chrono::milliseconds(0)));
}

TEST(Mutex, WaitsEndWithTheirTime) {
  Counter counter;
  EXPECT_FALSE(counter.AwaitFor(1, std::chrono::milliseconds(5)));
}

TEST(Mutex, IsFreeBetweenUnlockAndLock) {
  Mutex mutex;
  MutexLock lock(mutex);
  lock.Unlock();
  std::thread other([&] { MutexLock mine(mutex); });
  other.join();
  lock.Lock();
}

}  // namespace
}  // namespace legoai

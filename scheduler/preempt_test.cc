// Against all sets of running jobs.
#include "scheduler/preempt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace legoai::scheduler {
namespace {

int64_t Uniform(std::mt19937& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

Snapshot RandomSnapshot(std::mt19937& random) {
  Snapshot snapshot;
  for (int i = 0; i < 4; ++i) {
    WorkerView worker;
    worker.name = "w" + std::to_string(i);
    worker.pool = "default";
    worker.slots = worker.free = Uniform(random, 1, 4);
    worker.accepts = Uniform(random, 0, 5) > 0;
    worker.gang = worker.kind = Uniform(random, 0, 2) == 0 ? "x" : "y";
    snapshot.workers.push_back(worker);
  }
  for (int i = 0; i < 7; ++i) {
    RunningJob job;
    job.name = "r" + std::to_string(i);
    job.priority = Uniform(random, 0, 3);
    job.stopping = Uniform(random, 0, 5) == 0;
    for (WorkerView& worker : snapshot.workers) {
      if (worker.free == 0 || Uniform(random, 0, 2) > 0) continue;
      job.slots[worker.name] = Uniform(random, 1, worker.free);
      worker.free -= job.slots[worker.name];
    }
    snapshot.running.push_back(job);
  }
  WaitingJob waiting;
  waiting.name = "j";
  waiting.pool = "default";
  waiting.priority = Uniform(random, 0, 4);
  waiting.slots = Uniform(random, 1, 4);
  waiting.workers = Uniform(random, 1, 3);
  snapshot.waiting.push_back(waiting);
  return snapshot;
}

// Whether the scheduler starts it once these, and those that stop already, are gone.
bool Starts(Snapshot snapshot, const std::set<std::string>& gone) {
  for (const RunningJob& job : snapshot.running) {
    if (!job.stopping && gone.count(job.name) == 0) continue;
    for (WorkerView& worker : snapshot.workers) {
      const auto slots = job.slots.find(worker.name);
      worker.free += slots == job.slots.end() ? 0 : slots->second;
    }
  }
  std::erase_if(snapshot.running, [&](const RunningJob& job) { return job.stopping || gone.count(job.name) > 0; });
  return !Schedule(absl::UnixEpoch(), snapshot).grants.empty();
}

int64_t LargestPriority(const Snapshot& snapshot, const std::set<std::string>& names) {
  int64_t largest = INT64_MIN;
  for (const RunningJob& job : snapshot.running) {
    if (names.count(job.name) > 0) largest = std::max(largest, job.priority);
  }
  return largest;
}

TEST(MakeRoom, StopsNoMoreThanNeededAndNoneOfAtLeastItsPriority) {
  const uint32_t first = std::random_device{}();
  std::printf("seed %u\n", first);
  int64_t made = 0, of_gangs = 0;
  for (uint32_t round = 0; round < 2000; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << first << ", round " << round);
    std::mt19937 random(first + round);
    const Snapshot snapshot = RandomSnapshot(random);
    const WaitingJob& job = snapshot.waiting[0];
    const std::vector<std::string> names = MakeRoom(snapshot, job);
    const std::set<std::string> chosen(names.begin(), names.end());
    ASSERT_EQ(chosen.size(), names.size());
    std::vector<std::string> smaller;  // all that may be stopped
    for (const RunningJob& one : snapshot.running) {
      if (!one.stopping && one.priority < job.priority) smaller.push_back(one.name);
    }
    for (const std::string& name : names) {
      EXPECT_EQ(std::count(smaller.begin(), smaller.end(), name), 1) << name;
      std::set<std::string> fewer = chosen;
      fewer.erase(name);
      EXPECT_FALSE(Starts(snapshot, fewer)) << name << " need not stop";
    }
    const bool needs_none = Starts(snapshot, {}), all_do = Starts(snapshot, {smaller.begin(), smaller.end()});
    ASSERT_EQ(names.empty(), needs_none || !all_do);
    if (names.empty()) continue;
    ++made, of_gangs += job.workers > 1;
    ASSERT_TRUE(Starts(snapshot, chosen));
    int64_t best = INT64_MAX;
    for (uint32_t set = 0; set < (1u << smaller.size()); ++set) {
      std::set<std::string> tried;
      for (size_t i = 0; i < smaller.size(); ++i) {
        if (set >> i & 1) tried.insert(smaller[i]);
      }
      if (LargestPriority(snapshot, tried) < best && Starts(snapshot, tried)) best = LargestPriority(snapshot, tried);
    }
    EXPECT_EQ(LargestPriority(snapshot, chosen), best);
    if (HasFailure()) return;
  }
  std::printf("%ld times room is made, %ld of them for gangs\n", static_cast<long>(made), static_cast<long>(of_gangs));
  EXPECT_GT(made, 200);
  EXPECT_GT(of_gangs, 50);
}

}  // namespace
}  // namespace legoai::scheduler

// Gangs: all slots or none, on workers that may train together, as near to each other as can be, and none starves. Against brute
// force on fleets that are small enough for it.
#include "scheduler/gang.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "scheduler/scheduler.h"

namespace legoai::scheduler {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1767225600);

WorkerView Worker(const std::string& name, int64_t slots, int64_t free, const std::vector<std::string>& place = {},
                  const std::string& gang = "x") {
  return {name, "default", "cpu", slots, free, true, gang, gang, place};
}

WaitingJob Gang(const std::string& name, int64_t workers, int64_t slots) {
  WaitingJob job;
  job.name = name;
  job.workers = workers;
  job.slots = slots;
  job.pool = "default";
  return job;
}

using Strings = std::vector<std::string>;

TEST(Gang, GetsAsMuchOfEachOfItsWorkersOrNothing) {
  const Decision none = Schedule(kNow, {{Worker("a", 2, 2), Worker("b", 2, 1), Worker("c", 2, 2)}, {Gang("j", 3, 2)}, {}});
  EXPECT_TRUE(none.grants.empty());
  ASSERT_EQ(none.waits.size(), 1);
  EXPECT_EQ(none.waits[0].why, Wait::Why::kBusy);
  EXPECT_EQ(none.waits[0].text,
            "2 slots are wanted on each of 3 workers that are alike, and so many are free on at most 2 in pool default; "
            "position 1");
  const Decision all = Schedule(kNow, {{Worker("a", 2, 2), Worker("b", 2, 2), Worker("c", 2, 2)}, {Gang("j", 3, 2)}, {}});
  ASSERT_EQ(all.grants.size(), 1);
  EXPECT_EQ(all.grants[0].workers, (Strings{"a", "b", "c"}));
  EXPECT_EQ(all.grants[0].slots, 2);
}

TEST(Gang, MixesNoKindsAndLeavesOutThoseThatTrainAlone) {
  const Snapshot snapshot{
      {Worker("a", 1, 1, {}, "x"), Worker("b", 1, 1, {}, "y"), Worker("c", 1, 1, {}, ""), Worker("d", 1, 1, {}, "")},
      {Gang("j", 2, 1)},
      {}};
  const Decision decision = Schedule(kNow, snapshot);
  EXPECT_TRUE(decision.grants.empty());
  ASSERT_EQ(decision.waits.size(), 1);
  EXPECT_EQ(decision.waits[0].why, Wait::Why::kTooLarge);
  EXPECT_EQ(decision.waits[0].text,
            "1 slot is wanted on each of 2 workers that are alike, and so many slots have at most 1 that are alike in pool "
            "default; position 1");
}

TEST(Gang, FillsTheSmallestPlaceThatHoldsIt) {
  Snapshot snapshot;
  for (const char* name : {"a", "b", "c", "d"}) snapshot.workers.push_back(Worker(name, 1, 1, {"large"}));
  for (const char* name : {"e", "f"}) snapshot.workers.push_back(Worker(name, 1, 1, {"small"}));
  snapshot.waiting = {Gang("first", 2, 1), Gang("second", 4, 1)};
  const Decision decision = Schedule(kNow, snapshot);
  ASSERT_EQ(decision.grants.size(), 2);
  EXPECT_EQ(decision.grants[0].workers, (Strings{"e", "f"}));
  EXPECT_EQ(decision.grants[1].workers, (Strings{"a", "b", "c", "d"}));
}

TEST(Gang, NeighboursFollowEachOther) {
  const Snapshot snapshot{
      {Worker("a", 1, 1, {"r2"}), Worker("b", 1, 1, {"r1"}), Worker("c", 1, 1, {"r2"}), Worker("d", 1, 1, {"r1"})},
      {Gang("j", 4, 1)},
      {}};
  EXPECT_EQ(Schedule(kNow, snapshot).grants.at(0).workers, (Strings{"b", "d", "a", "c"}));
}

// Small jobs come without end; each alone fits. They may use what the gang waits for only until it can start.
TEST(Gang, DoesNotStarveBehindSmallJobs) {
  std::map<std::string, absl::Time> held;  // worker: until when its only slot is
  held["a"] = kNow + absl::Seconds(30);
  bool started = false;
  for (int second = 0; second < 100 && !started; ++second) {
    const absl::Time now = kNow + absl::Seconds(second);
    Snapshot snapshot;
    for (const char* name : {"a", "b", "c"}) {
      const bool is_held = held.count(name) > 0 && held[name] > now;
      snapshot.workers.push_back(Worker(name, 1, is_held ? 0 : 1));
      if (is_held) snapshot.running.push_back({"on " + std::string(name), {{name, 1}}, held[name]});
    }
    WaitingJob gang = Gang("gang", 3, 1);
    gang.submitted_us = 0;
    WaitingJob small = Gang("small" + std::to_string(second), 1, 1);
    small.submitted_us = second + 1;
    small.expected_run = absl::Seconds(20);
    snapshot.waiting = {gang, small};
    for (const Grant& grant : Schedule(now, snapshot).grants) {
      if (grant.job == "gang") started = true;
      for (const std::string& worker : grant.workers) held[worker] = now + absl::Seconds(20);
    }
    if (started) {
      EXPECT_LE(second, 30) << "as soon as the slot that it waits for is free";
    }
  }
  EXPECT_TRUE(started);
}

class Property : public testing::TestWithParam<int> {
 protected:
  int Uniform(int least, int most) { return std::uniform_int_distribution<int>(least, most)(engine_); }

  Snapshot Draw() {
    Snapshot snapshot;
    const int workers = Uniform(2, 8);
    for (int i = 0; i < workers; ++i) {
      const int slots = Uniform(1, 4);
      const std::string rack = "r" + std::to_string(Uniform(0, 2)), domain = rack + "d" + std::to_string(Uniform(0, 1));
      const char* const gang = Uniform(0, 3) > 0 ? "x" : Uniform(0, 1) > 0 ? "y" : "";
      snapshot.workers.push_back(Worker("w" + std::to_string(i), slots, Uniform(0, slots), {rack, domain}, gang));
    }
    const int jobs = Uniform(1, 4);
    for (int i = 0; i < jobs; ++i) {
      WaitingJob job = Gang("j" + std::to_string(i), Uniform(1, 4), Uniform(1, 3));
      job.submitted_us = i;
      if (Uniform(0, 1) > 0) job.expected_run = absl::Seconds(Uniform(1, 5));
      snapshot.waiting.push_back(job);
    }
    return snapshot;
  }

  std::mt19937 engine_;
};

// Distinct places of each level.
std::vector<size_t> SpreadOf(const std::vector<const WorkerView*>& workers) {
  std::vector<size_t> spread;
  for (size_t level = 0; level < 2; ++level) {
    std::set<std::string> places;
    for (const WorkerView* worker : workers) places.insert(worker->place[level]);
    spread.push_back(places.size());
  }
  return spread;
}

// Of all sets of that many of the candidates.
std::vector<size_t> NearestByBruteForce(const std::vector<const WorkerView*>& candidates, size_t count) {
  std::vector<size_t> best;
  for (unsigned set = 0; set < 1u << candidates.size(); ++set) {
    std::vector<const WorkerView*> chosen;
    for (size_t i = 0; i < candidates.size(); ++i) {
      if ((set >> i & 1) != 0) chosen.push_back(candidates[i]);
    }
    if (chosen.size() != count) continue;
    const auto spread = SpreadOf(chosen);
    if (best.empty() || spread < best) best = spread;
  }
  return best;
}

TEST_P(Property, FitTogetherOnFreeSlotsOfWorkersThatMayTrainTogetherAndAreNearest) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  engine_.seed(seed);
  for (int round = 0; round < 300; ++round) {
    const Snapshot snapshot = Draw();
    const Decision decision = Schedule(kNow, snapshot);
    EXPECT_EQ(decision.grants.size() + decision.waits.size(), snapshot.waiting.size());
    std::map<std::string, const WorkerView*> workers;
    std::map<std::string, int64_t> free;
    for (const WorkerView& worker : snapshot.workers) workers[worker.name] = &worker, free[worker.name] = worker.free;
    for (size_t i = 0; i < decision.grants.size(); ++i) {
      const Grant& grant = decision.grants[i];
      const auto job = std::find_if(snapshot.waiting.begin(), snapshot.waiting.end(),
                                    [&](const WaitingJob& one) { return one.name == grant.job; });
      ASSERT_EQ(static_cast<int64_t>(grant.workers.size()), job->workers) << grant.job;
      ASSERT_EQ(std::set<std::string>(grant.workers.begin(), grant.workers.end()).size(), grant.workers.size());
      const std::string& gang = workers.at(grant.workers[0])->gang;
      // Before this one is started nothing is reserved, if it is the first of the queue.
      if (i == 0 && job->name == "j0" && job->workers > 1) {
        std::vector<const WorkerView*> candidates, chosen;
        for (const WorkerView& worker : snapshot.workers) {
          if (worker.gang == gang && worker.free >= job->slots) candidates.push_back(&worker);
        }
        for (const std::string& name : grant.workers) chosen.push_back(workers.at(name));
        const auto spread = SpreadOf(chosen), best = NearestByBruteForce(candidates, chosen.size());
        EXPECT_EQ(spread[0], best[0]);
        if (best[0] == 1) {
          EXPECT_EQ(spread[1], best[1]);
        }
      }
      for (const std::string& name : grant.workers) {
        if (job->workers > 1) {
          EXPECT_FALSE(gang.empty());
          EXPECT_EQ(workers.at(name)->gang, gang);
        }
        free[name] -= grant.slots;
        EXPECT_GE(free[name], 0) << name << " is over-committed";
      }
    }
    // The first of the queue waits only where it does not fit.
    if (!decision.waits.empty() && decision.waits[0].job == "j0") {
      const WaitingJob& job = snapshot.waiting[0];
      std::map<std::string, int64_t> fits;
      for (const WorkerView& worker : snapshot.workers) {
        if (worker.free < job.slots) continue;
        const bool alone = job.workers == 1;
        if (alone || !worker.gang.empty()) ++fits[alone ? worker.name : worker.gang];
      }
      for (const auto& [gang, count] : fits) EXPECT_LT(count, job.workers) << gang;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, Property, testing::Range(0, 4));

}  // namespace
}  // namespace legoai::scheduler

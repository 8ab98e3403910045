// Against all sets of running jobs.
#include "scheduler/preempt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace legoai::scheduler {
namespace {

int64_t Uniform(std::mt19937& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

Snapshot RandomSnapshot(std::mt19937& random) {
  Snapshot snapshot;
  const int workers = static_cast<int>(Uniform(random, 3, 6));
  const bool in_domains = Uniform(random, 0, 1) == 0;  // that there is a choice of some is seldom otherwise
  for (int i = 0; i < workers; ++i) {
    WorkerView worker;
    worker.name = "w" + std::to_string(i);
    worker.pool = "default";
    worker.slots = worker.free = Uniform(random, 1, 4);
    worker.accepts = Uniform(random, 0, 5) > 0;
    worker.gang = worker.kind = !in_domains && Uniform(random, 0, 2) == 0 ? "x" : "y";
    worker.place = {"rack " + std::to_string(Uniform(random, 0, 1)), Uniform(random, 0, 4) == 0 ? "" : "domain", worker.name};
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
  for (WorkerView& worker : snapshot.workers) {
    if (Uniform(random, 0, 5) == 0) worker.checked = std::exchange(worker.free, 0);
  }
  WaitingJob waiting;
  waiting.name = "j";
  waiting.pool = "default";
  waiting.priority = Uniform(random, 0, 4);
  waiting.slots = Uniform(random, 1, 4);
  waiting.workers = Uniform(random, 1, 3);
  waiting.kind = Uniform(random, 0, 2) == 0 ? "" : Uniform(random, 0, 1) == 0 ? "x" : "y";
  waiting.in_domain = in_domains || Uniform(random, 0, 3) == 0;
  if (in_domains) waiting.kind = "y", waiting.workers = 2, waiting.slots = Uniform(random, 1, 3);
  snapshot.waiting.push_back(waiting);
  return snapshot;
}

void EndCheck(WorkerView* worker) { worker->free += std::exchange(worker->checked, 0); }

// Whether the scheduler starts it once these, and those that stop already, are gone, and all checks have ended.
bool Starts(Snapshot snapshot, const std::set<std::string>& gone) {
  for (WorkerView& worker : snapshot.workers) EndCheck(&worker);
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

// With these workers alone, of which some could hold the job; nothing: they could not.
template <class Is>
std::vector<Snapshot> Only(const Snapshot& snapshot, Is is) {
  Snapshot part = snapshot;
  std::erase_if(part.workers, [&](const WorkerView& worker) { return !is(worker); });
  Snapshot idle = part;
  idle.running.clear();
  for (WorkerView& worker : idle.workers) worker.free = worker.slots, worker.checked = 0;
  if (!Starts(idle, {})) return {};
  return {part};
}

// Where room is to be made, each by itself: the NVLink domains of workers of the kind of its recipe, all workers of the kind, or
// all that there are.
std::vector<Snapshot> OwnPlaces(const Snapshot& snapshot) {
  const WaitingJob& job = snapshot.waiting[0];
  const auto of_kind = [&](const WorkerView& worker) { return worker.kind == job.kind; };
  std::set<std::pair<std::string, std::string>> domains;
  for (const WorkerView& worker : snapshot.workers) {
    if (job.in_domain && job.workers > 1 && !worker.place[1].empty()) domains.insert({worker.place[0], worker.place[1]});
  }
  std::vector<Snapshot> places;
  for (const auto& [rack, domain] : domains) {
    for (Snapshot& one : Only(snapshot, [&, rack = rack, domain = domain](const WorkerView& worker) {
           return of_kind(worker) && worker.place[0] == rack && worker.place[1] == domain;
         }))
      places.push_back(std::move(one));
  }
  if (places.empty()) places = Only(snapshot, of_kind);
  return places.empty() ? std::vector<Snapshot>{snapshot} : places;
}

bool StartsInOne(const std::vector<Snapshot>& places, const std::set<std::string>& gone) {
  return std::any_of(places.begin(), places.end(), [&](const Snapshot& place) { return Starts(place, gone); });
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
  int64_t made = 0, of_gangs = 0, beside_others = 0, in_domains = 0;
  for (uint32_t round = 0; round < 4000; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << first << ", round " << round);
    std::mt19937 random(first + round);
    const Snapshot snapshot = RandomSnapshot(random);
    const std::vector<Snapshot> own = OwnPlaces(snapshot);
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
      EXPECT_FALSE(StartsInOne(own, fewer)) << name << " need not stop";
    }
    const bool needs_none = Starts(snapshot, {}), all_do = StartsInOne(own, {smaller.begin(), smaller.end()});
    ASSERT_EQ(names.empty(), needs_none || !all_do);
    if (names.empty()) continue;
    ++made, of_gangs += job.workers > 1, beside_others += own[0].workers.size() < snapshot.workers.size();
    Snapshot anywhere = snapshot;
    anywhere.waiting[0].in_domain = false;
    in_domains += MakeRoom(anywhere, anywhere.waiting[0]) != names;
    ASSERT_TRUE(StartsInOne(own, chosen));
    int64_t best = INT64_MAX;
    for (uint32_t set = 0; set < (1u << smaller.size()); ++set) {
      std::set<std::string> tried;
      for (size_t i = 0; i < smaller.size(); ++i) {
        if (set >> i & 1) tried.insert(smaller[i]);
      }
      if (LargestPriority(snapshot, tried) < best && StartsInOne(own, tried)) best = LargestPriority(snapshot, tried);
    }
    EXPECT_EQ(LargestPriority(snapshot, chosen), best);
    if (HasFailure()) return;
  }
  std::printf("%ld times room is made, %ld of them for gangs, %ld elsewhere than without domains\n", static_cast<long>(made),
              static_cast<long>(of_gangs), static_cast<long>(in_domains));
  EXPECT_GT(made, 200);
  EXPECT_GT(of_gangs, 50);
  EXPECT_GT(beside_others, 50);
  EXPECT_GT(in_domains, 20);
}

// Starts what a decision gives. Whether the job "j" still waits.
bool Decide(Snapshot* snapshot) {
  for (const Grant& grant : Schedule(absl::UnixEpoch(), *snapshot).grants) {
    const auto place = std::find_if(snapshot->waiting.begin(), snapshot->waiting.end(),
                                    [&](const WaitingJob& one) { return one.name == grant.job; });
    RunningJob running{.name = grant.job, .slots = {}, .priority = place->priority};
    for (WorkerView& worker : snapshot->workers) {
      if (std::count(grant.workers.begin(), grant.workers.end(), worker.name) == 0) continue;
      running.slots[worker.name] = grant.slots, worker.free -= grant.slots;
    }
    snapshot->running.push_back(running);
    snapshot->waiting.erase(place);
  }
  return std::any_of(snapshot->waiting.begin(), snapshot->waiting.end(), [](const WaitingJob& one) { return one.name == "j"; });
}

// One that has stopped waits again, as those do that made room.
void EndAndQueue(size_t index, const WaitingJob& like, Snapshot* snapshot) {
  const RunningJob over = snapshot->running[index];
  snapshot->running.erase(snapshot->running.begin() + static_cast<std::ptrdiff_t>(index));
  for (WorkerView& worker : snapshot->workers) {
    const auto slots = over.slots.find(worker.name);
    (worker.checked > 0 ? worker.checked : worker.free) += slots == over.slots.end() ? 0 : slots->second;
  }
  if (over.slots.empty() || over.priority >= like.priority) return;
  WaitingJob again = like;
  again.name = over.name, again.priority = over.priority, again.restarting = true;
  again.slots = over.slots.begin()->second, again.workers = static_cast<int64_t>(over.slots.size());
  snapshot->waiting.push_back(again);
}

// The victims stop one after the other, and are queued again, while checks end, beside others who would take any room: the job
// starts at the latest when all have, and nobody else is asked to stop.
TEST(MakeRoom, TheRoomIsKeptForWhomItIsMade) {
  const uint32_t first = std::random_device{}();
  std::printf("seed %u\n", first);
  int64_t in_turns = 0;
  for (uint32_t round = 0; round < 4000; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << first << ", round " << round);
    std::mt19937 random(first + round);
    Snapshot snapshot = RandomSnapshot(random);
    const WaitingJob job = snapshot.waiting[0];
    for (int i = 0; i < 4; ++i) {
      WaitingJob other = job;
      other.name = "other " + std::to_string(i);
      other.priority = job.priority - 1;
      other.slots = Uniform(random, 1, 2), other.workers = Uniform(random, 1, 2);
      if (Uniform(random, 0, 1) == 0) other.expected_run = absl::Seconds(1);
      snapshot.waiting.push_back(other);
    }
    if (!Decide(&snapshot)) continue;
    const std::vector<std::string> victims = MakeRoom(snapshot, job);
    if (victims.empty()) continue;
    for (RunningJob& one : snapshot.running) one.stopping |= std::count(victims.begin(), victims.end(), one.name) > 0;
    in_turns += victims.size() > 1;
    while (Decide(&snapshot)) {
      ASSERT_TRUE(MakeRoom(snapshot, job).empty()) << "more are stopped";
      std::vector<size_t> stopping;
      for (size_t i = 0; i < snapshot.running.size(); ++i) {
        if (snapshot.running[i].stopping) stopping.push_back(i);
      }
      const auto checked = std::find_if(snapshot.workers.begin(), snapshot.workers.end(),
                                        [](const WorkerView& worker) { return worker.checked > 0; });
      ASSERT_TRUE(checked != snapshot.workers.end() || !stopping.empty()) << "all have stopped, and others have their slots";
      if (checked != snapshot.workers.end() && (stopping.empty() || Uniform(random, 0, 1) == 0)) {
        EndCheck(&*checked);
        continue;
      }
      EndAndQueue(stopping[random() % stopping.size()], job, &snapshot);
    }
  }
  std::printf("%ld times several jobs stop in turns\n", static_cast<long>(in_turns));
  EXPECT_GT(in_turns, 100);
}

}  // namespace
}  // namespace legoai::scheduler

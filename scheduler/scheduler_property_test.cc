// Thousands of random snapshots: what no decision may do, and a second scheduler written from the rules by brute force.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_join.h"
#include "scheduler/fleet.h"
#include "scheduler/gang.h"
#include "scheduler/scheduler.h"

namespace legoai::scheduler {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1767225600);
const absl::Time kNever = absl::InfiniteFuture();

struct Shape {
  int workers = 4, waiting = 8, running = 6;
  int64_t most_slots = 8;
  int64_t most_workers = 1;  // of a job; more than one: workers have gangs and places
};

class Generator {
 public:
  explicit Generator(uint32_t seed) : engine_(seed) {}
  int64_t Uniform(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(engine_); }

  Snapshot Make(const Shape& shape) {
    Snapshot snapshot;
    for (int i = 0; i < shape.workers; ++i) AddWorker(i, shape, &snapshot);
    for (int i = 0; i < shape.running; ++i) AddRunning(i, shape, &snapshot);
    for (int i = 0; i < shape.waiting; ++i) AddWaiting(i, shape, &snapshot);
    Shuffle(&snapshot);
    return snapshot;
  }

  void Shuffle(Snapshot* snapshot) {
    std::shuffle(snapshot->workers.begin(), snapshot->workers.end(), engine_);
    std::shuffle(snapshot->waiting.begin(), snapshot->waiting.end(), engine_);
    std::shuffle(snapshot->running.begin(), snapshot->running.end(), engine_);
  }

 private:
  std::string Pick(const std::vector<std::string>& names) { return names[Uniform(0, names.size() - 1)]; }

  void AddWorker(int i, const Shape& shape, Snapshot* snapshot) {
    WorkerView worker;
    worker.name = "w" + std::to_string(i);
    worker.pool = Pick({"default", "default", "default", "big"});
    worker.device_type = Pick({"cpu", "h100"});
    worker.kind = Pick({"x", "y", "z"});
    worker.slots = worker.free = Uniform(1, shape.most_slots);
    worker.accepts = Uniform(0, 9) > 0;
    if (Uniform(0, 9) == 0) --worker.free;  // used by nobody knows whom
    if (shape.most_workers > 1) {
      worker.kind = Pick({"x", "y"});
      worker.gang = Pick({"", worker.kind + "/1", worker.kind + "/1", worker.kind + "/2"});
      worker.place = {Pick({"rack 1", "rack 2", ""}), Pick({"domain 1", "domain 2"}), worker.name};
    }
    snapshot->workers.push_back(worker);
  }

  void AddRunning(int i, const Shape& shape, Snapshot* snapshot) {
    RunningJob job;
    job.name = "r" + std::to_string(i);
    if (Uniform(0, 3) > 0) job.expected_end = kNow + absl::Seconds(Uniform(-1, 6));
    job.stopping = Uniform(0, 5) == 0;
    WorkerView& worker = snapshot->workers[Uniform(0, snapshot->workers.size() - 1)];
    if (Uniform(0, 19) == 0) {
      job.slots["gone"] = 3;
    } else if (worker.free > 0) {
      job.slots[worker.name] = Uniform(1, worker.free);
      worker.free -= job.slots[worker.name];
    }
    // On others as well, as many on each.
    for (WorkerView& other : snapshot->workers) {
      const int64_t slots = job.slots.empty() ? 0 : job.slots.begin()->second;
      const bool together = slots > 0 && !other.gang.empty() && other.gang == worker.gang && job.slots.count(other.name) == 0;
      if (!together || other.free < slots || static_cast<int64_t>(job.slots.size()) >= shape.most_workers) continue;
      if (Uniform(0, 1) == 0) job.slots[other.name] = slots, other.free -= slots;
    }
    snapshot->running.push_back(job);
  }

  void AddWaiting(int i, const Shape& shape, Snapshot* snapshot) {
    WaitingJob job;
    job.name = "j" + std::to_string(i);
    job.priority = Uniform(-1, 1);
    job.restarting = Uniform(0, 3) == 0;
    job.submitted_us = Uniform(0, 5);
    job.slots = Uniform(1, Uniform(1, shape.most_slots + 1));
    if (shape.most_workers > 1) job.workers = Uniform(1, shape.most_workers);
    job.pool = Pick({"default", "default", "default", "big", "none"});
    job.device_type = Pick({"", "", "cpu", "h100"});
    job.kind = Pick({"", "x", "y", "gone"});
    if (Uniform(0, 3) == 0) job.kinds = {job.kind, "z"};
    if (Uniform(0, 3) > 0) job.expected_run = absl::Seconds(Uniform(0, 6));
    snapshot->waiting.push_back(job);
  }

  std::mt19937 engine_;
};

auto Rank(const WaitingJob& job) { return std::make_tuple(-job.priority, job.restarting ? 0 : 1, job.submitted_us, job.name); }

bool MayUse(const WaitingJob& job, const WorkerView& worker) {
  return worker.accepts && worker.pool == job.pool && (job.device_type.empty() || worker.device_type == job.device_type) &&
         (job.kinds.empty() || std::count(job.kinds.begin(), job.kinds.end(), worker.kind) > 0);
}

// Workers that the job may use and that hold, by gang, in the order of their names.
template <class Holds>
std::map<std::string, std::vector<const WorkerView*>> ByGang(const std::vector<WorkerView>& workers, const WaitingJob& job,
                                                             Holds holds) {
  std::map<std::string, std::vector<const WorkerView*>> gangs;
  for (const WorkerView& worker : workers) {
    if (!worker.gang.empty() && MayUse(job, worker) && holds(worker)) gangs[worker.gang].push_back(&worker);
  }
  return gangs;
}

// How many of one gang, at most.
template <class Holds>
int64_t MostOfOneGang(const std::vector<WorkerView>& workers, const WaitingJob& job, Holds holds) {
  int64_t most = 0;
  for (const auto& [gang, together] : ByGang(workers, job, holds)) most = std::max<int64_t>(most, together.size());
  return most;
}

// Whether the job, alone, could start where these hold.
template <class Holds>
bool HasPlace(const std::vector<WorkerView>& workers, const WaitingJob& job, Holds holds) {
  if (job.workers > 1) return MostOfOneGang(workers, job, holds) >= job.workers;
  return std::any_of(workers.begin(), workers.end(), [&](const WorkerView& one) { return MayUse(job, one) && holds(one); });
}

// The rules of scheduler.h, looking again and again at everything there is. Which of a gang's workers are near each other is
// asked of gang.h, whose test tries all.
class BruteForce {
 public:
  explicit BruteForce(const Snapshot& snapshot) : workers_(snapshot.workers), waiting_(snapshot.waiting) {
    std::sort(workers_.begin(), workers_.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    std::sort(waiting_.begin(), waiting_.end(), [](const auto& a, const auto& b) { return Rank(a) < Rank(b); });
    for (const RunningJob& job : snapshot.running) {
      const absl::Time end = std::max(kNow, job.expected_end.value_or(kNever));
      for (const auto& [worker, slots] : job.slots) held_.push_back({worker, slots, job.stopping ? absl::InfinitePast() : end});
    }
  }

  Decision Decide() {
    for (const WaitingJob& job : waiting_) {
      if (const std::vector<std::string> where = job.workers > 1 ? BestGang(job) : BestWorker(job); !where.empty()) {
        Start(job, where);
      } else {
        const std::set<std::string> could_use = CouldUse(job);
        const bool is_first = !could_use.empty() && std::none_of(could_use.begin(), could_use.end(), [&](const auto& worker) {
          return wanted_.count(worker) > 0;
        });
        wanted_.insert(could_use.begin(), could_use.end());
        decision_.waits.push_back({job.name, 0, Wait::Why::kBusy, is_first, 0, BecomesHead(job), ""});
      }
    }
    return decision_;
  }

 private:
  struct Held {
    std::string worker;
    int64_t slots;
    absl::Time end;
  };
  struct Head {
    WaitingJob job;
    std::set<std::string> could_use;
    std::vector<std::string> workers;  // none: nowhere
    absl::Time at = kNever;
  };

  std::vector<std::string> BestWorker(const WaitingJob& job) const {
    const WorkerView* best = nullptr;
    for (const WorkerView& worker : workers_) {
      if (Fits(job, worker) && (best == nullptr || Better(job, worker, *best))) best = &worker;
    }
    return best == nullptr ? std::vector<std::string>() : std::vector<std::string>{best->name};
  }

  std::vector<std::string> BestGang(const WaitingJob& job) const {
    std::vector<std::string> best;
    std::pair<bool, std::vector<size_t>> best_cost;
    for (const auto& [gang, together] : ByGang(workers_, job, [&](const WorkerView& one) { return Fits(job, one); })) {
      if (static_cast<int64_t>(together.size()) < job.workers) continue;
      std::vector<size_t> spread;
      const std::vector<std::string> near = NearestOf(together, job.workers, &spread);
      const std::pair cost(together[0]->kind != job.kind, spread);
      if (!best.empty() && best_cost <= cost) continue;
      best = near, best_cost = cost;
    }
    return best;
  }

  std::vector<std::string> NearestOf(const std::vector<const WorkerView*>& together, int64_t count,
                                     std::vector<size_t>* spread) const {
    Snapshot now;
    now.workers = workers_;
    const Fleet fleet(kNow, now);
    std::vector<int> candidates;
    for (const WorkerView* one : together) candidates.push_back(static_cast<int>(one - workers_.data()));
    const std::vector<int> picked = Nearest(fleet, candidates, static_cast<size_t>(count));
    *spread = Spread(fleet, picked);
    std::vector<std::string> names;
    for (const int worker : picked) names.push_back(workers_[worker].name);
    return names;
  }

  static bool Better(const WaitingJob& job, const WorkerView& one, const WorkerView& other) {
    if ((one.kind == job.kind) != (other.kind == job.kind)) return one.kind == job.kind;
    return one.free < other.free;
  }

  static absl::Time EndOf(const WaitingJob& job) { return job.expected_run.has_value() ? kNow + *job.expected_run : kNever; }

  // Free slots of a worker at a moment, if nothing more is started than `held`.
  static int64_t FreeAt(const WorkerView& worker, absl::Time at, const std::vector<Held>& held) {
    int64_t free = worker.free;
    for (const Held& one : held) free += one.worker == worker.name && one.end <= at ? one.slots : 0;
    return free;
  }

  bool Fits(const WaitingJob& job, const WorkerView& worker) const {
    if (!MayUse(job, worker) || worker.free < job.slots) return false;
    for (const Head& head : heads_) {
      if (head.workers.empty() && head.could_use.count(worker.name) > 0) return false;
      if (std::count(head.workers.begin(), head.workers.end(), worker.name) == 0) continue;
      WorkerView after = worker;
      after.free -= job.slots;
      std::vector<Held> held = held_;
      held.push_back({worker.name, job.slots, EndOf(job)});
      if (FreeAt(after, head.at, held) < head.job.slots) return false;
    }
    return true;
  }

  void Start(const WaitingJob& job, const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      for (WorkerView& worker : workers_) worker.free -= worker.name == name ? job.slots : 0;
      held_.push_back({name, job.slots, EndOf(job)});
    }
    decision_.grants.push_back({job.name, names, job.slots});
  }

  std::set<std::string> CouldUse(const WaitingJob& job) const {
    std::set<std::string> could_use;
    const auto is_large = [&](const WorkerView& worker) { return worker.slots >= job.slots; };
    for (const WorkerView& worker : workers_) {
      if (job.workers == 1 && MayUse(job, worker) && is_large(worker)) could_use.insert(worker.name);
    }
    for (const auto& [gang, together] : ByGang(workers_, job, is_large)) {
      if (job.workers == 1 || static_cast<int64_t>(together.size()) < job.workers) continue;
      for (const WorkerView* one : together) could_use.insert(one->name);
    }
    return could_use;
  }

  std::optional<absl::Time> BecomesHead(const WaitingJob& job) {
    Head head{job, CouldUse(job), {}, kNever};
    for (const std::string& worker : head.could_use) {
      for (const Head& other : heads_) {
        if (other.could_use.count(worker) > 0) return std::nullopt;
      }
    }
    job.workers == 1 ? ReserveWorker(&head) : ReserveGang(&head);
    if (!head.could_use.empty()) heads_.push_back(head);
    return !head.workers.empty() && head.at > kNow ? std::optional<absl::Time>(head.at) : std::nullopt;
  }

  void ReserveWorker(Head* head) const {
    int64_t free_now = -1;
    for (const WorkerView& worker : workers_) {
      if (head->could_use.count(worker.name) == 0) continue;
      for (const Held& moment : held_) {
        if (moment.end == kNever || moment.worker != worker.name) continue;
        if (FreeAt(worker, moment.end, held_) < head->job.slots) continue;
        if (std::make_tuple(moment.end, -worker.free) >= std::make_tuple(head->at, -free_now)) continue;
        head->at = moment.end;
        head->workers = {worker.name};
        free_now = worker.free;
      }
    }
  }

  // At each moment at which something ends, the earliest first: whether a gang has enough of them by then.
  void ReserveGang(Head* head) const {
    std::set<absl::Time> moments;
    for (const Held& held : held_) moments.insert(held.end);
    moments.erase(kNever);
    for (const absl::Time moment : moments) {
      const auto ready = [&](const WorkerView& one) {
        return head->could_use.count(one.name) > 0 && FreeAt(one, moment, held_) >= head->job.slots;
      };
      for (auto& [gang, together] : ByGang(workers_, head->job, ready)) {
        if (static_cast<int64_t>(together.size()) < head->job.workers) continue;
        std::vector<const WorkerView*> by_time = together;
        std::stable_sort(by_time.begin(), by_time.end(), [&](const WorkerView* a, const WorkerView* b) {
          return ReadyAt(*a, head->job.slots) < ReadyAt(*b, head->job.slots);
        });
        std::vector<size_t> spread;
        head->workers = NearestOf(by_time, head->job.workers, &spread);
        head->at = moment;
        return;
      }
    }
  }

  absl::Time ReadyAt(const WorkerView& worker, int64_t slots) const {
    absl::Time ready = worker.free >= slots ? absl::InfinitePast() : kNever;
    for (const Held& moment : held_) {
      if (moment.worker == worker.name && FreeAt(worker, moment.end, held_) >= slots) ready = std::min(ready, moment.end);
    }
    return ready;
  }

  std::vector<WorkerView> workers_;
  std::vector<WaitingJob> waiting_;
  std::vector<Held> held_;
  std::vector<Head> heads_;
  std::set<std::string> wanted_;  // what waiting jobs could use
  Decision decision_;
};

std::vector<std::string> Lines(const Decision& decision) {
  std::vector<std::string> lines;
  for (const Grant& grant : decision.grants) lines.push_back(grant.job + " on " + absl::StrJoin(grant.workers, " and "));
  for (const Wait& wait : decision.waits) {
    lines.push_back(wait.job + " waits" + (wait.is_first ? " as the first" : "") +
                    (wait.expected_start ? " until " + absl::FormatTime(*wait.expected_start) : ""));
  }
  return lines;
}

// What must hold of any decision, whatever the order of trying was.
void CheckGrants(const Snapshot& snapshot, const Decision& decision) {
  std::map<std::string, WorkerView> workers;
  std::map<std::string, WaitingJob> jobs;
  for (const WorkerView& worker : snapshot.workers) workers[worker.name] = worker;
  for (const WaitingJob& job : snapshot.waiting) jobs[job.name] = job;
  std::set<std::string> seen;
  for (const Grant& grant : decision.grants) {
    ASSERT_TRUE(seen.insert(grant.job).second) << grant.job << " is granted twice";
    ASSERT_GT(jobs.count(grant.job), 0u) << grant.job;
    const WaitingJob& job = jobs[grant.job];
    EXPECT_EQ(grant.slots, job.slots) << grant.job << " did not get its gang";
    EXPECT_EQ(static_cast<int64_t>(grant.workers.size()), job.workers) << grant.job << " got a part of its gang";
    EXPECT_EQ(std::set(grant.workers.begin(), grant.workers.end()).size(), grant.workers.size()) << grant.job;
    for (const std::string& name : grant.workers) {
      ASSERT_GT(workers.count(name), 0u) << grant.job << " on " << name;
      WorkerView& worker = workers[name];
      EXPECT_TRUE(MayUse(job, worker)) << grant.job << " on " << name;
      worker.free -= grant.slots;
      EXPECT_GE(worker.free, 0) << name << " is over-committed";
      if (job.workers == 1) continue;
      EXPECT_FALSE(worker.gang.empty()) << name << " trains alone";
      EXPECT_EQ(worker.gang, workers[grant.workers[0]].gang) << grant.job << " is on workers that cannot train together";
      EXPECT_EQ(worker.kind, workers[grant.workers[0]].kind) << grant.job << " is on two kinds";
    }
  }
  for (const Wait& wait : decision.waits) ASSERT_TRUE(seen.insert(wait.job).second) << wait.job;
  EXPECT_EQ(seen.size(), snapshot.waiting.size());
}

// Nobody waits while a later one has slots that would have been its own, unless those are kept for a head.
void CheckOrder(const Snapshot& snapshot, const Decision& decision) {
  std::vector<WorkerView> workers = snapshot.workers;
  std::set<std::string> waited_pools;  // with a job that waits and could run there: there may be a head
  std::vector<WaitingJob> order = snapshot.waiting;
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return Rank(a) < Rank(b); });
  std::map<std::string, std::vector<std::string>> placed;
  for (const Grant& grant : decision.grants) placed[grant.job] = grant.workers;
  for (const WaitingJob& job : order) {
    if (const auto grant = placed.find(job.name); grant != placed.end()) {
      for (WorkerView& worker : workers)
        worker.free -= std::count(grant->second.begin(), grant->second.end(), worker.name) * job.slots;
      continue;
    }
    const auto is_free = [&](const WorkerView& worker) { return worker.free >= job.slots; };
    if (waited_pools.count(job.pool) == 0) {
      EXPECT_FALSE(HasPlace(workers, job, is_free)) << job.name << " would have fitted";
    }
    if (HasPlace(workers, job, [&](const WorkerView& worker) { return worker.slots >= job.slots; }))
      waited_pools.insert(job.pool);
  }
}

void CheckWaits(const Snapshot& snapshot, const Decision& decision) {
  std::vector<WorkerView> workers = snapshot.workers;
  for (const Grant& grant : decision.grants) {
    for (WorkerView& worker : workers)
      worker.free -= std::count(grant.workers.begin(), grant.workers.end(), worker.name) * grant.slots;
  }
  std::map<std::string, int64_t> positions;
  for (const Wait& wait : decision.waits) {
    const WaitingJob& job = *std::find_if(snapshot.waiting.begin(), snapshot.waiting.end(),
                                          [&](const WaitingJob& one) { return one.name == wait.job; });
    int64_t largest = 0;
    for (const WorkerView& worker : workers) {
      if (MayUse(job, worker)) largest = std::max(largest, worker.slots);
    }
    const bool has = HasPlace(workers, job, [&](const WorkerView& worker) { return worker.slots >= job.slots; });
    const bool is_free = HasPlace(workers, job, [&](const WorkerView& worker) { return worker.free >= job.slots; });
    EXPECT_EQ(wait.largest, largest);
    EXPECT_EQ(wait.why, largest == 0 ? Wait::Why::kNoSuchWorker
                        : !has       ? Wait::Why::kTooLarge
                        : !is_free   ? Wait::Why::kBusy
                                     : Wait::Why::kReserved)
        << wait.text;
    EXPECT_EQ(wait.position, ++positions[job.pool]);
    if (wait.is_first) {
      EXPECT_EQ(wait.why, Wait::Why::kBusy) << wait.text;
    }
    EXPECT_NE(wait.text.find("; position " + std::to_string(wait.position)), std::string::npos) << wait.text;
  }
}

std::vector<std::string> Everything(const Decision& decision) {
  std::vector<std::string> all = Lines(decision);
  for (const Wait& wait : decision.waits) all.push_back(wait.text);
  return all;
}

bool Waits(const std::string& job, const Snapshot& snapshot) {
  return std::any_of(snapshot.waiting.begin(), snapshot.waiting.end(), [&](const auto& one) { return one.name == job; });
}

auto RankOf(const std::string& job, const Snapshot& snapshot) {
  return Rank(*std::find_if(snapshot.waiting.begin(), snapshot.waiting.end(), [&](const auto& one) { return one.name == job; }));
}

// Those that are over by now give their slots back; those that stop are over after the first second.
void EndJobs(absl::Time now, Snapshot* snapshot) {
  const auto is_over = [now](const RunningJob& job) {
    return (job.stopping && now > kNow) || (job.expected_end && *job.expected_end <= now);
  };
  for (const RunningJob& job : snapshot->running) {
    if (!is_over(job)) continue;
    for (WorkerView& worker : snapshot->workers) {
      const auto slots = job.slots.find(worker.name);
      worker.free += slots == job.slots.end() ? 0 : slots->second;
    }
  }
  std::erase_if(snapshot->running, is_over);
}

void TryRandomSnapshots(int64_t most_workers) {
  const uint32_t first = std::random_device{}();
  std::printf("seed %u\n", first);
  int64_t grants = 0, of_several = 0, waits = 0, backfilled = 0;
  for (uint32_t round = 0; round < 5000; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << first << ", round " << round);
    Generator generator(first + round);
    Shape shape;
    shape.most_workers = most_workers;
    shape.workers = static_cast<int>(generator.Uniform(1, most_workers > 1 ? 9 : 6));
    shape.waiting = static_cast<int>(generator.Uniform(0, 14));
    shape.running = static_cast<int>(generator.Uniform(0, 12));
    Snapshot snapshot = generator.Make(shape);
    const Decision decision = Schedule(kNow, snapshot);
    CheckGrants(snapshot, decision);
    CheckOrder(snapshot, decision);
    CheckWaits(snapshot, decision);
    ASSERT_EQ(Lines(decision), Lines(BruteForce(snapshot).Decide()));
    const auto once = Everything(decision);
    ASSERT_EQ(once, Everything(Schedule(kNow, snapshot)));
    generator.Shuffle(&snapshot);
    ASSERT_EQ(once, Everything(Schedule(kNow, snapshot)));
    grants += decision.grants.size();
    for (const Grant& grant : decision.grants) of_several += grant.workers.size() > 1;
    waits += decision.waits.size();
    for (const Wait& wait : decision.waits) backfilled += wait.expected_start.has_value();
    if (testing::Test::HasFailure()) return;
  }
  std::printf("%ld grants, %ld of them over several workers, %ld waits, %ld of them of heads with a known start\n",
              static_cast<long>(grants), static_cast<long>(of_several), static_cast<long>(waits), static_cast<long>(backfilled));
  EXPECT_GT(grants, 1000);
  EXPECT_GT(waits, 1000);
  EXPECT_GT(backfilled, 100);
  if (most_workers > 1) {
    EXPECT_GT(of_several, 300);
  }
}

TEST(RandomSnapshots, KeepEveryRule) { TryRandomSnapshots(/*most_workers=*/1); }

TEST(RandomSnapshots, OfJobsOverSeveralWorkersKeepEveryRule) { TryRandomSnapshots(/*most_workers=*/4); }

// A queue that is worked off, by jobs that end when they are expected to: whoever is first in it starts when it was told, or
// before, whatever is filled in between.
TEST(RandomSnapshots, TheFirstOfAQueueStartsNoLaterThanItWasTold) {
  const uint32_t first_seed = std::random_device{}();
  std::printf("seed %u\n", first_seed);
  int64_t told = 0, filled_in = 0;
  for (uint32_t round = 0; round < 4000; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << first_seed << ", round " << round);
    Generator generator(first_seed + round);
    Snapshot snapshot = generator.Make({.workers = 6, .waiting = 12, .running = 8, .most_slots = 4, .most_workers = 4});
    for (WaitingJob& job : snapshot.waiting) job.pool = "default", job.expected_run = absl::Seconds(generator.Uniform(1, 6));
    for (WorkerView& worker : snapshot.workers) worker.pool = "default";
    std::map<std::string, absl::Time> promised;
    for (absl::Time now = kNow; now < kNow + absl::Seconds(100); now += absl::Seconds(1)) {
      EndJobs(now, &snapshot);
      std::sort(snapshot.waiting.begin(), snapshot.waiting.end(), [](const auto& a, const auto& b) { return Rank(a) < Rank(b); });
      const Decision decision = Schedule(now, snapshot);
      const bool first_waits = !decision.waits.empty();
      for (const Grant& grant : decision.grants) {
        const auto promise = promised.find(grant.job);
        if (promise != promised.end()) {
          EXPECT_LE(now, promise->second) << grant.job;
        }
        const auto job = std::find_if(snapshot.waiting.begin(), snapshot.waiting.end(),
                                      [&](const WaitingJob& one) { return one.name == grant.job; });
        filled_in += grant.workers.size() > 1 && first_waits && Rank(*job) > RankOf(decision.waits[0].job, snapshot);
        RunningJob running{grant.job, {}, now + *job->expected_run};
        for (const std::string& name : grant.workers) {
          running.slots[name] = grant.slots;
          for (WorkerView& worker : snapshot.workers) worker.free -= worker.name == name ? grant.slots : 0;
        }
        snapshot.running.push_back(running);
        snapshot.waiting.erase(job);
      }
      for (const auto& [name, at] : promised) EXPECT_TRUE(now < at || !Waits(name, snapshot)) << name << " was told " << at;
      if (!decision.waits.empty() && decision.waits[0].expected_start) {
        promised.emplace(decision.waits[0].job, *decision.waits[0].expected_start);
        ++told;
      }
      if (HasFailure()) return;
    }
  }
  std::printf("%ld times the first was told, %ld jobs over several workers were filled in\n", static_cast<long>(told),
              static_cast<long>(filled_in));
  EXPECT_GT(told, 1000);
  EXPECT_GT(filled_in, 100);
}

TEST(RandomSnapshots, OfTheSizeOfALargeCluster) {
  const uint32_t seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  const Snapshot snapshot = Generator(seed).Make({1000, 10000, 4000, 8});
  const auto before = std::chrono::steady_clock::now();
  const Decision decision = Schedule(kNow, snapshot);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - before;
  std::printf("10,000 jobs on 1,000 workers: %zu started, %.3f s\n", decision.grants.size(), took.count());
  CheckGrants(snapshot, decision);
  CheckOrder(snapshot, decision);
}

}  // namespace
}  // namespace legoai::scheduler

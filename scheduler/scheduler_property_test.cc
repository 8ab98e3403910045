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

#include "scheduler/scheduler.h"

namespace legoai::scheduler {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1767225600);
const absl::Time kNever = absl::InfiniteFuture();

struct Shape {
  int workers = 4, waiting = 8, running = 6;
  int64_t most_slots = 8;
};

class Generator {
 public:
  explicit Generator(uint32_t seed) : engine_(seed) {}
  int64_t Uniform(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(engine_); }

  Snapshot Make(const Shape& shape) {
    Snapshot snapshot;
    for (int i = 0; i < shape.workers; ++i) AddWorker(i, shape.most_slots, &snapshot);
    for (int i = 0; i < shape.running; ++i) AddRunning(i, &snapshot);
    for (int i = 0; i < shape.waiting; ++i) AddWaiting(i, shape.most_slots, &snapshot);
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

  void AddWorker(int i, int64_t most_slots, Snapshot* snapshot) {
    WorkerView worker;
    worker.name = "w" + std::to_string(i);
    worker.pool = Pick({"default", "default", "default", "big"});
    worker.device_type = Pick({"cpu", "h100"});
    worker.kind = Pick({"x", "y", "z"});
    worker.slots = worker.free = Uniform(1, most_slots);
    worker.accepts = Uniform(0, 9) > 0;
    if (Uniform(0, 9) == 0) --worker.free;  // used by nobody knows whom
    snapshot->workers.push_back(worker);
  }

  void AddRunning(int i, Snapshot* snapshot) {
    RunningJob job;
    job.name = "r" + std::to_string(i);
    if (Uniform(0, 3) > 0) job.expected_end = kNow + absl::Seconds(Uniform(-1, 6));
    WorkerView& worker = snapshot->workers[Uniform(0, snapshot->workers.size() - 1)];
    if (Uniform(0, 19) == 0) {
      job.slots["gone"] = 3;
    } else if (worker.free > 0) {
      job.slots[worker.name] = Uniform(1, worker.free);
      worker.free -= job.slots[worker.name];
    }
    snapshot->running.push_back(job);
  }

  void AddWaiting(int i, int64_t most_slots, Snapshot* snapshot) {
    WaitingJob job;
    job.name = "j" + std::to_string(i);
    job.priority = Uniform(-1, 1);
    job.restarting = Uniform(0, 3) == 0;
    job.submitted_us = Uniform(0, 5);
    job.slots = Uniform(1, Uniform(1, most_slots + 1));
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

// The rules of scheduler.h, looking again and again at everything there is.
class BruteForce {
 public:
  explicit BruteForce(const Snapshot& snapshot) : workers_(snapshot.workers), waiting_(snapshot.waiting) {
    std::sort(workers_.begin(), workers_.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    std::sort(waiting_.begin(), waiting_.end(), [](const auto& a, const auto& b) { return Rank(a) < Rank(b); });
    for (const RunningJob& job : snapshot.running) {
      for (const auto& [worker, slots] : job.slots) held_.push_back({worker, slots, job.expected_end.value_or(kNever)});
    }
    for (Held& held : held_) held.end = std::max(held.end, kNow);
  }

  Decision Decide() {
    for (const WaitingJob& job : waiting_) {
      const WorkerView* best = nullptr;
      for (const WorkerView& worker : workers_) {
        if (Fits(job, worker) && (best == nullptr || Better(job, worker, *best))) best = &worker;
      }
      if (best != nullptr) {
        Start(job, best->name);
      } else {
        decision_.waits.push_back({job.name, 0, Wait::Why::kBusy, 0, BecomesHead(job), ""});
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
    std::string worker;  // "": nowhere
    absl::Time at = kNever;
  };

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
      if (head.worker.empty() && head.could_use.count(worker.name) > 0) return false;
      if (head.worker != worker.name) continue;
      WorkerView after = worker;
      after.free -= job.slots;
      std::vector<Held> held = held_;
      held.push_back({worker.name, job.slots, EndOf(job)});
      if (FreeAt(after, head.at, held) < head.job.slots) return false;
    }
    return true;
  }

  void Start(const WaitingJob& job, const std::string& name) {
    for (WorkerView& worker : workers_) worker.free -= worker.name == name ? job.slots : 0;
    held_.push_back({name, job.slots, EndOf(job)});
    decision_.grants.push_back({job.name, {name}, job.slots});
  }

  std::optional<absl::Time> BecomesHead(const WaitingJob& job) {
    Head head{job, {}, "", kNever};
    for (const WorkerView& worker : workers_) {
      if (MayUse(job, worker) && worker.slots >= job.slots) head.could_use.insert(worker.name);
    }
    for (const std::string& worker : head.could_use) {
      for (const Head& other : heads_) {
        if (other.could_use.count(worker) > 0) return std::nullopt;
      }
    }
    int64_t free_now = -1;
    for (const WorkerView& worker : workers_) {
      if (head.could_use.count(worker.name) == 0) continue;
      for (const Held& moment : held_) {
        if (moment.end == kNever || moment.worker != worker.name || FreeAt(worker, moment.end, held_) < job.slots) continue;
        if (std::make_tuple(moment.end, -worker.free) >= std::make_tuple(head.at, -free_now)) continue;
        head.at = moment.end;
        head.worker = worker.name;
        free_now = worker.free;
      }
    }
    if (!head.could_use.empty()) heads_.push_back(head);
    return !head.worker.empty() && head.at > kNow ? std::optional<absl::Time>(head.at) : std::nullopt;
  }

  std::vector<WorkerView> workers_;
  std::vector<WaitingJob> waiting_;
  std::vector<Held> held_;
  std::vector<Head> heads_;
  Decision decision_;
};

std::vector<std::string> Lines(const Decision& decision) {
  std::vector<std::string> lines;
  for (const Grant& grant : decision.grants) lines.push_back(grant.job + " on " + grant.workers.at(0));
  for (const Wait& wait : decision.waits) {
    lines.push_back(wait.job + " waits" + (wait.expected_start ? " until " + absl::FormatTime(*wait.expected_start) : ""));
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
    ASSERT_TRUE(jobs.count(grant.job) > 0 && workers.count(grant.workers.at(0)) > 0)
        << grant.job << " on " << grant.workers.at(0);
    EXPECT_EQ(grant.slots, jobs[grant.job].slots) << grant.job << " did not get its gang";
    EXPECT_TRUE(MayUse(jobs[grant.job], workers[grant.workers.at(0)])) << grant.job << " on " << grant.workers.at(0);
    workers[grant.workers.at(0)].free -= grant.slots;
    EXPECT_GE(workers[grant.workers.at(0)].free, 0) << grant.workers.at(0) << " is over-committed";
  }
  for (const Wait& wait : decision.waits) ASSERT_TRUE(seen.insert(wait.job).second) << wait.job;
  EXPECT_EQ(seen.size(), snapshot.waiting.size());
}

// Nobody waits while a later one has slots that would have been its own, unless those are kept for a head.
void CheckOrder(const Snapshot& snapshot, const Decision& decision) {
  std::map<std::string, WaitingJob> jobs;
  std::map<std::string, WorkerView> workers;
  for (const WaitingJob& job : snapshot.waiting) jobs[job.name] = job;
  for (const WorkerView& worker : snapshot.workers) workers[worker.name] = worker;
  std::set<std::string> waited_pools;  // with a job that waits and could run there: there may be a head
  std::vector<WaitingJob> order = snapshot.waiting;
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return Rank(a) < Rank(b); });
  std::map<std::string, std::string> placed;
  for (const Grant& grant : decision.grants) placed[grant.job] = grant.workers.at(0);
  for (const WaitingJob& job : order) {
    if (placed.count(job.name) > 0) {
      workers[placed[job.name]].free -= job.slots;
      continue;
    }
    bool could_run = false;
    for (const auto& [name, worker] : workers) {
      could_run = could_run || (MayUse(job, worker) && worker.slots >= job.slots);
      if (waited_pools.count(job.pool) > 0) continue;
      EXPECT_FALSE(MayUse(job, worker) && worker.free >= job.slots) << job.name << " would have fitted on " << name;
    }
    if (could_run) waited_pools.insert(job.pool);
  }
}

void CheckWaits(const Snapshot& snapshot, const Decision& decision) {
  std::map<std::string, WorkerView> workers;
  for (const WorkerView& worker : snapshot.workers) workers[worker.name] = worker;
  for (const Grant& grant : decision.grants) workers[grant.workers.at(0)].free -= grant.slots;
  std::map<std::string, int64_t> positions;
  for (const Wait& wait : decision.waits) {
    const WaitingJob& job = *std::find_if(snapshot.waiting.begin(), snapshot.waiting.end(),
                                          [&](const WaitingJob& one) { return one.name == wait.job; });
    int64_t largest = 0, free = 0;
    for (const auto& [name, worker] : workers) {
      if (!MayUse(job, worker)) continue;
      largest = std::max(largest, worker.slots);
      free = std::max(free, worker.free);
    }
    EXPECT_EQ(wait.largest, largest);
    EXPECT_EQ(wait.why, largest == 0          ? Wait::Why::kNoSuchWorker
                        : largest < job.slots ? Wait::Why::kTooLarge
                        : free < job.slots    ? Wait::Why::kBusy
                                              : Wait::Why::kReserved)
        << wait.text;
    EXPECT_EQ(wait.position, ++positions[job.pool]);
    EXPECT_NE(wait.text.find("; position " + std::to_string(wait.position)), std::string::npos) << wait.text;
  }
}

std::vector<std::string> Everything(const Decision& decision) {
  std::vector<std::string> all = Lines(decision);
  for (const Wait& wait : decision.waits) all.push_back(wait.text);
  return all;
}

TEST(RandomSnapshots, KeepEveryRule) {
  const uint32_t first = std::random_device{}();
  std::printf("seed %u\n", first);
  int64_t grants = 0, waits = 0, backfilled = 0;
  for (uint32_t round = 0; round < 5000; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << first << ", round " << round);
    Generator generator(first + round);
    Shape shape;
    shape.workers = static_cast<int>(generator.Uniform(1, 6));
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
    waits += decision.waits.size();
    for (const Wait& wait : decision.waits) backfilled += wait.expected_start.has_value();
    if (HasFailure()) return;
  }
  std::printf("%ld grants, %ld waits, %ld of them of heads with a known start\n", static_cast<long>(grants),
              static_cast<long>(waits), static_cast<long>(backfilled));
  EXPECT_GT(grants, 1000);
  EXPECT_GT(waits, 1000);
  EXPECT_GT(backfilled, 100);
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

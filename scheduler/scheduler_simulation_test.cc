// Thousands of jobs in a simulated cluster that does what the scheduler decides.
#include <gtest/gtest.h>

#include <algorithm>
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

const absl::Time kStart = absl::FromUnixSeconds(1767225600);

struct SimulatedJob {
  WaitingJob job;
  int64_t arrives = 0, runs = 0;  // seconds
};

struct Workload {
  std::vector<WorkerView> workers;
  std::vector<SimulatedJob> jobs;
};

struct Options {
  bool priorities = false;
  bool known_runs = true;  // otherwise: some run times are unknown, others wrong
};

Workload MakeWorkload(uint32_t seed, int workers, int jobs, const Options& options) {
  std::mt19937 engine(seed);
  auto uniform = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(engine); };
  Workload load;
  int64_t largest = 0;
  for (int i = 0; i < workers; ++i) {
    const int64_t slots = uniform(2, 8);
    largest = std::max(largest, slots);
    load.workers.push_back({"w" + std::to_string(i), "default", "cpu", slots, slots, true});
  }
  int64_t now = 0;
  for (int i = 0; i < jobs; ++i) {
    SimulatedJob job;
    job.job.name = "j" + std::to_string(i);
    job.job.pool = "default";
    job.job.submitted_us = i;
    job.job.slots = uniform(0, 3) == 0 ? uniform(1, largest) : uniform(1, std::min<int64_t>(3, largest));
    if (options.priorities) job.job.priority = uniform(0, 2);
    job.arrives = now;
    job.runs = uniform(1, uniform(1, 60));
    if (options.known_runs) {
      job.job.expected_run = absl::Seconds(job.runs);
    } else if (uniform(0, 2) > 0) {
      job.job.expected_run = absl::Seconds(uniform(0, 2 * job.runs));
    }
    now += uniform(0, 3);
    load.jobs.push_back(job);
  }
  return load;
}

bool Precedes(const WaitingJob& a, const WaitingJob& b) {
  return std::make_tuple(-a.priority, a.submitted_us) < std::make_tuple(-b.priority, b.submitted_us);
}

struct Held {
  std::string job, worker;
  int64_t slots, started, end;
  std::optional<absl::Time> expected_end;
};

// When a job would start if only what is held runs on and ends.
int64_t StartIfAlone(int64_t now, const std::vector<WorkerView>& workers, const std::vector<Held>& held, const WaitingJob& job) {
  std::set<int64_t> moments = {now};
  for (const Held& one : held) moments.insert(one.end);
  for (int64_t moment : moments) {
    for (const WorkerView& worker : workers) {
      int64_t free = worker.slots;
      for (const Held& one : held) free -= one.worker == worker.name && one.end > moment ? one.slots : 0;
      if (moment >= now && free >= job.slots) return moment;
    }
  }
  ADD_FAILURE() << job.name << " never fits";
  return 0;
}

class Cluster {
 public:
  explicit Cluster(const Workload& load) : load_(load) {}
  virtual ~Cluster() = default;

  void Run() {
    size_t arrived = 0;
    int64_t now = 0;
    while (arrived < load_.jobs.size() || !held_.empty()) {
      now = NextEvent(arrived);
      held_.erase(std::remove_if(held_.begin(), held_.end(), [&](const Held& one) { return one.end <= now; }), held_.end());
      for (; arrived < load_.jobs.size() && load_.jobs[arrived].arrives <= now; ++arrived) Arrive(load_.jobs[arrived].job);
      Decide(now);
    }
    makespan_ = now;
  }

  const std::map<std::string, int64_t>& starts() const { return starts_; }
  size_t still_waiting() const { return waiting_.size(); }
  double Utilisation() const {
    int64_t used = 0, slots = 0;
    for (const SimulatedJob& job : load_.jobs) used += job.job.slots * job.runs;
    for (const WorkerView& worker : load_.workers) slots += worker.slots;
    return static_cast<double>(used) / static_cast<double>(slots * makespan_);
  }

 protected:
  virtual void Arrive(const WaitingJob& job) { waiting_.push_back(job); }
  virtual void Decide(int64_t now) = 0;

  int64_t Free(const WorkerView& worker) const {
    int64_t free = worker.slots;
    for (const Held& one : held_) free -= one.worker == worker.name ? one.slots : 0;
    return free;
  }

  void Start(int64_t now, const std::string& name, const std::string& worker) {
    const auto at = std::find_if(waiting_.begin(), waiting_.end(), [&](const WaitingJob& one) { return one.name == name; });
    ASSERT_NE(at, waiting_.end()) << name;
    std::optional<absl::Time> expected_end;
    if (at->expected_run.has_value()) expected_end = kStart + absl::Seconds(now) + *at->expected_run;
    held_.push_back({name, worker, at->slots, now, now + load_.jobs[at->submitted_us].runs, expected_end});
    starts_[name] = now;
    waiting_.erase(at);
    for (const WorkerView& view : load_.workers) ASSERT_GE(Free(view), 0) << view.name << " is over-committed";
  }

  const Workload& load_;
  std::vector<WaitingJob> waiting_;
  std::vector<Held> held_;
  std::map<std::string, int64_t> starts_;

 private:
  int64_t NextEvent(size_t arrived) const {
    int64_t next = arrived < load_.jobs.size() ? load_.jobs[arrived].arrives : INT64_MAX;
    for (const Held& one : held_) next = std::min(next, one.end);
    return next;
  }
  int64_t makespan_ = 0;
};

// Strictly one after another: whoever does not fit holds up all behind it.
class WithoutBackfill : public Cluster {
 public:
  using Cluster::Cluster;

 protected:
  void Decide(int64_t now) override {
    while (!waiting_.empty()) {
      const WaitingJob job = *std::min_element(waiting_.begin(), waiting_.end(), Precedes);
      std::string best;
      int64_t best_free = INT64_MAX;
      for (const WorkerView& worker : load_.workers) {
        const int64_t free = Free(worker);
        if (free < job.slots || free >= best_free) continue;
        best = worker.name;
        best_free = free;
      }
      if (best.empty()) return;
      Start(now, job.name, best);
    }
  }
};

class Scheduled : public Cluster {
 public:
  Scheduled(const Workload& load, bool check_heads) : Cluster(load), check_heads_(check_heads) {}

  void CheckHeads() const {
    for (const auto& [job, latest] : latest_) EXPECT_LE(starts_.at(job), latest) << job << " was delayed by those behind it";
  }
  int64_t heads() const { return heads_; }
  int64_t backfilled() const { return backfilled_; }

 protected:
  void Arrive(const WaitingJob& job) override {
    Cluster::Arrive(job);
    for (auto it = latest_.begin(); it != latest_.end();) {  // of those it overtakes nothing was promised
      const WaitingJob& head = load_.jobs[std::stoll(it->first.substr(1))].job;
      it = starts_.count(it->first) == 0 && Precedes(job, head) ? latest_.erase(it) : std::next(it);
    }
  }

  void Decide(int64_t now) override {
    Snapshot snapshot{load_.workers, waiting_, {}};
    for (WorkerView& worker : snapshot.workers) worker.free = Free(worker);
    for (const Held& one : held_) snapshot.running.push_back({one.job, {{one.worker, one.slots}}, one.expected_end});
    const Decision decision = Schedule(kStart + absl::Seconds(now), snapshot);
    std::optional<WaitingJob> head;
    if (!decision.waits.empty()) head = load_.jobs[std::stoll(decision.waits[0].job.substr(1))].job;
    bool noted = !head.has_value() || !check_heads_;
    for (const Grant& grant : decision.grants) {
      if (head.has_value() && Precedes(*head, load_.jobs[std::stoll(grant.job.substr(1))].job)) {
        ++backfilled_;
        if (!noted) Note(now, *head, decision.waits[0]);
        noted = true;
      }
      Start(now, grant.job, grant.workers.at(0));
    }
    if (!noted) Note(now, *head, decision.waits[0]);
  }

 private:
  // What the head could count on before anybody behind it was started.
  void Note(int64_t now, const WaitingJob& head, const Wait& wait) {
    const int64_t alone = StartIfAlone(now, load_.workers, held_, head);
    ASSERT_EQ(wait.job, head.name);
    EXPECT_EQ(wait.expected_start, kStart + absl::Seconds(alone)) << head.name;
    heads_ += latest_.emplace(head.name, alone).second;
    latest_[head.name] = std::min(latest_[head.name], alone);
  }

  bool check_heads_;
  std::map<std::string, int64_t> latest_;  // by head, seconds
  int64_t heads_ = 0, backfilled_ = 0;
};

class Simulation : public testing::Test {
 protected:
  Simulation() { std::printf("seed %u\n", seed_); }
  const uint32_t seed_ = std::random_device{}();
};

TEST_F(Simulation, BackfillDelaysNoHeadStarvesNobodyAndUsesMore) {
  double with = 0, without = 0;
  int64_t heads = 0, backfilled = 0;
  constexpr uint32_t kRounds = 40;
  for (uint32_t round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed_ << ", round " << round);
    const Workload load = MakeWorkload(seed_ + round, 1 + static_cast<int>(round) % 6, 250, {round % 2 == 1, true});
    Scheduled scheduled(load, true);
    scheduled.Run();
    EXPECT_EQ(scheduled.still_waiting(), 0u);
    EXPECT_EQ(scheduled.starts().size(), load.jobs.size());
    scheduled.CheckHeads();
    WithoutBackfill strict(load);
    strict.Run();
    with += scheduled.Utilisation();
    without += strict.Utilisation();
    heads += scheduled.heads();
    backfilled += scheduled.backfilled();
    if (HasFailure()) return;
  }
  std::printf("%ld heads, %ld jobs started before a head; utilisation %.3f, without backfill %.3f\n", static_cast<long>(heads),
              static_cast<long>(backfilled), with / kRounds, without / kRounds);
  EXPECT_GT(heads, 500);
  EXPECT_GT(backfilled, 500);
  EXPECT_GE(with, without);
}

TEST_F(Simulation, ThousandsOfJobsOnAnOverloadedCluster) {
  const Workload load = MakeWorkload(seed_, 12, 4000, {true, true});
  Scheduled scheduled(load, true);
  scheduled.Run();
  EXPECT_EQ(scheduled.still_waiting(), 0u);
  scheduled.CheckHeads();
}

// Predictions are wrong and some are missing: nothing is promised then but that every job gets its turn.
TEST_F(Simulation, WrongAndMissingPredictionsStarveNobody) {
  for (uint32_t round = 0; round < 20; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed_ << ", round " << round);
    const Workload load = MakeWorkload(seed_ + round, 1 + static_cast<int>(round) % 6, 200, {round % 2 == 1, false});
    Scheduled scheduled(load, false);
    scheduled.Run();
    EXPECT_EQ(scheduled.still_waiting(), 0u);
    EXPECT_EQ(scheduled.starts().size(), load.jobs.size());
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace legoai::scheduler

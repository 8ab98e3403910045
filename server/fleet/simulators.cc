#include "server/fleet/simulators.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "core/process/mutex.h"

namespace legoai::server {
namespace {

// How often a thread looks whether what it simulates is still wanted.
constexpr absl::Duration kLook = absl::Milliseconds(50);

absl::Duration SteadyNow() { return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); }

// What was asked together, and is given up together. `answers` and the rest are guarded by the pool's mutex.
struct Batch {
  bool dropped = false;
  std::deque<v1::SimResponse> answers;
  absl::Status failure;
  int64_t waiting = 0, running = 0;  // simulations
  absl::Duration starved;            // for so long some waited and none ran, up to the last change of that
  absl::Duration since;              // that change

  bool IsStarved() const { return waiting > 0 && running == 0; }
  absl::Duration StarvedUntil(absl::Duration now) const { return IsStarved() ? starved + (now - since) : starved; }
  void Count(int64_t more_waiting, int64_t more_running) {
    const absl::Duration now = SteadyNow();
    starved = StarvedUntil(now);
    since = now;
    waiting += more_waiting;
    running += more_running;
  }
};

struct Task {
  v1::SimRequest request;
  std::shared_ptr<Batch> batch;
};

}  // namespace

class Simulators::Pool {
 public:
  Pool(std::function<std::unique_ptr<planner::Estimator>()> make, int64_t processes)
      : make_(std::move(make)), running_(static_cast<size_t>(processes)) {
    for (size_t i = 0; i < running_.size(); ++i) threads_.emplace_back([this, i] { Work(i); });
  }
  ~Pool() {
    {
      const MutexLock lock(mutex_);
      ending_ = true;
    }
    changed_.NotifyAll();
    for (std::thread& thread : threads_) thread.join();
  }

  int64_t processes() const { return static_cast<int64_t>(threads_.size()); }

  void Prepare() {
    {
      const MutexLock lock(mutex_);
      ++prepared_;
    }
    changed_.NotifyAll();
  }

  void Add(const std::string& group, Task task) {
    {
      const MutexLock lock(mutex_);
      task.batch->Count(1, 0);
      waiting_[group].push_back(std::move(task));
      MakeRoom();
    }
    changed_.NotifyAll();
  }

  absl::StatusOr<std::optional<v1::SimResponse>> Await(Batch& batch, absl::Duration timeout) {
    const auto until = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(std::min(timeout, absl::Hours(1)));
    MutexLock lock(mutex_);
    while (batch.answers.empty() && batch.failure.ok()) {
      if (!changed_.WaitUntil(lock, until)) return std::optional<v1::SimResponse>();
    }
    if (batch.answers.empty()) return batch.failure;
    std::optional<v1::SimResponse> answer = std::move(batch.answers.front());
    batch.answers.pop_front();
    return answer;
  }

  // Gives how long it was starved.
  absl::Duration Drop(Batch& batch) {
    const MutexLock lock(mutex_);
    batch.dropped = true;
    return batch.StarvedUntil(SteadyNow());
  }

  absl::Duration Clock(const Batch& batch) {
    const MutexLock lock(mutex_);
    const absl::Duration now = SteadyNow();
    return now - batch.StarvedUntil(now);
  }

 private:
  // What one of the threads simulates.
  struct Running {
    std::string group;
    Task task;
    int64_t begun = 0;       // counts simulations
    bool gives_way = false;  // to a group that has no process at all
  };

  void Work(size_t thread) {
    const std::unique_ptr<planner::Estimator> estimator = make_();
    int64_t prepared = 0;
    while (true) {
      std::optional<Task> task;
      {
        MutexLock lock(mutex_);
        while (!ending_ && !(task = Next(thread)) && prepared == prepared_) changed_.Wait(lock);
        if (ending_) return;
        prepared = prepared_;
      }
      if (!task) {
        estimator->Prepare();
        continue;
      }
      Simulate(thread, *task, *estimator);
      const MutexLock lock(mutex_);
      task->batch->Count(0, -1);
      running_[thread].reset();
    }
  }

  int64_t ProcessesOf(const std::string& group) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::count_if(running_.begin(), running_.end(), [&](const auto& one) { return one && one->group == group; });
  }

  // Without those that it gives up.
  int64_t KeptBy(const std::string& group) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::count_if(running_.begin(), running_.end(),
                         [&](const auto& one) { return one && one->group == group && !one->gives_way; });
  }

  // Of the group with the fewest processes; where several have as few, they take turns by name.
  std::optional<Task> Next(size_t thread) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    while (!waiting_.empty()) {
      auto chosen = waiting_.end();
      std::pair<int64_t, bool> least;
      for (auto group = waiting_.begin(); group != waiting_.end(); ++group) {
        const std::pair<int64_t, bool> rank = {ProcessesOf(group->first), group->first <= last_};
        if (chosen == waiting_.end() || rank < least) chosen = group, least = rank;
      }
      const std::string group = last_ = chosen->first;
      Task task = std::move(chosen->second.front());
      chosen->second.pop_front();
      if (chosen->second.empty()) waiting_.erase(chosen);
      if (task.batch->dropped) continue;
      task.batch->Count(-1, 1);
      running_[thread] = Running{group, task, ++begun_, false};
      MakeRoom();
      return task;
    }
    return std::nullopt;
  }

  // A simulation may take minutes. Where all processes are others' and a group has several of them, its latest simulation is put
  // off for one that has none.
  void MakeRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    int64_t wanted = 0;
    for (const auto& [group, tasks] : waiting_) wanted += ProcessesOf(group) == 0;
    for (const std::optional<Running>& one : running_) wanted -= !one || one->gives_way;
    for (; wanted > 0; --wanted) {
      Running* latest = nullptr;
      for (std::optional<Running>& one : running_) {
        if (!one || one->gives_way || KeptBy(one->group) < 2) continue;
        if (latest == nullptr || one->begun > latest->begun) latest = &*one;
      }
      if (latest == nullptr) return;
      latest->gives_way = true;
    }
  }

  void Simulate(size_t thread, const Task& task, planner::Estimator& estimator) {
    if (const absl::Status started = estimator.Start(task.request); !started.ok()) return Fail(*task.batch, started);
    while (GoesOn(thread)) {
      auto answer = estimator.Wait(kLook);
      if (!answer.ok()) return Fail(*task.batch, answer.status());
      if (!*answer) continue;
      const bool last = !(*answer)->has_progress();
      Give(*task.batch, **std::move(answer));
      if (last) return;
    }
    estimator.StopAll();
    const MutexLock lock(mutex_);
    if (!running_[thread]->gives_way || task.batch->dropped) return;
    task.batch->Count(1, 0);
    waiting_[running_[thread]->group].push_front(task);
    changed_.NotifyAll();
  }

  bool GoesOn(size_t thread) {
    const MutexLock lock(mutex_);
    return !ending_ && !running_[thread]->gives_way && !running_[thread]->task.batch->dropped;
  }
  void Give(Batch& batch, v1::SimResponse answer) {
    {
      const MutexLock lock(mutex_);
      batch.answers.push_back(std::move(answer));
    }
    changed_.NotifyAll();
  }
  void Fail(Batch& batch, const absl::Status& why) {
    {
      const MutexLock lock(mutex_);
      batch.failure.Update(why);
    }
    changed_.NotifyAll();
  }

  const std::function<std::unique_ptr<planner::Estimator>()> make_;
  Mutex mutex_;
  Condition changed_;
  std::map<std::string, std::deque<Task>> waiting_ ABSL_GUARDED_BY(mutex_);  // by group
  std::vector<std::optional<Running>> running_ ABSL_GUARDED_BY(mutex_);      // by thread
  std::string last_ ABSL_GUARDED_BY(mutex_);                                 // the group that had the last turn
  int64_t begun_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t prepared_ ABSL_GUARDED_BY(mutex_) = 0;  // so often all were to be made ready
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;  // last: they use the rest
};

class Simulators::Member : public SimulatorShare {
 public:
  Member(Pool& pool, std::string group) : pool_(pool), group_(std::move(group)) {}
  ~Member() override { pool_.Drop(*batch_); }

  int64_t Slots() const override { return pool_.processes(); }
  void Prepare() override { pool_.Prepare(); }
  absl::Status Start(const v1::SimRequest& request) override {
    pool_.Add(group_, {request, batch_});
    return absl::OkStatus();
  }
  absl::StatusOr<std::optional<v1::SimResponse>> Wait(absl::Duration timeout) override { return pool_.Await(*batch_, timeout); }
  void StopAll() override {
    starved_ += pool_.Drop(*batch_);
    batch_ = std::make_shared<Batch>();
  }
  absl::Duration Clock() const override { return pool_.Clock(*batch_) - starved_; }

 private:
  Pool& pool_;
  const std::string group_;
  absl::Duration starved_;  // in earlier batches
  std::shared_ptr<Batch> batch_ = std::make_shared<Batch>();
};

Simulators::Simulators(std::function<std::unique_ptr<planner::Estimator>()> make, int64_t processes)
    : pool_(std::make_unique<Pool>(std::move(make), processes)) {}

Simulators::~Simulators() = default;

std::unique_ptr<SimulatorShare> Simulators::Share(const std::string& group) {
  return std::make_unique<Member>(*pool_, group);
}

}  // namespace legoai::server

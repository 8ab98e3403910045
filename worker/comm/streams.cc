#include "worker/comm/streams.h"

#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "core/process/mutex.h"
#include "core/trace/annotation.h"

namespace legoai::comm {
namespace {

// A thread that runs what was posted, in order.
class WorkerThread {
 public:
  WorkerThread() : thread_([this] { Run(); }) {}
  ~WorkerThread() {
    {
      const MutexLock lock(mutex_);
      stop_ = true;
    }
    changed_.NotifyAll();
    thread_.join();
  }
  void Post(std::function<void()> work) {
    {
      const MutexLock lock(mutex_);
      queue_.push_back(std::move(work));
    }
    changed_.NotifyAll();
  }
  void Drain() {
    MutexLock lock(mutex_);
    while (!(queue_.empty() && !busy_)) changed_.Wait(lock);
  }

 private:
  void Run() {
    MutexLock lock(mutex_);
    for (;;) {
      while (!stop_ && queue_.empty()) changed_.Wait(lock);
      if (queue_.empty()) return;
      std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      busy_ = true;
      lock.Unlock();
      work();
      work = nullptr;  // what it held goes before the next piece of work runs
      lock.Lock();
      busy_ = false;
      changed_.NotifyAll();
    }
  }

  Mutex mutex_;
  Condition changed_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false, busy_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

class ThreadStreams : public Streams {
 public:
  absl::Status Post(int64_t stream, std::function<absl::Status()> work) override {
    if (stream == kCompute) return work();
    Thread(stream).Post([this, work = std::move(work)] {
      if (Failed()) return;  // nothing after a failure can be right
      if (absl::Status status = work(); !status.ok()) Fail(std::move(status));
    });
    return absl::OkStatus();
  }

  absl::Status Record(int64_t stream, int64_t event) override {
    uint64_t generation;
    {
      const MutexLock lock(mutex_);
      generation = ++events_[event].recorded;
    }
    auto done = [this, event, generation] {
      {
        const MutexLock lock(mutex_);
        events_[event].done = generation;
      }
      changed_.NotifyAll();
    };
    if (stream == kCompute) {
      done();
    } else {
      Thread(stream).Post(done);
    }
    return absl::OkStatus();
  }

  absl::Status Wait(int64_t stream, int64_t event) override {
    uint64_t generation;
    {
      const MutexLock lock(mutex_);
      generation = events_[event].recorded;
    }
    auto wait = [this, event, generation] {
      MutexLock lock(mutex_);
      while (!(events_[event].done >= generation)) changed_.Wait(lock);
    };
    if (stream != kCompute) {
      Thread(stream).Post(wait);
      return absl::OkStatus();
    }
    wait();
    const MutexLock lock(mutex_);
    return failure_;
  }

  absl::Status Drain() override {
    for (auto& [_, thread] : threads_) thread->Drain();
    const MutexLock lock(mutex_);
    return failure_;
  }

 private:
  struct Event {
    uint64_t recorded = 0, done = 0;  // generations
  };
  WorkerThread& Thread(int64_t stream) {
    auto& thread = threads_[stream];
    if (!thread) thread = std::make_unique<WorkerThread>();
    return *thread;
  }
  bool Failed() {
    const MutexLock lock(mutex_);
    return !failure_.ok();
  }
  void Fail(absl::Status status) {
    const MutexLock lock(mutex_);
    if (failure_.ok()) failure_ = std::move(status);
  }

  Mutex mutex_;
  Condition changed_;
  std::map<int64_t, Event> events_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, std::unique_ptr<WorkerThread>> threads_;  // last: joined before the rest goes
};

class FakeStreams : public Streams {
 public:
  absl::Status Post(int64_t, std::function<absl::Status()>) override { return absl::OkStatus(); }
  absl::Status Record(int64_t, int64_t) override { return absl::OkStatus(); }
  absl::Status Wait(int64_t, int64_t) override { return absl::OkStatus(); }
  absl::Status Drain() override { return absl::OkStatus(); }
};

class HostTimer : public DeviceTimer {
 public:
  absl::Status Start() override {
    start_ = std::chrono::steady_clock::now();
    return absl::OkStatus();
  }
  absl::StatusOr<double> Stop() override {
    const auto now = std::chrono::steady_clock::now();
    if (!start_) return absl::FailedPreconditionError("the timer was stopped and not started");
    const double seconds = std::chrono::duration<double>(now - *start_).count();
    start_.reset();
    return seconds;
  }

 private:
  std::optional<std::chrono::steady_clock::time_point> start_;
};

}  // namespace

std::unique_ptr<Streams> MakeThreadStreams() { return std::make_unique<ThreadStreams>(); }
std::unique_ptr<Streams> MakeFakeStreams() { return std::make_unique<FakeStreams>(); }
std::unique_ptr<DeviceTimer> MakeHostTimer() { return std::make_unique<HostTimer>(); }

}  // namespace legoai::comm

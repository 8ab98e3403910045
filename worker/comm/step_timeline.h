// What a rank's step spends its time on: phases, each communication from start to end, and when the compute stream waits.
//
// A timeline listens between Begin() and End(); then Runtime notes communication and waits in it, the trainer phases, and the
// recorder of worker/graph each operator that it records. At other times, and in a capture, they look at a null pointer. Where
// work is done when its calls return (CPU), moments are those of the host's clock; elsewhere they are marks in the work of the
// streams, read when the device has passed them all (DeviceClock).
//
// Begin, End and what the step dispatches are of the dispatching threads, one at a time; a call's start and end come from the
// thread of its stream. Units: nanoseconds since Begin().
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/process/mutex.h"
#include "core/trace/trace.h"

namespace legoai::comm {

// Marks with times, of a device whose calls return before their work is done.
class DeviceClock {
 public:
  class Mark {
   public:
    virtual ~Mark() = default;
  };
  virtual ~DeviceClock() = default;
  // Behind what has been enqueued on the current stream: out of posted work, the one that it is posted on. Null: there is none to
  // be had.
  virtual std::unique_ptr<Mark> Now() = 0;
  // Between two marks that the device has passed. Errors: Unavailable, in the device's words.
  virtual absl::StatusOr<double> Seconds(const Mark& from, const Mark& to) = 0;
};

struct TimeSpan {
  int64_t begin_ns = 0, end_ns = 0;
  int64_t length_ns() const { return end_ns - begin_ns; }
};

inline constexpr int64_t kNotRecorded = -1;

// A step as it went. Lists are in the order in which they were dispatched.
struct StepTimes {
  struct Phase {
    graph::Phase phase = graph::Phase::kInit;
    TimeSpan span;
  };
  struct Call {
    const char* kind = "";  // "all_gather"
    int64_t group = 0, stream = 0;
    int64_t instruction = kNotRecorded;  // of the recorder's Trace
    TimeSpan span;
  };
  struct Operator {
    int64_t instruction = kNotRecorded;
    TimeSpan span;
  };
  int64_t length_ns = 0;
  std::vector<Phase> phases;
  std::vector<Call> calls;
  std::vector<TimeSpan> waits;  // of the compute stream, for other streams; its own communication is in `calls` alone
  std::vector<Operator> operators;
};

class StepTimeline {
 public:
  // Null: the host's clock.
  explicit StepTimeline(std::unique_ptr<DeviceClock> clock = nullptr);
  ~StepTimeline();
  StepTimeline(const StepTimeline&) = delete;
  StepTimeline& operator=(const StepTimeline&) = delete;

  // The timeline that listens now; null: none.
  static StepTimeline* Current();

  // Forgets what was noted before. One timeline listens at a time.
  void Begin();
  // After Runtime::Drain(). Nothing is listened to from here on, whatever comes back. Errors: those of the device's clock.
  absl::StatusOr<StepTimes> End();
  // Listens no more and forgets, as after a step that failed.
  void Discard();

  // Each opens an entry and gives its number, for Close.
  size_t OpenPhase(graph::Phase phase);
  size_t OpenWait();
  size_t OpenOperator(int64_t instruction);
  void Close(size_t entry);
  // Of a communication that is being dispatched; it starts, and ends, when Start and Close are called.
  size_t AddCall(const char* kind, int64_t group, int64_t stream);
  void Start(size_t entry);

 private:
  struct Moment {
    std::chrono::steady_clock::time_point host;
    std::unique_ptr<DeviceClock::Mark> mark;
  };
  struct Entry {
    enum class Kind { kPhase, kWait, kOperator, kCall };
    explicit Entry(Kind k) : kind(k) {}
    Kind kind;
    graph::Phase phase = graph::Phase::kInit;
    StepTimes::Call call;  // of a call; of an operator its instruction
    Moment begin, end;
    bool ended = false;
  };
  Moment Now();
  size_t Open(Entry entry);
  absl::StatusOr<int64_t> Nanoseconds(const Moment& moment) const;
  absl::StatusOr<StepTimes> Read(const std::vector<Entry>& entries, const Moment& end) const;

  const std::unique_ptr<DeviceClock> clock_;
  Mutex mutex_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  int64_t instruction_ = kNotRecorded;  // of the operator that runs
  Moment begin_;
};

// An entry for as long as it lives, in the timeline that listens; none where none does.
class TimelineScope {
 public:
  static TimelineScope Phase(graph::Phase phase);
  static TimelineScope Wait();
  static TimelineScope Operator(int64_t instruction);
  ~TimelineScope() {
    if (timeline_ != nullptr && timeline_ == StepTimeline::Current()) timeline_->Close(entry_);
  }
  TimelineScope(const TimelineScope&) = delete;
  TimelineScope& operator=(const TimelineScope&) = delete;

 private:
  TimelineScope(StepTimeline* timeline, size_t entry) : timeline_(timeline), entry_(entry) {}
  StepTimeline* const timeline_;
  const size_t entry_;
};

}  // namespace legoai::comm

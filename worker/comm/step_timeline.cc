#include "worker/comm/step_timeline.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "proto/status.h"

namespace legoai::comm {
namespace {

std::atomic<StepTimeline*> g_current{nullptr};  // set by StepTimeline alone

// CUDA gives the time between two events as a float of milliseconds, which across a minute is good to 4 us only. A mark is
// therefore timed from another one, at most about half a second before it, whose own time is known: so the float is good to 0.03
// us. They are as far apart as this or more, so that which of the two came first is known from rough times.
constexpr int64_t kAnchorNs = 500'000'000, kApartNs = 1'000'000;

// Of marks that `rough` times from `begin`. Nanoseconds.
absl::StatusOr<std::vector<int64_t>> TimesOf(const std::vector<const DeviceClock::Mark*>& marks,
                                             const std::vector<int64_t>& rough, const DeviceClock::Mark& begin,
                                             DeviceClock& clock) {
  std::vector<size_t> order(marks.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rough[a] < rough[b]; });
  std::vector<int64_t> times = rough;
  const DeviceClock::Mark* anchor = &begin;
  int64_t anchor_time = 0;
  size_t next = 0;  // the first in order that is not far enough before the one that is timed
  for (const size_t i : order) {
    while (rough[order[next]] <= rough[i] - kApartNs) ++next;
    if (rough[i] - anchor_time > kAnchorNs && next > 0 && times[order[next - 1]] > anchor_time) {
      anchor = marks[order[next - 1]];
      anchor_time = times[order[next - 1]];
    }
    if (anchor == &begin) continue;
    ASSIGN_OR_RETURN(const double seconds, clock.Seconds(*anchor, *marks[i]));
    times[i] = anchor_time + std::llround(1e9 * seconds);
  }
  return times;
}

}  // namespace

StepTimeline* StepTimeline::Current() { return g_current.load(std::memory_order_acquire); }

StepTimeline::StepTimeline(std::unique_ptr<DeviceClock> clock) : clock_(std::move(clock)) {}
StepTimeline::~StepTimeline() { Discard(); }

StepTimeline::Moment StepTimeline::Now() {
  return {std::chrono::steady_clock::now(), clock_ != nullptr ? clock_->Now() : nullptr};
}

void StepTimeline::Begin() {
  Discard();
  begin_ = Now();
  g_current.store(this, std::memory_order_release);
}

void StepTimeline::Discard() {
  StepTimeline* self = this;
  g_current.compare_exchange_strong(self, nullptr);
  const MutexLock lock(mutex_);
  entries_.clear();
  instruction_ = kNotRecorded;
}

absl::StatusOr<StepTimes> StepTimeline::End() {
  const Moment end = Now();
  std::vector<Entry> entries;
  {
    const MutexLock lock(mutex_);
    entries.swap(entries_);
  }
  Discard();
  return Read(entries, end);
}

absl::StatusOr<StepTimes> StepTimeline::Read(const std::vector<Entry>& entries, const Moment& end) const {
  std::vector<const Moment*> moments = {&end};
  for (const Entry& entry : entries) {
    if (!entry.ended) return absl::InternalError(std::string("a step ended while it still timed ") + entry.call.kind);
    moments.insert(moments.end(), {&entry.begin, &entry.end});
  }
  std::vector<int64_t> at;
  std::vector<const DeviceClock::Mark*> marks;
  for (const Moment* moment : moments) {
    ASSIGN_OR_RETURN(const int64_t rough, Nanoseconds(*moment));
    at.push_back(rough);
    marks.push_back(moment->mark.get());
  }
  if (clock_ != nullptr) {
    ASSIGN_OR_RETURN(at, TimesOf(marks, at, *begin_.mark, *clock_));
  }
  StepTimes times;
  times.length_ns = at[0];
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    const TimeSpan span = {at[1 + 2 * i], at[2 + 2 * i]};
    switch (entry.kind) {
      case Entry::Kind::kPhase: times.phases.push_back({entry.phase, span}); break;
      case Entry::Kind::kWait: times.waits.push_back(span); break;
      case Entry::Kind::kOperator: times.operators.push_back({entry.call.instruction, span}); break;
      case Entry::Kind::kCall: {
        times.calls.push_back(entry.call);
        times.calls.back().span = span;
        break;
      }
    }
  }
  return times;
}

// Of a device as good as the time between the two marks is told.
absl::StatusOr<int64_t> StepTimeline::Nanoseconds(const Moment& moment) const {
  if (clock_ == nullptr) return std::chrono::duration_cast<std::chrono::nanoseconds>(moment.host - begin_.host).count();
  if (begin_.mark == nullptr || moment.mark == nullptr)
    return absl::UnavailableError("the device gave no mark to time a step by");
  ASSIGN_OR_RETURN(const double seconds, clock_->Seconds(*begin_.mark, *moment.mark));
  return std::llround(1e9 * seconds);
}

size_t StepTimeline::Open(Entry entry) {
  entry.begin = Now();
  const MutexLock lock(mutex_);
  entries_.push_back(std::move(entry));
  return entries_.size() - 1;
}

size_t StepTimeline::OpenPhase(graph::Phase phase) {
  Entry entry(Entry::Kind::kPhase);
  entry.phase = phase;
  entry.call.kind = graph::PhaseName(phase);
  return Open(std::move(entry));
}

size_t StepTimeline::OpenWait() {
  Entry entry(Entry::Kind::kWait);
  entry.call.kind = "a wait";
  return Open(std::move(entry));
}

size_t StepTimeline::OpenOperator(int64_t instruction) {
  Entry entry(Entry::Kind::kOperator);
  entry.call.kind = "an operator";
  entry.call.instruction = instruction_ = instruction;
  return Open(std::move(entry));
}

size_t StepTimeline::AddCall(const char* kind, int64_t group, int64_t stream) {
  Entry entry(Entry::Kind::kCall);
  entry.call = {kind, group, stream, instruction_, {}};
  const MutexLock lock(mutex_);
  entries_.push_back(std::move(entry));
  return entries_.size() - 1;
}

void StepTimeline::Start(size_t entry) {
  Moment now = Now();
  const MutexLock lock(mutex_);
  if (entry < entries_.size()) entries_[entry].begin = std::move(now);  // or the step has failed meanwhile
}

void StepTimeline::Close(size_t entry) {
  Moment now = Now();
  const MutexLock lock(mutex_);
  if (entry >= entries_.size()) return;
  entries_[entry].end = std::move(now);
  entries_[entry].ended = true;
  if (entries_[entry].kind == Entry::Kind::kOperator) instruction_ = kNotRecorded;
}

TimelineScope TimelineScope::Phase(graph::Phase phase) {
  StepTimeline* timeline = StepTimeline::Current();
  return {timeline, timeline != nullptr ? timeline->OpenPhase(phase) : 0};
}

TimelineScope TimelineScope::Wait() {
  StepTimeline* timeline = StepTimeline::Current();
  return {timeline, timeline != nullptr ? timeline->OpenWait() : 0};
}

TimelineScope TimelineScope::Operator(int64_t instruction) {
  StepTimeline* timeline = StepTimeline::Current();
  return {timeline, timeline != nullptr ? timeline->OpenOperator(instruction) : 0};
}

}  // namespace legoai::comm

#include "worker/agent/telemetry_buffer.h"

#include <algorithm>
#include <utility>

namespace legoai::agent {
namespace {

bool MayBeDropped(const v1::Telemetry& fact) {
  return fact.has_metrics() || fact.has_log() || fact.has_progress() || fact.has_step_trace();
}

}  // namespace

TelemetryBuffer::TelemetryBuffer(int64_t limit_bytes, std::function<void()> added)
    : limit_bytes_(limit_bytes), added_(std::move(added)) {}

int64_t TelemetryBuffer::Add(v1::Telemetry fact) {
  int64_t sequence = 0;
  {
    const MutexLock lock(mutex_);
    sequence = ++last_;
    fact.set_sequence(sequence);
    const int64_t bytes = static_cast<int64_t>(fact.ByteSizeLong());
    if (MayBeDropped(fact)) {
      (fact.has_step_trace() ? traces_ : others_).push_back(sequence);
      droppable_bytes_ += bytes;
    }
    entries_.emplace(sequence, Entry{std::move(fact), bytes});
    while (droppable_bytes_ > limit_bytes_) DropOne();
  }
  if (added_) added_();
  return sequence;
}

void TelemetryBuffer::DropOne() {
  std::deque<int64_t>& numbers = traces_.empty() ? others_ : traces_;
  const auto oldest = entries_.find(numbers.front());
  numbers.pop_front();
  const int64_t bytes = oldest->second.bytes;
  droppable_bytes_ -= bytes;
  if (oldest->first <= given_) {
    --under_way_facts_;
    under_way_bytes_ -= bytes;
  }
  entries_.erase(oldest);
  ++dropped_;
}

std::optional<v1::Telemetry> TelemetryBuffer::Next() {
  const MutexLock lock(mutex_);
  if (under_way_facts_ >= kWindowFacts || under_way_bytes_ >= kWindowBytes) return std::nullopt;
  const auto next = entries_.upper_bound(given_);
  if (next == entries_.end()) return std::nullopt;
  given_ = next->first;
  ++under_way_facts_;
  under_way_bytes_ += next->second.bytes;
  return next->second.fact;
}

void TelemetryBuffer::Acknowledge(int64_t sequence) {
  const MutexLock lock(mutex_);
  // What was never sent cannot be durable.
  sequence = std::min(sequence, given_);
  acknowledged_ = std::max(acknowledged_, sequence);
  while (!entries_.empty() && entries_.begin()->first <= sequence) {
    const Entry& entry = entries_.begin()->second;
    --under_way_facts_;
    under_way_bytes_ -= entry.bytes;
    if (MayBeDropped(entry.fact)) droppable_bytes_ -= entry.bytes;
    entries_.erase(entries_.begin());
  }
  for (std::deque<int64_t>* numbers : {&traces_, &others_}) {
    while (!numbers->empty() && numbers->front() <= sequence) numbers->pop_front();
  }
}

void TelemetryBuffer::ReplayAfter(int64_t sequence) {
  Acknowledge(sequence);
  const MutexLock lock(mutex_);
  given_ = acknowledged_;
  under_way_facts_ = under_way_bytes_ = 0;
}

int64_t TelemetryBuffer::last() const {
  const MutexLock lock(mutex_);
  return last_;
}

int64_t TelemetryBuffer::acknowledged() const {
  const MutexLock lock(mutex_);
  return acknowledged_;
}

bool TelemetryBuffer::empty() const {
  const MutexLock lock(mutex_);
  return entries_.empty();
}

int64_t TelemetryBuffer::dropped() const {
  const MutexLock lock(mutex_);
  return dropped_;
}

}  // namespace legoai::agent

// Telemetry about leases for the server, kept until the server acknowledges that it is durable. Thread-safe.
//
// Facts are numbered from 1 for the life of the agent's process. When there are more bytes of traces of steps, metrics, log lines
// and progress than the limit, some are dropped: traces first, which are large, then the others, the oldest of each first. An
// agent whose server is away must not grow without bound. When an attempt began, how it ended, which checkpoints are left, and
// flight records are never dropped: there are few of them.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>

#include "core/process/mutex.h"
#include "proto/legoai/v1/worker_service.pb.h"

namespace legoai::agent {

// The most that may be in flight without acknowledgement, so that heartbeats never queue behind much telemetry.
inline constexpr int64_t kWindowFacts = 1000;
inline constexpr int64_t kWindowBytes = int64_t{1} << 20;

class TelemetryBuffer {
 public:
  // `added` is called after every fact, on the thread that added it.
  TelemetryBuffer(int64_t limit_bytes, std::function<void()> added);

  // Numbers the fact and keeps it; returns its number.
  int64_t Add(v1::Telemetry fact);

  // The next fact to send, in order. Nothing while the window is full or there is none.
  std::optional<v1::Telemetry> Next();

  // This fact and all before it are durable.
  void Acknowledge(int64_t sequence);
  // After a reconnection: facts after `sequence` are sent again.
  void ReplayAfter(int64_t sequence);

  int64_t last() const;          // number of the latest fact; 0: none
  int64_t acknowledged() const;  // all up to this one
  bool empty() const;            // all kept facts are acknowledged
  int64_t dropped() const;       // number of dropped facts

 private:
  struct Entry {
    v1::Telemetry fact;
    int64_t bytes = 0;
  };
  void DropOne() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int64_t limit_bytes_;
  const std::function<void()> added_;
  mutable Mutex mutex_;
  std::map<int64_t, Entry> entries_ ABSL_GUARDED_BY(mutex_);  // by number
  // Numbers of what may be dropped, ascending; acknowledged ones are gone.
  std::deque<int64_t> traces_ ABSL_GUARDED_BY(mutex_), others_ ABSL_GUARDED_BY(mutex_);
  int64_t droppable_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of both
  int64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t given_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t acknowledged_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t under_way_facts_ ABSL_GUARDED_BY(mutex_) = 0;  // given and not acknowledged
  int64_t under_way_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of those
};

}  // namespace legoai::agent

// Where a provider's keys come from: a file, or a URL that is read again every hour, and when a token names a key that is not
// there, since providers change their keys. What was read last counts while nothing better can be read. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/process/mutex.h"
#include "server/oidc/fetch.h"
#include "server/oidc/key_set.h"

namespace legoai::oidc {

struct KeySourceOptions {
  std::string place;  // a path, or a URL that passes CheckUrl
  FetchOptions fetch = {.most_bytes = kMostKeySetBytes};
  absl::Duration every = absl::Hours(1);
  // Between the end of one reading and the next at the least, however many tokens name keys that are not there.
  absl::Duration pause = absl::Seconds(30);
};

class KeySource {
 public:
  // Begins to read: a file at once, a URL on a thread of its own, since a provider that is away must not keep a server from its
  // start. What cannot be read, or is no set of keys, is told once in the log, and tried again.
  // Errors: a file cannot be read, or has no keys.
  static absl::StatusOr<std::unique_ptr<KeySource>> Open(const KeySourceOptions& options);
  // Waits for a reading to end, a second at the most.
  ~KeySource();
  KeySource(const KeySource&) = delete;
  KeySource& operator=(const KeySource&) = delete;

  std::shared_ptr<const KeySet> Keys() const;  // null: nothing was read yet

  // Asks for another reading. True: one is under way, or begins now; false: the last one is too short a time ago.
  bool ReadAgain();

 private:
  using Clock = std::chrono::steady_clock;

  explicit KeySource(const KeySourceOptions& options) : options_(options) {}
  absl::Status Read();
  void Tell(const absl::Status& status);
  void TellLeftOut(const KeySet& keys);
  void Run();

  const KeySourceOptions options_;
  std::atomic<bool> ends_ = false;
  mutable Mutex mutex_;
  Condition changed_;
  std::shared_ptr<const KeySet> keys_ ABSL_GUARDED_BY(mutex_);
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;  // until the reading that was asked for has ended
  Clock::time_point next_ ABSL_GUARDED_BY(mutex_) = {}, earliest_ ABSL_GUARDED_BY(mutex_) = {};
  // What the log was told last; of the thread alone.
  bool failed_ = false;
  std::string left_out_;
  std::thread thread_;
};

}  // namespace legoai::oidc

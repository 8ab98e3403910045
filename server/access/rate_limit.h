// How many calls a caller may make: a bucket for each, that fills with time. Thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>

#include "core/process/mutex.h"

namespace legoai::access {

class RateLimit {
 public:
  using Clock = std::chrono::steady_clock;

  // `per_second` calls in the long run, and `burst` at once; 0 per second: as many as they like.
  RateLimit(double per_second, double burst, std::function<Clock::time_point()> now = Clock::now);

  // Whether one more call of this caller is allowed, which then counts.
  bool Take(const std::string& caller);

  size_t callers() const;  // that are remembered: those whose buckets are not full

 private:
  struct Bucket {
    double left;
    Clock::time_point at;
  };
  double Left(const Bucket& bucket, Clock::time_point now) const;
  void Forget(Clock::time_point now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const double per_second_, burst_;
  const std::function<Clock::time_point()> now_;
  mutable Mutex mutex_;
  std::map<std::string, Bucket> buckets_ ABSL_GUARDED_BY(mutex_);
  Clock::time_point forgotten_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace legoai::access

#include "server/access/rate_limit.h"

#include <algorithm>
#include <utility>

namespace legoai::access {
namespace {

// Full buckets go so often: what strangers' addresses take is bounded by what fills meanwhile.
constexpr std::chrono::seconds kForget{10};
// More callers than this that are not full share one bucket.
constexpr size_t kMostCallers = 100'000;
const char* const kOthers = "others";

}  // namespace

RateLimit::RateLimit(double per_second, double burst, std::function<Clock::time_point()> now)
    : per_second_(per_second), burst_(std::max(1.0, burst)), now_(std::move(now)), forgotten_(now_()) {}

double RateLimit::Left(const Bucket& bucket, Clock::time_point now) const {
  return std::min(burst_, bucket.left + per_second_ * std::chrono::duration<double>(now - bucket.at).count());
}

void RateLimit::Forget(Clock::time_point now) {
  if (now < forgotten_ + kForget) return;
  forgotten_ = now;
  std::erase_if(buckets_, [&](const auto& one) { return Left(one.second, now) >= burst_; });
}

bool RateLimit::Take(const std::string& caller) {
  if (per_second_ <= 0) return true;
  const Clock::time_point now = now_();
  const MutexLock lock(mutex_);
  Forget(now);
  const bool is_known = buckets_.size() < kMostCallers || buckets_.count(caller) > 0;
  Bucket& bucket = buckets_.try_emplace(is_known ? caller : kOthers, Bucket{burst_, now}).first->second;
  bucket = {Left(bucket, now), now};
  if (bucket.left < 1) return false;
  bucket.left -= 1;
  return true;
}

size_t RateLimit::callers() const {
  const MutexLock lock(mutex_);
  return buckets_.size();
}

}  // namespace legoai::access

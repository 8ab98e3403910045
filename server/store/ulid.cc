#include "server/store/ulid.h"

#include <sys/random.h>

#include <algorithm>

namespace legoai::store {
namespace {

constexpr std::string_view kDigits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
constexpr int64_t kMaxMilliseconds = (int64_t{1} << 48) - 1;
constexpr uint64_t kMaxHigh = (1 << 16) - 1;

// 26 digits of 5 bits hold 130: the first one has 3 bits of its own.
std::string Encode(uint64_t milliseconds, uint64_t high, uint64_t low) {
  unsigned __int128 value = (static_cast<unsigned __int128>(milliseconds << 16 | high) << 64) | low;
  std::string text(26, '0');
  for (auto digit = text.rbegin(); digit != text.rend(); ++digit, value >>= 5) *digit = kDigits[static_cast<size_t>(value & 31)];
  return text;
}

}  // namespace

std::string UlidSource::Next() {
  const MutexLock lock(mutex_);
  const int64_t now = std::clamp<int64_t>(clock_us_() / 1000, 0, kMaxMilliseconds);
  const bool counts_on = now <= milliseconds_ && (high_ < kMaxHigh || low_ < UINT64_MAX);
  if (counts_on) {
    if (++low_ == 0) ++high_;
    return Encode(milliseconds_, high_, low_);
  }
  // Also where the random bits of a millisecond are used up: the next one is taken in advance.
  milliseconds_ = std::max(now, milliseconds_ + 1);
  high_ = random_() & kMaxHigh;
  low_ = random_();
  return Encode(milliseconds_, high_, low_);
}

uint64_t SystemRandom() {
  uint64_t bits = 0;
  // Up to 256 bytes come whole once the source is seeded; before that the call waits, and a signal may interrupt it.
  while (getrandom(&bits, sizeof(bits), 0) != sizeof(bits)) {
  }
  return bits;
}

bool IsUlid(std::string_view text) {
  return text.size() == 26 && text[0] <= '7' &&
         std::all_of(text.begin(), text.end(), [](char c) { return kDigits.find(c) != std::string_view::npos; });
}

int64_t UlidMilliseconds(std::string_view ulid) {
  int64_t milliseconds = 0;
  for (char c : ulid.substr(0, 10)) milliseconds = milliseconds * 32 + static_cast<int64_t>(kDigits.find(c));
  return milliseconds;
}

}  // namespace legoai::store

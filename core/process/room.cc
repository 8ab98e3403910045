#include "core/process/room.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/quantity_text.h"

namespace legoai::launch {
namespace {

constexpr absl::Duration kFirstPause = absl::Seconds(1), kLongestPause = absl::Seconds(30);
constexpr absl::Duration kBeat = absl::Milliseconds(100);

}  // namespace

std::string WaitsForRoom(const std::string& what, const std::string& path, int64_t bytes, int64_t free,
                         const absl::Status& full) {
  if (free >= bytes) return absl::StrCat("the disk is full: ", full.message());
  return absl::StrCat("the disk of ", path, " is full: ", BytesText(free), " are free of the ", BytesText(bytes), " that ", what,
                      " takes");
}

absl::Status DoWhenThereIsRoom(const std::function<absl::Status()>& work, const std::function<void(const std::string&)>& waits,
                               const std::function<bool()>& stop) {
  bool waited = false;
  for (absl::Duration pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    const absl::Status done = work();
    if (!absl::IsResourceExhausted(done)) {
      if (waited) waits("");
      return done;
    }
    waited = true;
    waits(absl::StrCat("the disk is full: ", done.message()));
    for (absl::Duration slept; slept < pause; slept += kBeat) {
      if (stop()) return done;
      absl::SleepFor(kBeat);
    }
  }
}

}  // namespace legoai::launch

#include "worker/train/room.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/checkpoint/directory.h"
#include "core/process/room.h"
#include "proto/status.h"

namespace legoai::train {
namespace {

constexpr absl::Duration kLook = absl::Seconds(1);
constexpr absl::Duration kBeat = absl::Milliseconds(100);
constexpr absl::Duration kLongestPause = absl::Seconds(30);

// What the ranks wish; the largest counts.
enum Wish : int64_t { kWait, kTry, kStop };

// A second, or until this rank is asked to stop. The launcher hears that it lives.
void WaitALook(launch::TrainerLink& link) {
  using StopRequest = launch::TrainerLink::StopRequest;
  for (absl::Duration waited; waited < kLook && link.stop_request() == StopRequest::kNone; waited += kBeat) {
    absl::SleepFor(kBeat);
    link.Advance(0);
  }
}

// Until it is worth another try (true), or some rank was asked to stop.
absl::StatusOr<bool> AwaitRoom(launch::TrainerLink& link, const RoomFor& room, const MaxOfRanks& max, const absl::Status& full,
                               absl::Duration pause) {
  for (absl::Duration waited = kLook;; waited += kLook) {
    const int64_t free = checkpoint::FreeBytesOnDisk(room.path).value_or(0);
    RETURN_IF_ERROR(link.SendWaits(launch::WaitsForRoom(room.what, room.path, room.bytes, free, full)));
    WaitALook(link);
    RETURN_IF_ERROR(room.make ? room.make() : absl::OkStatus());
    const bool enough = checkpoint::FreeBytesOnDisk(room.path).value_or(0) >= room.bytes;
    int64_t wish = waited >= pause && enough && link.start().rank() == 0 ? kTry : kWait;
    if (max == nullptr && waited >= pause && enough) wish = kTry;
    if (link.stop_request() != launch::TrainerLink::StopRequest::kNone) wish = kStop;
    if (max != nullptr) {
      RETURN_IF_ERROR(link.Meet());
      ASSIGN_OR_RETURN(wish, max(wish));
    }
    if (wish != kWait) return wish == kTry;
  }
}

}  // namespace

absl::StatusOr<bool> DoWhenThereIsRoom(launch::TrainerLink& link, const RoomFor& room, const MaxOfRanks& max,
                                       const std::function<absl::Status()>& work) {
  for (absl::Duration pause = kLook;; pause = std::min(2 * pause, kLongestPause)) {
    const absl::Status done = work();
    if (done.ok()) return true;
    if (!absl::IsResourceExhausted(done)) return done;
    ASSIGN_OR_RETURN(const bool again, AwaitRoom(link, room, max, done, pause));
    RETURN_IF_ERROR(link.SendWaits(""));
    if (again) continue;
    // One of those that wait together says it.
    if (max == nullptr || link.start().rank() == 0)
      link.SendLog("warning", absl::StrCat("asked to stop while it waited for room: ", done.message())).IgnoreError();
    return false;
  }
}

}  // namespace legoai::train

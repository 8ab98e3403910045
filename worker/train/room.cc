#include "worker/train/room.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/checkpoint/directory.h"
#include "core/process/run_directory.h"
#include "proto/status.h"

namespace legoai::train {
namespace {

constexpr absl::Duration kInterval = absl::Seconds(1);
constexpr absl::Duration kHeartbeat = absl::Milliseconds(100);
constexpr absl::Duration kLongestPause = absl::Seconds(30);

// What a rank wants next; the largest of all ranks counts.
enum Vote : int64_t { kWait, kTry, kStop };

// A second, or until this rank is asked to stop. The launcher hears that it lives.
void Pause(launch::TrainerLink& link) {
  using StopRequest = launch::TrainerLink::StopRequest;
  for (absl::Duration waited; waited < kInterval && link.stop_request() == StopRequest::kNone; waited += kHeartbeat) {
    absl::SleepFor(kHeartbeat);
    link.Advance(0);
  }
}

// Until it is worth another try (true), or some rank was asked to stop.
absl::StatusOr<bool> AwaitRoom(launch::TrainerLink& link, const RoomFor& room, const MaxOfRanks& max, const absl::Status& full,
                               absl::Duration pause) {
  for (absl::Duration waited = kInterval;; waited += kInterval) {
    const int64_t free = checkpoint::FreeBytesOnDisk(room.path).value_or(0);
    RETURN_IF_ERROR(link.SendWaits(launch::WaitsForRoom(room.what, room.path, room.bytes, free, full)));
    Pause(link);
    RETURN_IF_ERROR(room.make ? room.make() : absl::OkStatus());
    const bool enough = checkpoint::FreeBytesOnDisk(room.path).value_or(0) >= room.bytes;
    int64_t vote = waited >= pause && enough && link.start().rank() == 0 ? kTry : kWait;
    if (max == nullptr && waited >= pause && enough) vote = kTry;
    if (link.stop_request() != launch::TrainerLink::StopRequest::kNone) vote = kStop;
    if (max != nullptr) {
      RETURN_IF_ERROR(link.Meet());
      ASSIGN_OR_RETURN(vote, max(vote));
    }
    if (vote != kWait) return vote == kTry;
  }
}

}  // namespace

absl::StatusOr<bool> DoWhenThereIsRoom(launch::TrainerLink& link, const RoomFor& room, const MaxOfRanks& max,
                                       const std::function<absl::Status()>& work) {
  for (absl::Duration pause = kInterval;; pause = std::min(2 * pause, kLongestPause)) {
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

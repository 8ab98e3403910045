#include "core/process/room.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace legoai::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(RoomTest, SaysHowMuchIsFreeOfWhatIsNeeded) {
  const absl::Status full = absl::ResourceExhaustedError("rank-00000.bin: cannot write: Disk quota exceeded");
  EXPECT_EQ(WaitsForRoom("a checkpoint", "/runs/j", int64_t{340} << 20, int64_t{12} << 20, full),
            "the disk of /runs/j is full: 12.0 MiB are free of the 340 MiB that a checkpoint takes");
  EXPECT_EQ(WaitsForRoom("a checkpoint", "/runs/j", 280 << 10, 4096, full),
            "the disk of /runs/j is full: 4.00 KiB are free of the 280 KiB that a checkpoint takes");
  EXPECT_EQ(WaitsForRoom("a checkpoint", "/runs/j", 100, 100, full),
            "the disk is full: rank-00000.bin: cannot write: Disk quota exceeded")
      << "a quota";
}

TEST(RoomTest, TriesAgainUntilThereIsRoomAndSaysWhy) {
  std::vector<std::string> waits;
  int tries = 0;
  const absl::Status done =
      DoWhenThereIsRoom([&] { return ++tries < 3 ? absl::ResourceExhaustedError("run.json: no space") : absl::OkStatus(); },
                        [&](const std::string& why) { waits.push_back(why); }, [] { return false; });
  EXPECT_TRUE(done.ok()) << done;
  EXPECT_EQ(tries, 3);
  EXPECT_THAT(waits, ElementsAre("the disk is full: run.json: no space", "the disk is full: run.json: no space", ""));
}

TEST(RoomTest, WhatIsNoFullDiskIsNotWaitedFor) {
  std::vector<std::string> waits;
  const auto keep = [&](const std::string& why) { waits.push_back(why); };
  for (const absl::Status& status : {absl::OkStatus(), absl::PermissionDeniedError("x"), absl::UnavailableError("x")})
    EXPECT_EQ(DoWhenThereIsRoom([&] { return status; }, keep, [] { return false; }), status);
  EXPECT_THAT(waits, IsEmpty());
}

TEST(RoomTest, EndsWhenAsked) {
  const absl::Status full = absl::ResourceExhaustedError("x");
  int asked = 0;
  EXPECT_EQ(DoWhenThereIsRoom([&] { return full; }, [](const std::string&) {}, [&] { return ++asked == 3; }), full);
}

}  // namespace
}  // namespace legoai::launch

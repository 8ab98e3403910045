// Schedules as CSV: what is accepted is sound, passes under the strictest transport, and says the same when it is written and
// read again.
#include <gtest/gtest.h>

#include "core/schedule/lowering.h"
#include "core/schedule/schedule_csv.h"
#include "tests/fuzz/fuzz.h"

namespace legoai::fuzz {
namespace {

absl::Status Parse(const std::string& text) {
  const auto schedule = parallel::ParseScheduleCsv("csv", text);
  if (!schedule.ok()) return schedule.status();
  EXPECT_EQ(parallel::CheckSchedule(*schedule, parallel::MicrobatchesOf(*schedule)), absl::OkStatus());
  EXPECT_EQ(parallel::CheckLowered(parallel::Lower(*schedule)), absl::OkStatus());
  const auto again = parallel::ParseScheduleCsv("csv", parallel::ScheduleToCsv(*schedule));
  EXPECT_TRUE(again.ok()) << again.status();
  if (again.ok()) {
    EXPECT_EQ(again->ranks, schedule->ranks);
  }
  return absl::OkStatus();
}

TEST(Fuzz, ScheduleCsv) {
  Fuzz({"schedule_csv", Words(",|\n|\r\n|F|B|I|W|0|1|9|0F0|0B0|1F0,1B0|UNSHARD|SEND_F|\xff|\"| "), Parse});
}

}  // namespace
}  // namespace legoai::fuzz

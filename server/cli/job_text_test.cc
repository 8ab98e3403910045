#include "server/cli/job_text.h"

#include <gmock/gmock.h>

namespace legoai::cli {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

TEST(MeasuredText, HasTheErrorOfWhatIsPredicted) {
  v1::Attempt attempt;
  EXPECT_EQ(MeasuredText(attempt), "");
  attempt.set_measured_step_seconds(2);
  attempt.set_measured_peak_memory_bytes(int64_t{4} << 30);
  attempt.set_predicted_step_seconds(1.5);
  attempt.set_predicted_peak_memory_bytes(int64_t{3} << 30);
  EXPECT_THAT(MeasuredText(attempt), ContainsRegex("step time.*-25.0 %"));
  EXPECT_THAT(MeasuredText(attempt), ContainsRegex("peak memory of a rank.*-25.0 %"));
  // On workers whose link is not that of the plan.
  attempt.clear_predicted_step_seconds();
  EXPECT_THAT(MeasuredText(attempt), ContainsRegex("step time +not predicted +2"));
  EXPECT_THAT(MeasuredText(attempt), Not(HasSubstr("-100.0 %")));
}

}  // namespace
}  // namespace legoai::cli

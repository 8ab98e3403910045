#include "server/cli/plan_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

namespace legoai::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::PlanResult Result(const std::vector<bool>& estimated) {
  v1::PlanResult result;
  result.set_model("llama3-8b");
  for (size_t i = 0; i < estimated.size(); ++i) {
    v1::RankedRecipe* const ranked = result.add_ranked();
    ranked->set_rank(static_cast<int64_t>(i) + 1);
    ranked->set_estimated(estimated[i]);
    ranked->mutable_recipe()->mutable_parallelism()->set_data_parallel_replicate_degree(1);
    ranked->set_step_time_seconds(2);
    ranked->set_tokens_per_second_per_gpu(1234);
    ranked->set_mfu(0.5);
    ranked->set_peak_memory_bytes(int64_t{40} << 30);
    ranked->set_headroom_bytes(int64_t{20} << 30);
  }
  return result;
}

std::string RowOf(const std::string& text, const std::string& first) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word;
    if (words >> word && word == first) return line;
  }
  return "";
}

TEST(PlanText, EstimatedRowsAreMarkedAndTheMarkIsExplained) {
  const std::string text = PlanText(Result({false, true}), false);
  const std::string simulated = RowOf(text, "1"), estimated = RowOf(text, "~2");
  EXPECT_THAT(simulated, HasSubstr("1,234"));
  EXPECT_THAT(simulated, Not(HasSubstr("~")));
  EXPECT_THAT(simulated, Not(HasSubstr("=")));
  EXPECT_THAT(estimated, HasSubstr("~1,234"));
  EXPECT_THAT(estimated, HasSubstr(">= 40.0 GiB"));
  EXPECT_THAT(estimated, HasSubstr("<= 20.0 GiB"));
  EXPECT_THAT(text, HasSubstr("~ estimated by closed forms, not simulated: it may not fit"));
}

TEST(PlanText, WithoutEstimatesThereIsNoMark) { EXPECT_THAT(PlanText(Result({false, false}), false), Not(HasSubstr("~"))); }

TEST(PlanText, AnMfuThatIsNotKnownIsNoZero) {
  v1::PlanResult result = Result({false, false});
  EXPECT_THAT(PlanText(result, false), Not(HasSubstr("MFU -")));
  result.mutable_ranked(1)->set_mfu(0);
  EXPECT_THAT(RowOf(PlanText(result, false), "1"), HasSubstr("50.0 %"));
  EXPECT_THAT(RowOf(PlanText(result, false), "2"), Not(HasSubstr("%")));
  EXPECT_THAT(PlanText(result, false), HasSubstr("MFU - : the device has no peak"));
}

}  // namespace
}  // namespace legoai::cli

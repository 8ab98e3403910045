#include "server/cli/prediction_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

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

v1::Estimate TwoStages() {
  v1::Estimate estimate;
  estimate.set_model("llama3-8b");
  estimate.set_cluster("h100-sxm-80:8x1");
  estimate.set_step_time_seconds(2);
  estimate.set_tokens_per_second_per_gpu(1000);
  estimate.mutable_recipe()->mutable_training()->set_steps(1000);
  estimate.mutable_recipe()->mutable_training()->set_global_batch_size(4);
  estimate.mutable_recipe()->mutable_training()->set_seq_len(4000);
  estimate.mutable_running_cost()->set_tokens_per_day(8000 * 86400.0);
  estimate.mutable_running_cost()->set_gpu_hours_per_billion_tokens(277.8);
  for (int i = 0; i < 2; ++i) {
    auto* stage = estimate.add_stages();
    stage->set_stage(i);
    stage->mutable_breakdown()->set_compute_seconds(1.25 + i * 0.125);
  }
  return estimate;
}

TEST(EstimateText, SaysWhatARunTakes) {
  v1::Estimate estimate = TwoStages();
  std::string text = EstimateText({}, estimate);
  EXPECT_THAT(text, HasSubstr("throughput 1.00 K tokens/s per device, 691 M tokens a day\n"));
  EXPECT_THAT(text, HasSubstr("cost       a billion tokens take 278 GPU-hours\n"));
  // 16 million tokens; 2,000 s on eight devices are 4.44 GPU-hours.
  EXPECT_THAT(text, HasSubstr("its 1,000 steps  16.0 M tokens, 33 min 20 s, 4.44 GPU-hours\n"));
  estimate.mutable_running_cost()->set_price_per_billion_tokens(277.8 * 2);
  text = EstimateText({}, estimate);
  EXPECT_THAT(text, HasSubstr("278 GPU-hours and 556 in the currency of the price\n"));
  EXPECT_THAT(text, HasSubstr("4.44 GPU-hours, 8.89 in the currency of the price\n"));
}

TEST(EstimateText, StagesStandBesideEachOther) {
  v1::Estimate estimate = TwoStages();
  EXPECT_THAT(EstimateText({}, estimate), HasSubstr("1.375 s"));
  EXPECT_THAT(EstimateText({}, estimate), ::testing::ContainsRegex("\nstage +compute +exposed communication"));
  estimate.mutable_stages()->RemoveLast();
  EXPECT_THAT(EstimateText({}, estimate), Not(::testing::ContainsRegex("\nstage +compute"))) << "one stage is the step";
}

TEST(EstimateText, DetailsAreThereWhereTheyWereAskedFor) {
  v1::Estimate estimate = TwoStages();
  for (const char* part : {"largest operators", "largest modules", "critical path"})
    EXPECT_THAT(EstimateText({}, estimate), Not(HasSubstr(part)));
  auto* op = estimate.add_largest_operators();
  op->set_name("aten::mm");
  op->set_phase("backward");
  op->set_calls(1234);
  op->set_seconds(0.5);
  op->set_bound("compute");
  op->set_shapes("bfloat16[8,4] -> bfloat16[8,4]");
  op->set_stage(1);
  auto* module = estimate.add_largest_modules();
  module->set_module("layers.*.feed_forward");
  module->set_modules(16);
  module->set_forward_seconds(0.25);
  module->set_backward_seconds(0.75);
  auto* part = estimate.add_critical_path();
  part->set_kind("all_gather");
  part->set_stage(1);
  part->set_seconds(0.1);
  part->set_tasks(3);
  const std::string text = EstimateText({}, estimate);
  EXPECT_THAT(text, HasSubstr("the largest operators of stage 1, each as if alone"));
  EXPECT_THAT(text, ::testing::ContainsRegex("aten::mm +backward +1,234 +500 ms +25.0 % +compute +bfloat16"));
  EXPECT_THAT(text, ::testing::ContainsRegex("layers.\\*.feed_forward +16 +250 ms +750 ms +50.0 %"));
  EXPECT_THAT(text, ::testing::ContainsRegex("all_gather +1 +3 +100 ms +5.0 %"));
}

}  // namespace
}  // namespace legoai::cli

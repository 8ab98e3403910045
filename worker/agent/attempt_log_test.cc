#include "worker/agent/attempt_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <vector>

#include "nlohmann/json.hpp"

namespace legoai::agent {
namespace {

TEST(AttemptLog, HowAnAttemptBegins) {
  v1::StartAttempt start;
  start.set_attempt(1);
  start.set_world_size(1);
  start.mutable_placement()->set_worker("workers/a");
  EXPECT_EQ(BeginText(start, "/runs/j/epoch-1"), "attempt 1 begins: 1 rank of workers/a, in /runs/j/epoch-1, from the beginning");
  start.set_attempt(3);
  start.set_world_size(8);
  start.set_recipe_text("shard 8, bfloat16");
  start.set_resume_step(40);
  EXPECT_EQ(BeginText(start, "/runs/j/epoch-4"),
            "attempt 3 begins: 8 ranks of workers/a (shard 8, bfloat16), in /runs/j/epoch-4, from step 40");
}

TEST(AttemptLog, AStepWithAllThatIsKnownOfIt) {
  v1::StepMetrics metrics;
  metrics.set_step(7);
  metrics.set_tokens_per_second(999.6);
  EXPECT_EQ(StepText(metrics), "step: 7  tps: 1,000");
  metrics.set_loss(2.5);
  metrics.set_grad_norm(0.125);
  metrics.set_peak_memory_bytes(int64_t{3} << 29);
  metrics.set_tokens_per_second(1234567);
  metrics.set_mfu(0.5);
  metrics.set_exposed_communication_share(0.125);  // of all ranks, whichever have a row
  metrics.add_ranks()->set_step_seconds(1);
  metrics.set_validation_loss(3);
  EXPECT_EQ(StepText(metrics),
            "step: 7  loss: 2.5000  grad_norm: 0.1250  memory: 1.50 GiB  tps: 1,234,567  mfu: 50.0 %  exposed: 12.5 %  "
            "validation_loss: 3.0000");
}

TEST(AttemptLog, SmallPeaksAreReadable) {
  v1::StepMetrics metrics;
  metrics.set_peak_memory_bytes(int64_t{100} << 20);
  EXPECT_EQ(StepText(metrics), "step: 0  memory: 100 MiB  tps: 0");
  metrics.set_peak_memory_bytes(300'000);
  EXPECT_EQ(StepText(metrics), "step: 0  memory: 293 KiB  tps: 0");
}

TEST(AttemptLog, OneLineASecondAndAllThatMatter) {
  StepLines lines(1000);
  std::vector<int64_t> told;
  for (int64_t step = 1; step <= 1000; ++step) {
    v1::StepMetrics metrics;
    metrics.set_step(step);
    if (step == 137) metrics.set_validation_loss(1);
    // Ten steps a second, and once the clock is set back by an hour.
    if (lines.Wants(metrics, 4'000'000'000 + 100'000 * step - (step >= 500 ? 3'600'000'000 : 0))) told.push_back(step);
  }
  ASSERT_GT(told.size(), 100u);
  EXPECT_LT(told.size(), 105u);
  EXPECT_EQ(std::vector<int64_t>(told.begin(), told.begin() + 3), (std::vector<int64_t>{1, 11, 21}));
  EXPECT_EQ(std::count(told.begin(), told.end(), 137), 1);
  EXPECT_EQ(std::count(told.begin(), told.end(), 500), 1);
  EXPECT_EQ(told.back(), 1000);
}

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(LogTailTest, WholeLinesFromTheEnd) {
  const std::string path = ::testing::TempDir() + "/log_tail_test";
  const auto write = [&](const std::string& text) { std::ofstream(path, std::ios::trunc) << text; };
  EXPECT_THAT(LastLines(path + ".none", 10, 100), IsEmpty());
  write("");
  EXPECT_THAT(LastLines(path, 10, 100), IsEmpty());
  write("one\n\ntwo\nthree");
  EXPECT_THAT(LastLines(path, 10, 100), ElementsAre("one", "two", "three"));
  EXPECT_THAT(LastLines(path, 2, 100), ElementsAre("two", "three"));
  EXPECT_THAT(LastLines(path, 10, 9), ElementsAre("two", "three")) << "exactly as many bytes";
  EXPECT_THAT(LastLines(path, 10, 8), ElementsAre("three")) << "half a line is none";
  EXPECT_THAT(LastLines(path, 10, 3), IsEmpty());
}

TEST(JsonLogTest, ALineHoldsWhatItIsAbout) {
  const std::string line = LogLineJson(1767323045678901, "warning", "a \"quoted\"\nline", {.job = "j", .epoch = 7, .rank = 0});
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto parsed = nlohmann::json::parse(line);
  EXPECT_EQ(parsed["time"], "2026-01-02T03:04:05.678901Z");
  EXPECT_EQ(parsed["level"], "warning");
  EXPECT_EQ(parsed["message"], "a \"quoted\"\nline");
  EXPECT_EQ(parsed["job"], "j");
  EXPECT_EQ(parsed["epoch"], 7);
  EXPECT_EQ(parsed["rank"], 0);
  EXPECT_FALSE(parsed.contains("attempt"));
}

TEST(JsonLogTest, BytesThatAreNoTextAreWrittenAllTheSame) {
  const auto parsed = nlohmann::json::parse(LogLineJson(0, "error", "caf\xe9", {}));
  EXPECT_EQ(parsed["message"], "caf\xef\xbf\xbd");
  EXPECT_EQ(parsed["time"], "1970-01-01T00:00:00.000000Z");
}

}  // namespace
}  // namespace legoai::agent

#include "worker/train/lr_schedule.h"

#include <gtest/gtest.h>

namespace legoai::train {
namespace {

v1::LrScheduler Scheduler(const std::string& type, int64_t warmup, double min_factor) {
  v1::LrScheduler scheduler;
  scheduler.set_decay_type(type);
  scheduler.set_warmup_steps(warmup);
  scheduler.set_min_lr_factor(min_factor);
  return scheduler;
}

TEST(LrFactor, WarmsUpLinearly) {
  const v1::LrScheduler scheduler = Scheduler("cosine", 4, 0);
  EXPECT_DOUBLE_EQ(LrFactor(scheduler, 1, 100), 0.25);
  EXPECT_DOUBLE_EQ(LrFactor(scheduler, 3, 100), 0.75);
  EXPECT_DOUBLE_EQ(LrFactor(scheduler, 4, 100), 1);
  EXPECT_DOUBLE_EQ(LrFactor(scheduler, 5, 100), 1);
  EXPECT_DOUBLE_EQ(LrFactor(Scheduler("linear", 50, 0), 5, 10), 0.5) << "a warm-up longer than the run ends with it";
}

// TorchTitan's tests: linear decay after 5 of 10 steps of warm-up, 0.2 less each step from the first one after it.
TEST(LrFactor, DecaysLinearly) {
  const v1::LrScheduler scheduler = Scheduler("linear", 5, 0);
  const double expected[] = {0.2, 0.4, 0.6, 0.8, 1, 1, 0.8, 0.6, 0.4, 0.2};
  for (int step = 1; step <= 10; ++step) EXPECT_NEAR(LrFactor(scheduler, step, 10), expected[step - 1], 1e-12) << step;
}

TEST(LrFactor, DecaysByCosineToTheMinimum) {
  const v1::LrScheduler scheduler = Scheduler("cosine", 0, 0.1);
  EXPECT_DOUBLE_EQ(LrFactor(scheduler, 1, 100), 1);
  EXPECT_NEAR(LrFactor(scheduler, 51, 100), 0.55, 1e-12);
  EXPECT_NEAR(LrFactor(scheduler, 26, 100), 0.1 + 0.9 * 0.8535533905932737, 1e-12);
  EXPECT_NEAR(LrFactor(scheduler, 101, 100), 0.1, 1e-12);
  EXPECT_GT(LrFactor(scheduler, 100, 100), 0.1);
}

TEST(LrFactor, NoneStaysAtThePeak) { EXPECT_DOUBLE_EQ(LrFactor(Scheduler("none", 2, 0.1), 77, 100), 1); }

}  // namespace
}  // namespace legoai::train

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

// Two of ten steps warm up, round(0.4 x 10) decay, and the peak lies in between, one step longer for the decay begins at it.
TEST(LrFactor, StaysAtThePeakBeforeTheShareThatDecays) {
  v1::LrScheduler scheduler = Scheduler("linear", 2, 0);
  scheduler.set_decay_ratio(0.4);
  const double linear[] = {0.5, 1, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25};
  for (int step = 1; step <= 10; ++step) EXPECT_NEAR(LrFactor(scheduler, step, 10), linear[step - 1], 1e-12) << step;
  scheduler.set_decay_type("sqrt");
  scheduler.set_min_lr_factor(0.2);
  EXPECT_NEAR(LrFactor(scheduler, 8, 10), 0.2 + 0.8 * 0.5, 1e-12);
  scheduler.set_decay_ratio(1);
  EXPECT_DOUBLE_EQ(LrFactor(scheduler, 3, 10), 1) << "no decay reaches into the warm-up";
  EXPECT_LT(LrFactor(scheduler, 4, 10), 1);
  scheduler.set_decay_ratio(0);
  EXPECT_DOUBLE_EQ(LrFactor(scheduler, 10, 10), 1) << "nothing decays";
}

TEST(LrFactor, NoneStaysAtThePeak) { EXPECT_DOUBLE_EQ(LrFactor(Scheduler("none", 2, 0.1), 77, 100), 1); }

}  // namespace
}  // namespace legoai::train

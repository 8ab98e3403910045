#include "worker/train/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

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

// Warmup-stable-decay (WSD) as published: with N steps, of which W warm up and D decay, the step after n others has (n + 1) / W
// below W, then 1 until N - D, and f(n, N, D) from there (Hu et al. 2024, section 4.2), where f is linear,
// 1 - sqrt((n - (N - D)) / D) (Haegele et al. 2024, section 3) or the half of a cosine.
TEST(LrFactor, WithADecayRatioIsWarmupStableDecay) {
  constexpr int64_t kSteps = 40;
  const auto f = [](const std::string& type, double n, double of, double decay) {
    const double progress = (n - (of - decay)) / decay;
    return type == "linear" ? 1 - progress : type == "sqrt" ? 1 - std::sqrt(progress) : 0.5 * (1 + std::cos(M_PI * progress));
  };
  for (const char* type : {"linear", "sqrt", "cosine"}) {
    for (const int64_t warmup : {0, 4}) {
      for (const double ratio : {0.1, 0.2, 0.5}) {
        v1::LrScheduler scheduler = Scheduler(type, warmup, 0);
        scheduler.set_decay_ratio(ratio);
        const int64_t decay = std::lround(ratio * kSteps);
        int64_t stable = 0;
        for (int64_t n = 0; n < kSteps; ++n) {
          const bool decays = n >= kSteps - decay;
          const double expected = n < warmup ? double(n + 1) / double(warmup) : decays ? f(type, n, kSteps, decay) : 1;
          EXPECT_NEAR(LrFactor(scheduler, n + 1, kSteps), expected, 1e-12) << type << " " << warmup << " " << ratio << " " << n;
          stable += n >= warmup && !decays;
        }
        EXPECT_EQ(stable, kSteps - warmup - decay);
      }
    }
  }
}

TEST(LrFactor, NoneStaysAtThePeak) { EXPECT_DOUBLE_EQ(LrFactor(Scheduler("none", 2, 0.1), 77, 100), 1); }

}  // namespace
}  // namespace legoai::train

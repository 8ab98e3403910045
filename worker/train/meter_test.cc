#include "worker/train/meter.h"

#include <gtest/gtest.h>

namespace legoai::train {
namespace {

TEST(Meter, GivesMeansSinceTheLastTime) {
  v1::Start start;
  start.set_attempt(2);
  start.set_world_size(4);
  start.set_model_flops_per_token(1e9);
  start.set_peak_flops_per_second(1e12);
  Meter meter(start, 1000);
  meter.Add(absl::Seconds(1), absl::Milliseconds(100));
  meter.Add(absl::Seconds(3), absl::Milliseconds(300));
  const v1::StepMetrics metrics = meter.Take(12, absl::FromUnixSeconds(100));
  EXPECT_EQ(metrics.attempt(), 2);
  EXPECT_EQ(metrics.step(), 12);
  EXPECT_EQ(metrics.time_unix_seconds(), 100);
  EXPECT_DOUBLE_EQ(metrics.step_seconds(), 2);
  EXPECT_DOUBLE_EQ(metrics.data_seconds(), 0.2);
  EXPECT_DOUBLE_EQ(metrics.tokens_per_second(), 500);
  EXPECT_DOUBLE_EQ(metrics.mfu(), 500.0 * 1e9 / 4e12);
  meter.Add(absl::Seconds(5), absl::ZeroDuration());
  EXPECT_DOUBLE_EQ(meter.Take(13, absl::UnixEpoch()).step_seconds(), 5);
}

TEST(Meter, LeavesOutMfuWithoutAPeak) {
  v1::Start start;
  start.set_world_size(1);
  start.set_model_flops_per_token(1e9);
  Meter meter(start, 1000);
  meter.Add(absl::Seconds(1), absl::ZeroDuration());
  EXPECT_FALSE(meter.Take(1, absl::UnixEpoch()).has_mfu());
}

TEST(Meter, AnMfuAboveOneIsAnErrorOfTheCatalogAndSaidAsSuch) {
  v1::Start start;
  start.set_world_size(2);
  start.set_model_flops_per_token(1e9);
  start.set_peak_flops_per_second(1e11);
  Meter meter(start, 1000);
  meter.Add(absl::Seconds(1), absl::ZeroDuration());
  EXPECT_FALSE(meter.Take(1, absl::UnixEpoch()).has_mfu()) << "1e12 FLOP/s on two devices of 1e11";
  EXPECT_NE(meter.fault().find("device.peak_flops = 1e+11"), std::string::npos) << meter.fault();
  EXPECT_NE(meter.fault().find("5e+11 FLOP/s"), std::string::npos) << meter.fault();
  meter.Add(absl::Seconds(10), absl::ZeroDuration());
  EXPECT_DOUBLE_EQ(meter.Take(2, absl::UnixEpoch()).mfu(), 0.5);
  EXPECT_EQ(meter.fault(), "");
}

}  // namespace
}  // namespace legoai::train

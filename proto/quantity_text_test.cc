#include "proto/quantity_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

namespace legoai {
namespace {

TEST(QuantityText, HasThreeDigitsAndAUnit) {
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(1023), "1023 B");
  EXPECT_EQ(BytesText(1536), "1.50 KiB");
  EXPECT_EQ(BytesText(80.0 * (1 << 30)), "80.0 GiB");
  EXPECT_EQ(BytesText(-3.0 * (1 << 20)), "-3.00 MiB");
  EXPECT_EQ(SecondsText(0.00321), "3.21 ms");
  EXPECT_EQ(SecondsText(7.0839), "7.084 s");
  EXPECT_EQ(SecondsText(12e-6), "12 us");
  EXPECT_EQ(CountText(8030261248), "8.03 B");
  EXPECT_EQ(PercentText(0.542), "54.2 %");
  EXPECT_EQ(FlopsText(989e12), "989 TFLOP/s");
  EXPECT_EQ(BandwidthText(3.35e12), "3.35 TB/s");
}

// The cases of dashboards/web/src/format.test.ts: the page writes the same.
TEST(QuantityText, DurationsHaveTwoUnitsAtMost) {
  EXPECT_EQ(DurationText(0), "0 s");
  EXPECT_EQ(DurationText(0.2), "200 ms");
  EXPECT_EQ(DurationText(0.95), "1 s");
  EXPECT_EQ(DurationText(45), "45 s");
  EXPECT_EQ(DurationText(59.6), "1 min");
  EXPECT_EQ(DurationText(200), "3 min 20 s");
  EXPECT_EQ(DurationText(3725), "1 h 2 min");
  EXPECT_EQ(DurationText(86400 * 4 + 3600 * 3 + 59), "4 d 3 h");
  EXPECT_EQ(DurationText(86400 + 59), "1 d");
  EXPECT_EQ(DurationText(-5), "0 s");
  EXPECT_EQ(DurationText(absl::Minutes(30)), "30 min");
  EXPECT_EQ(DurationText(absl::InfiniteDuration()), "an unknown time");
  EXPECT_EQ(DurationText(std::nan("")), "an unknown time");
}

TEST(QuantityText, Commas) {
  EXPECT_EQ(WithCommas(0), "0");
  EXPECT_EQ(WithCommas(999), "999");
  EXPECT_EQ(WithCommas(1000), "1,000");
  EXPECT_EQ(WithCommas(8030261248), "8,030,261,248");
  EXPECT_EQ(WithCommas(-999), "-999");
  EXPECT_EQ(WithCommas(-1000), "-1,000");
}

}  // namespace
}  // namespace legoai

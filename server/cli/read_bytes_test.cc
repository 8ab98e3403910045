#include "server/cli/read_bytes.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>

namespace legoai::cli {
namespace {

TEST(ReadBytes, UnitsAreBinary) {
  EXPECT_EQ(ReadBytes("4GiB", 0), 4.0 * (int64_t{1} << 30));
  EXPECT_EQ(ReadBytes("512 MiB", 0), 512.0 * (1 << 20));
  EXPECT_EQ(ReadBytes("1.5kib", 0), 1536);
  EXPECT_EQ(ReadBytes("2TiB", 0), 2.0 * (int64_t{1} << 40));
  EXPECT_EQ(ReadBytes("17", 0), 17);
  EXPECT_EQ(ReadBytes("17 B", 0), 17);
  EXPECT_EQ(ReadBytes("1.5e9", 0), 1.5e9);
  EXPECT_EQ(ReadBytes("10%", 80), 8);
  EXPECT_EQ(ReadBytes("12.5 %", 80), 10);
}

TEST(ReadBytes, OtherTextIsNone) {
  for (const char* text : {"", "GiB", "%", "4GB4", "-1GiB", "+1", "inf", "nan", "1e400", "0x10", "4 4", "infGiB", "4GB"}) {
    EXPECT_EQ(ReadBytes(text, 80), std::nullopt) << text;
  }
}

TEST(ReadBytes, WholeNumbersComeBack) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 1000; ++i) {
    const int64_t bytes = static_cast<int64_t>(random() >> 12);
    EXPECT_EQ(ReadBytes(std::to_string(bytes), 0), static_cast<double>(bytes));
  }
}

}  // namespace
}  // namespace legoai::cli

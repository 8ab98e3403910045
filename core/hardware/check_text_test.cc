#include "core/hardware/check_text.h"

#include <gtest/gtest.h>

namespace legoai::sim {
namespace {

TEST(CheckTextTest, OneLineSaysAll) {
  v1::CheckResult disk;
  disk.set_kind(v1::DISK_CHECK);
  disk.set_passed(true);
  disk.set_seconds(0.43);
  disk.set_write_bytes_per_second(2.5e8);
  disk.set_read_bytes_per_second(3.25e9);
  disk.set_free_bytes(71'200'000'000);
  EXPECT_EQ(ResultText(disk), "disk: passed in 0.4 s, 250 MB/s written, 3.25 GB/s read, 71.2 GB free");

  v1::CheckResult device;
  device.set_kind(v1::DEVICE_CHECK);
  device.add_slots(3);
  device.set_text("a matrix product is not what the host computes");
  EXPECT_EQ(ResultText(device), "device of slot 3: FAILED in 0.0 s: a matrix product is not what the host computes");
  EXPECT_EQ(FiguresText(device), "");
  device.set_to_device_bytes_per_second(6.4e10);
  device.set_from_device_bytes_per_second(5.8e10);
  device.set_flops_per_second(4.1e13);
  EXPECT_EQ(FiguresText(device), "64 GB/s to it, 58 GB/s from it, 41000 GFLOP/s");

  v1::CheckResult pair;
  pair.set_kind(v1::ALL_GATHER_CHECK);
  pair.add_slots(0), pair.add_slots(3);
  EXPECT_EQ(CheckedText(pair), "all_gather of slots 0 and 3");
}

}  // namespace
}  // namespace legoai::sim

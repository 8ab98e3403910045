#include "core/hardware/gpu_health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/hardware/nvml.h"
#include "core/hardware/testing/fake_gpus.h"
#include "proto/testing/assert_ok.h"

namespace legoai::sim {
namespace {

using ::testing::ElementsAre;
using testing::FakeGpus;
using testing::FakeH100;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(GpuHealthTest, WhatACardSaysOfItself) {
  FakeGpus fake({FakeH100("GPU-a") + ",ecc=0,remap_pending=0,remap_failed=0", FakeH100("GPU-b")});
  ASSERT_OK_AND_ASSIGN(const auto reader, GpuHealthReader::Open({0, 1}));
  auto health = reader.Read();
  ASSERT_EQ(health.size(), 2u);
  EXPECT_EQ(health[0].uncorrected_ecc_errors, 0);
  EXPECT_FALSE(health[1].uncorrected_ecc_errors) << "it does not tell";
  for (const GpuHealth& card : health) {
    EXPECT_FALSE(card.lost || card.remap_pending || card.remap_failed);
    EXPECT_THAT(FaultsOf(card, 0), IsEmpty());
  }
  fake.Change("GPU-a", "ecc=3,remap_pending=1");
  fake.Change("GPU-b", "error=nvmlDeviceGetMemoryInfo:15");
  health = reader.Read();
  EXPECT_EQ(health[0].uncorrected_ecc_errors, 3);
  EXPECT_TRUE(health[0].remap_pending);
  EXPECT_TRUE(health[1].lost);
  fake.Change("GPU-a", "remap_failed=1");
  EXPECT_TRUE(reader.Read()[0].remap_failed);
}

TEST(GpuHealthTest, WhatItMeans) {
  const auto reason = [](const GpuHealth& health, int64_t known = 0) {
    const auto faults = FaultsOf(health, known);
    return faults.empty() ? "" : faults[0].reason;
  };
  EXPECT_EQ(FaultsOf({.lost = true}, 0)[0].cause, v1::GPU_LOST);
  EXPECT_EQ(FaultsOf({.uncorrected_ecc_errors = 1}, 0)[0].cause, v1::GPU_MEMORY);
  EXPECT_THAT(reason({.uncorrected_ecc_errors = 1}),
              HasSubstr("1 ECC error of its memory could not be corrected: drain the worker, stop its agent"));
  EXPECT_THAT(reason({.uncorrected_ecc_errors = 5}, 3), HasSubstr("2 ECC errors"));
  EXPECT_EQ(reason({.uncorrected_ecc_errors = 5}, 5), "") << "they were known when it was taken back";
  EXPECT_THAT(reason({.uncorrected_ecc_errors = 1, .remap_pending = true}),
              HasSubstr(", and rows of its memory wait to be remapped"));
  EXPECT_THAT(reason({.remap_pending = true, .remap_failed = true}), HasSubstr("could not be remapped: have the card replaced"));
}

// Of the driver's events each is told once, of the card that it is of.
TEST(GpuHealthTest, XidsAreTold) {
  FakeGpus fake({FakeH100("GPU-a"), FakeH100("GPU-b")});
  ASSERT_OK_AND_ASSIGN(const auto reader, GpuHealthReader::Open({1, 0}));
  EXPECT_EQ(reader.why_no_events(), "");
  EXPECT_FALSE(reader.AwaitXid(absl::Milliseconds(20)));
  fake.Change("GPU-a", "xid=79,xid=31");
  const auto first = reader.AwaitXid(absl::Seconds(5)), second = reader.AwaitXid(absl::Seconds(5));
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->gpu, 1u) << "its place in the list";
  EXPECT_EQ(first->xid, 79);
  EXPECT_EQ(second->xid, 31);
  EXPECT_FALSE(reader.AwaitXid(absl::Milliseconds(20)));
  fake.Change("GPU-b", "xid=95");
  EXPECT_EQ(reader.AwaitXid(absl::Seconds(5))->gpu, 0u);
}

TEST(GpuHealthTest, ADriverThatTellsOfNoneIsReadAllTheSame) {
  FakeGpus fake({FakeH100("GPU-a") + ",ecc=2,error=nvmlDeviceRegisterEvents:3"});
  ASSERT_OK_AND_ASSIGN(const auto reader, GpuHealthReader::Open({0}));
  EXPECT_THAT(reader.why_no_events(), HasSubstr("nvmlDeviceRegisterEvents says: error 3"));
  EXPECT_FALSE(reader.AwaitXid(absl::Milliseconds(10)));
  EXPECT_EQ(reader.Read()[0].uncorrected_ecc_errors, 2);
}

TEST(GpuHealthTest, ACardThatIsGoneWhenItIsOpened) {
  FakeGpus fake({FakeH100("GPU-a") + ",error=nvmlDeviceGetHandleByIndex_v2:15", FakeH100("GPU-b")});
  ASSERT_OK_AND_ASSIGN(const auto reader, GpuHealthReader::Open({0, 1}));
  EXPECT_TRUE(reader.Read()[0].lost);
  EXPECT_FALSE(reader.Read()[1].lost);
}

// Nothing is known of it; it is not lost for that.
TEST(GpuHealthTest, ACardThatNvmlDoesNotGive) {
  FakeGpus fake({FakeH100("GPU-a") + ",error=nvmlDeviceGetHandleByIndex_v2:999", FakeH100("GPU-b")});
  ASSERT_OK_AND_ASSIGN(const auto reader, GpuHealthReader::Open({0, 1}));
  EXPECT_EQ(reader.why_no_events(), "nvmlDeviceGetHandleByIndex_v2 says of GPU 0: error 999 of the fake");
  EXPECT_FALSE(reader.Read()[0].lost);
}

TEST(GpuHealthTest, XidsThatProgramsCauseSayNothingOfTheCard) {
  for (const int64_t xid : {13, 31, 43, 45, 68, 109}) EXPECT_FALSE(IsCriticalXid(xid)) << xid;
  for (const int64_t xid : {48, 62, 64, 74, 79, 94, 95, 119, 140}) EXPECT_TRUE(IsCriticalXid(xid)) << xid;
}

// A card that works hard may be held by its power limit, and an idle one has low clocks: neither is a slowdown.
TEST(GpuHealthTest, SlowdownsAndErrorsAreOfTheLoad) {
  FakeGpus fake({FakeH100("GPU-a") + ",ecc=0,reasons=5"});
  ASSERT_OK_AND_ASSIGN(const auto reader, GpuLoadReader::Open({0}));
  EXPECT_THAT(reader.Read()[0].slowdowns, IsEmpty());
  EXPECT_EQ(reader.Read()[0].uncorrected_ecc_errors, 0);
  fake.Change("GPU-a", "reasons=232,ecc=1");  // 0x80 + 0x40 + 0x20 + 0x08
  EXPECT_THAT(reader.Read()[0].slowdowns, ElementsAre("hw_slowdown", "hw_thermal", "hw_power_brake", "sw_thermal"));
  EXPECT_EQ(reader.Read()[0].uncorrected_ecc_errors, 1);
}

}  // namespace
}  // namespace legoai::sim

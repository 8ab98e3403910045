#include "worker/train/metrics.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/checkpoint/testing/small_file_system.h"

namespace legoai::train {
namespace {

StepBreakdown Step(absl::Duration step, absl::Duration data = absl::ZeroDuration()) {
  StepBreakdown breakdown;
  breakdown.steps = 1;
  breakdown.step_ns = absl::ToInt64Nanoseconds(step);
  breakdown.data_ns = absl::ToInt64Nanoseconds(data);
  return breakdown;
}

TEST(Meter, GivesMeansSinceTheLastTime) {
  v1::Start start;
  start.set_attempt(2);
  start.set_world_size(4);
  start.set_rank(3);
  start.set_model_flops_per_token(1e9);
  start.set_hardware_flops_per_token(1.25e9);
  start.set_peak_flops_per_second(1e12);
  Meter meter(start, 1000);
  meter.Add(Step(absl::Seconds(1), absl::Milliseconds(100)));
  meter.Add(Step(absl::Seconds(3), absl::Milliseconds(300)));
  const v1::StepMetrics metrics = meter.Take(12, absl::FromUnixSeconds(100));
  EXPECT_EQ(metrics.attempt(), 2);
  EXPECT_EQ(metrics.step(), 12);
  EXPECT_EQ(metrics.time_unix_seconds(), 100);
  EXPECT_DOUBLE_EQ(metrics.step_seconds(), 2);
  EXPECT_DOUBLE_EQ(metrics.data_seconds(), 0.2);
  EXPECT_DOUBLE_EQ(metrics.tokens_per_second(), 500);
  EXPECT_DOUBLE_EQ(metrics.mfu(), 500.0 * 1e9 / 4e12);
  EXPECT_DOUBLE_EQ(metrics.hfu(), 1.25 * metrics.mfu());
  ASSERT_EQ(metrics.ranks_size(), 1);
  EXPECT_EQ(metrics.ranks(0).rank(), 3);
  EXPECT_DOUBLE_EQ(metrics.ranks(0).step_seconds(), 2);
  meter.Add(Step(absl::Seconds(5)));
  EXPECT_DOUBLE_EQ(meter.Take(13, absl::UnixEpoch()).step_seconds(), 5);
}

TEST(Meter, LeavesOutMfuWithoutAPeak) {
  v1::Start start;
  start.set_world_size(1);
  start.set_model_flops_per_token(1e9);
  Meter meter(start, 1000);
  meter.Add(Step(absl::Seconds(1)));
  EXPECT_FALSE(meter.Take(1, absl::UnixEpoch()).has_mfu());
}

TEST(Meter, WithoutAStepThereIsNoRow) {
  v1::Start start;
  start.set_world_size(1);
  EXPECT_EQ(Meter(start, 1000).Take(1, absl::UnixEpoch()).ranks_size(), 0);
}

// What could not be measured took its time all the same.
TEST(Meter, AStepThatWasNotMeasuredIsInNoRow) {
  v1::Start start;
  start.set_world_size(1);
  Meter meter(start, 1000);
  StepBreakdown unmeasured = Step(absl::Seconds(3));
  unmeasured.steps = 0;
  meter.Add(Step(absl::Seconds(1)));
  meter.Add(unmeasured);
  const auto both = meter.Take(2, absl::UnixEpoch());
  EXPECT_DOUBLE_EQ(both.step_seconds(), 2);
  ASSERT_EQ(both.ranks_size(), 1);
  EXPECT_DOUBLE_EQ(both.ranks(0).step_seconds(), 1);
  meter.Add(unmeasured);
  const auto metrics = meter.Take(3, absl::UnixEpoch());
  EXPECT_EQ(metrics.ranks_size(), 0);
  EXPECT_DOUBLE_EQ(metrics.step_seconds(), 3);
  EXPECT_DOUBLE_EQ(metrics.tokens_per_second(), 1000.0 / 3);
}

TEST(Meter, AnHfuAboveOneLeavesOutBoth) {
  v1::Start start;
  start.set_world_size(1);
  start.set_model_flops_per_token(1e9);
  start.set_hardware_flops_per_token(1.3e9);
  start.set_peak_flops_per_second(1.1e12);
  Meter meter(start, 1000);
  meter.Add(Step(absl::Seconds(1)));
  const auto metrics = meter.Take(1, absl::UnixEpoch());
  EXPECT_FALSE(metrics.has_mfu() || metrics.has_hfu());
  EXPECT_NE(meter.fault(), "");
}

TEST(Meter, AnMfuAboveOneIsAnErrorOfTheCatalogAndSaidAsSuch) {
  v1::Start start;
  start.set_world_size(2);
  start.set_model_flops_per_token(1e9);
  start.set_peak_flops_per_second(1e11);
  Meter meter(start, 1000);
  meter.Add(Step(absl::Seconds(1)));
  EXPECT_FALSE(meter.Take(1, absl::UnixEpoch()).has_mfu()) << "1e12 FLOP/s on two devices of 1e11";
  EXPECT_NE(meter.fault().find("device.peak_flops = 1e+11"), std::string::npos) << meter.fault();
  EXPECT_NE(meter.fault().find("5e+11 FLOP/s"), std::string::npos) << meter.fault();
  meter.Add(Step(absl::Seconds(10)));
  EXPECT_DOUBLE_EQ(meter.Take(2, absl::UnixEpoch()).mfu(), 0.5);
  EXPECT_EQ(meter.fault(), "");
}

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Bit by bit, from the definition of the polynomial.
uint32_t SlowCrc32c(const std::string& data) {
  uint32_t crc = ~0u;
  for (unsigned char byte : data) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
  }
  return ~crc;
}

uint64_t TakeNumber(std::string* data, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) value |= uint64_t{static_cast<uint8_t>((*data)[i])} << (8 * i);
  data->erase(0, bytes);
  return value;
}

uint32_t Unmask(uint64_t masked) {
  const uint32_t rotated = static_cast<uint32_t>(masked) - 0xa282ead8u;
  return (rotated >> 17) | (rotated << 15);
}

std::unique_ptr<TensorboardWriter> WriteExample(const std::string& folder) {
  auto writer = *TensorboardWriter::Create(folder, "rank-0", absl::FromUnixSeconds(1'700'000'000));
  EXPECT_TRUE(writer->Write(1, absl::FromUnixMillis(1'700'000'001'500), {{"loss", 5.5}, {"learning_rate", 1e-4}}).ok());
  EXPECT_TRUE(writer->Write(300, absl::FromUnixMillis(1'700'000'002'250), {{"loss", 2.25}}).ok());
  return writer;
}

// All records of a file; a torn one is a failure.
std::vector<v1::TensorboardEvent> Events(const std::string& path) {
  std::string data = Contents(path);
  std::vector<v1::TensorboardEvent> events;
  while (!data.empty()) {
    const std::string header = data.substr(0, 8);
    const uint64_t bytes = TakeNumber(&data, 8);
    EXPECT_EQ(Unmask(TakeNumber(&data, 4)), SlowCrc32c(header));
    const std::string body = data.substr(0, bytes);
    data.erase(0, bytes);
    EXPECT_EQ(Unmask(TakeNumber(&data, 4)), SlowCrc32c(body));
    EXPECT_TRUE(events.emplace_back().ParseFromString(body));
  }
  return events;
}

TEST(Tensorboard, RecordsAreFramedAndChecked) {
  const auto writer = WriteExample(::testing::TempDir() + "/framed");
  const std::vector<v1::TensorboardEvent> events = Events(writer->path());
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  EXPECT_EQ(events[1].summary().value(1).tag(), "learning_rate");
  EXPECT_EQ(events[2].step(), 300);
  EXPECT_EQ(events[2].wall_time(), 1'700'000'002.25);
  EXPECT_EQ(events[2].summary().value(0).simple_value(), 2.25f);
}

// testdata/read_tensorboard.py read this very file with the package tensorboard 2.20.0 and printed read_tensorboard.txt.
TEST(Tensorboard, IsTheFileThatTensorboardHasRead) {
  const auto writer = WriteExample(::testing::TempDir() + "/golden");
  EXPECT_EQ(Contents(writer->path()), Contents("worker/train/testdata/events.out.tfevents.1700000000.rank-0"));
}

TEST(Tensorboard, AFullDiskLeavesWholeRecords) {
  const std::string folder = ::testing::TempDir() + "/full";
  std::filesystem::create_directories(folder);
  EXPECT_TRUE(checkpoint::PassesInChild([&] {
    ASSERT_EQ(checkpoint::MountSmallFileSystem(folder, 8 << 10), absl::OkStatus());
    const auto writer = TensorboardWriter::Create(folder, "first", absl::FromUnixSeconds(1)).value();
    size_t written = 0;
    absl::Status status;
    while (written < 10'000 && (status = writer->Write(7, absl::UnixEpoch(), {{"loss", 1.5}, {"rate", 2}})).ok()) ++written;
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_NE(status.message().find(writer->path()), std::string::npos) << status;
    EXPECT_EQ(Events(writer->path()).size(), 1 + written);
    EXPECT_GT(written, 50u);

    const auto second = TensorboardWriter::Create(folder, "second", absl::FromUnixSeconds(1));
    EXPECT_EQ(second.status().code(), absl::StatusCode::kResourceExhausted) << second.status();
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1) << "of the second nothing is there";
  }));
}

TEST(Tensorboard, AFolderThatCannotBeMadeIsNamed) {
  const auto writer = TensorboardWriter::Create("/proc/no/such", "x", absl::UnixEpoch());
  EXPECT_NE(writer.status().message().find("/proc/no/such"), std::string::npos) << writer.status();
}

}  // namespace
}  // namespace legoai::train

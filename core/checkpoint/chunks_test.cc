#include "core/checkpoint/chunks.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <numeric>
#include <random>

#include "core/checkpoint/directory.h"
#include "core/checkpoint/manifest.h"

namespace legoai::checkpoint {
namespace {

struct Tensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<int32_t> values;
};

// Cuts a rectangle in two at random places until `pieces` are there or nothing can be cut.
std::vector<Rectangle> RandomCuts(std::mt19937& random, const std::vector<int64_t>& shape, size_t pieces) {
  std::vector<Rectangle> cuts = {WholeOf(shape)};
  for (size_t tries = 0; tries < 4 * pieces && cuts.size() < pieces && !shape.empty(); ++tries) {
    Rectangle& one = cuts[random() % cuts.size()];
    const size_t d = random() % shape.size();
    if (one.sizes[d] < 2) continue;
    Rectangle other = one;
    const int64_t at = 1 + random() % (one.sizes[d] - 1);
    one.sizes[d] = at;
    other.offsets[d] += at;
    other.sizes[d] -= at;
    cuts.push_back(other);
  }
  return cuts;
}

std::vector<int32_t> Part(const Tensor& tensor, const Rectangle& part) {
  std::vector<int32_t> values(Volume(part.sizes));
  CopyRectangle(reinterpret_cast<const char*>(tensor.values.data()), WholeOf(tensor.shape),
                reinterpret_cast<char*>(values.data()), part, part, 4);
  return values;
}

class CheckpointReaderTest : public testing::Test {
 protected:
  CheckpointReaderTest() : seed_(std::random_device()()), random_(seed_) {
    root_ = testing::TempDir() + "/" + testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
  }

  std::vector<Tensor> RandomTensors() {
    std::vector<Tensor> tensors;
    for (int i = 0; i < 4; ++i) {
      Tensor tensor{"t" + std::to_string(i), std::vector<int64_t>(i), {}};
      for (int64_t& size : tensor.shape) size = random_() % 10;  // some have no elements
      tensor.values.resize(Volume(tensor.shape));
      for (int32_t& value : tensor.values) value = static_cast<int32_t>(random_());
      tensors.push_back(tensor);
    }
    return tensors;
  }

  // Every tensor in random pieces, each given to a random one of three ranks.
  void Save(const std::vector<Tensor>& tensors, int64_t step) {
    ASSERT_TRUE(BeginCheckpoint(root_, step, 0).ok());
    std::vector<ChunkWriter> ranks;
    for (int64_t rank = 0; rank < 3; ++rank) ranks.push_back(ChunkWriter::Create(StepDirectory(root_, step), rank).value());
    for (const Tensor& tensor : tensors)
      for (const Rectangle& piece : RandomCuts(random_, tensor.shape, 1 + random_() % 6)) {
        const absl::Status status =
            ranks[random_() % 3].Append(tensor.name, v1::INT32, tensor.shape, piece, Part(tensor, piece).data());
        ASSERT_TRUE(status.ok()) << status;
      }
    for (ChunkWriter& rank : ranks) ASSERT_TRUE(rank.Finish().ok());
    v1::CheckpointManifest manifest;
    manifest.set_step(step);
    ASSERT_TRUE(CollectChunks(StepDirectory(root_, step), 3, manifest).ok());
    ASSERT_EQ(PrepareManifest(root_, manifest).status(), absl::OkStatus());
    ASSERT_TRUE(CommitManifest(root_, step).ok());
  }

  unsigned seed_;
  std::mt19937 random_;
  std::string root_;
};

TEST_F(CheckpointReaderTest, AnyPartFromAnyChunks) {
  SCOPED_TRACE(seed_);
  for (int64_t step = 0; step < 20; ++step) {
    const std::vector<Tensor> tensors = RandomTensors();
    ASSERT_NO_FATAL_FAILURE(Save(tensors, step));
    auto reader = CheckpointReader::Open(root_, step, "").value();
    EXPECT_EQ(reader.Names(), (std::vector<std::string>{"t0", "t1", "t2", "t3"}));
    for (const Tensor& tensor : tensors) {
      std::vector<Rectangle> wanted = RandomCuts(random_, tensor.shape, 5);
      wanted.push_back(WholeOf(tensor.shape));
      for (const Rectangle& part : wanted) {
        std::vector<int32_t> out(Volume(part.sizes), -1);
        ASSERT_EQ(reader.ReadRectangle(tensor.name, v1::INT32, tensor.shape, part, out.data()), absl::OkStatus());
        ASSERT_EQ(out, Part(tensor, part)) << tensor.name << " " << ToString(part);
      }
    }
  }
}

// One changed byte anywhere in the data is noticed by who reads that chunk, and named.
TEST_F(CheckpointReaderTest, TornByte) {
  SCOPED_TRACE(seed_);
  const std::vector<Tensor> tensors = RandomTensors();
  ASSERT_NO_FATAL_FAILURE(Save(tensors, 1));
  for (int round = 0; round < 50; ++round) {
    const v1::CheckpointManifest manifest = ReadManifest(root_, 1, "").value();
    const v1::CheckpointChunk& chunk = manifest.chunks(random_() % manifest.chunks_size());
    if (chunk.bytes() == 0) continue;
    const std::string path = StepDirectory(root_, 1) + "/" + chunk.file();
    const std::string whole = ReadFile(path).value();
    std::string torn = whole;
    torn[chunk.file_offset() + random_() % chunk.bytes()] ^= 1 << (random_() % 8);
    ASSERT_TRUE(WriteFile(path, torn).ok());
    auto reader = CheckpointReader::Open(root_, 1, "").value();
    for (const Tensor& tensor : tensors) {
      std::vector<int32_t> out(tensor.values.size());
      const absl::Status status = reader.ReadRectangle(tensor.name, v1::INT32, tensor.shape, WholeOf(tensor.shape), out.data());
      EXPECT_EQ(status.ok(), tensor.name != chunk.name());
      if (status.ok()) continue;
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
      EXPECT_NE(status.message().find(chunk.file() + ": " + chunk.name()), std::string::npos) << status;
      EXPECT_NE(status.message().find("checksum of the chunk at byte " + std::to_string(chunk.file_offset())), std::string::npos);
    }
    ASSERT_TRUE(WriteFile(path, whole).ok());
  }
}

// A tensor without elements is in the checkpoint like any other, in whatever parts it was given.
TEST_F(CheckpointReaderTest, TensorsWithoutElements) {
  ASSERT_TRUE(BeginCheckpoint(root_, 1, 0).ok());
  v1::CheckpointManifest manifest;
  manifest.set_step(1);
  for (int64_t rank = 0; rank < 2; ++rank) {
    ChunkWriter writer = ChunkWriter::Create(StepDirectory(root_, 1), rank).value();
    ASSERT_TRUE(writer.Append("none", v1::FLOAT32, {0, 3}, WholeOf({0, 3}), nullptr).ok());
    ASSERT_TRUE(writer.Append("some", v1::FLOAT32, {1}, {{rank}, {1 - rank}}, &rank).ok()) << "empty on rank 1";
    ASSERT_TRUE(writer.Finish().ok());
  }
  ASSERT_TRUE(CollectChunks(StepDirectory(root_, 1), 2, manifest).ok());
  EXPECT_EQ(manifest.chunks_size(), 3);
  ASSERT_TRUE(PrepareManifest(root_, manifest).ok());
  ASSERT_TRUE(CommitManifest(root_, 1).ok());
  auto reader = CheckpointReader::Open(root_, 1, "").value();
  EXPECT_EQ(reader.Names(), (std::vector<std::string>{"none", "some"}));
  EXPECT_EQ(reader.ReadRectangle("none", v1::FLOAT32, {0, 3}, WholeOf({0, 3}), nullptr), absl::OkStatus());
  EXPECT_FALSE(reader.ReadRectangle("none", v1::FLOAT32, {0, 4}, WholeOf({0, 4}), nullptr).ok());
  EXPECT_FALSE(reader.ReadRectangle("none", v1::BFLOAT16, {0, 3}, WholeOf({0, 3}), nullptr).ok());
}

TEST_F(CheckpointReaderTest, TellsOfAllBytesOnce) {
  const std::vector<Tensor> tensors = RandomTensors();
  ASSERT_NO_FATAL_FAILURE(Save(tensors, 1));
  auto reader = CheckpointReader::Open(root_, 1, "").value();
  int64_t told = 0, bytes = 0;
  reader.SetProgress([&](int64_t more) { told += more; });
  for (const Tensor& tensor : tensors) {
    std::vector<int32_t> out(tensor.values.size());
    for (int twice = 0; twice < 2; ++twice)
      ASSERT_TRUE(reader.ReadRectangle(tensor.name, v1::INT32, tensor.shape, WholeOf(tensor.shape), out.data()).ok());
    bytes += 4 * static_cast<int64_t>(out.size());
  }
  EXPECT_EQ(told, bytes);
}

TEST_F(CheckpointReaderTest, WhatDoesNotFitIsRefused) {
  const Tensor tensor{"w", {4, 2}, {0, 1, 2, 3, 4, 5, 6, 7}};
  ASSERT_NO_FATAL_FAILURE(Save({tensor}, 1));
  auto reader = CheckpointReader::Open(root_, 1, "").value();
  EXPECT_TRUE(reader.Has("w"));
  EXPECT_FALSE(reader.Has("v"));
  int32_t out[8];
  EXPECT_EQ(reader.ReadRectangle("v", v1::INT32, {4, 2}, WholeOf({4, 2}), out).code(), absl::StatusCode::kNotFound);
  const absl::Status shape = reader.ReadRectangle("w", v1::INT32, {2, 4}, WholeOf({2, 4}), out);
  EXPECT_NE(shape.message().find("w = I32 [4, 2]: this run needs I32 [2, 4]"), std::string::npos) << shape;
  EXPECT_FALSE(reader.ReadRectangle("w", v1::FLOAT32, {4, 2}, WholeOf({4, 2}), out).ok());
  EXPECT_FALSE(reader.ReadRectangle("w", v1::INT32, {4, 2}, {{3, 0}, {2, 2}}, out).ok());
  EXPECT_FALSE(CheckpointReader::Open(root_, 2, "").ok());
}

TEST_F(CheckpointReaderTest, FloatsOfEitherType) {
  const std::string directory = StepDirectory(root_, 1);
  ASSERT_TRUE(BeginCheckpoint(root_, 1, 0).ok());
  const std::vector<float> wide = {1, -2.5, 3e-39f, 65536};
  const std::vector<uint16_t> halves = {0x3F80, 0xC020, 0x0000, 0x7F80};  // 1, -2.5, 0, infinity
  auto writer = ChunkWriter::Create(directory, 0).value();
  ASSERT_TRUE(writer.Append("wide", v1::FLOAT32, {4}, WholeOf({4}), wide.data()).ok());
  ASSERT_TRUE(writer.Append("halves", v1::BFLOAT16, {2, 2}, {{0, 0}, {1, 2}}, halves.data()).ok());
  ASSERT_TRUE(writer.Append("halves", v1::BFLOAT16, {2, 2}, {{1, 0}, {1, 2}}, halves.data() + 2).ok());
  ASSERT_TRUE(writer.Append("whole", v1::INT32, {1}, WholeOf({1}), wide.data()).ok());
  ASSERT_TRUE(writer.Finish().ok());
  v1::CheckpointManifest manifest;
  manifest.set_step(1);
  ASSERT_TRUE(CollectChunks(directory, 1, manifest).ok());
  ASSERT_TRUE(PrepareManifest(root_, manifest).ok());
  ASSERT_TRUE(CommitManifest(root_, 1).ok());
  auto reader = CheckpointReader::Open(root_, 1, "").value();
  std::vector<float> out(4);
  ASSERT_TRUE(reader.ReadFloats("wide", {4}, out.data()).ok());
  EXPECT_EQ(out, wide);
  ASSERT_TRUE(reader.ReadFloats("halves", {2, 2}, out.data()).ok());
  EXPECT_EQ(out, (std::vector<float>{1, -2.5, 0, std::numeric_limits<float>::infinity()}));
  EXPECT_FALSE(reader.ReadFloats("halves", {4}, out.data()).ok());
  EXPECT_FALSE(reader.ReadFloats("whole", {1}, out.data()).ok());
  EXPECT_EQ(reader.ReadFloats("nothing", {1}, out.data()).code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace legoai::checkpoint

#include "core/checkpoint/manifest.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "core/checkpoint/chunks.h"
#include "core/checkpoint/files.h"
#include "proto/errors.h"

namespace legoai::checkpoint {
namespace {

class ManifestTest : public testing::Test {
 protected:
  ManifestTest() : root_(testing::TempDir() + "/" + testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(StepDirectory(root_, 7));
  }

  // Two ranks, each with half of the rows of w; rank 0 with the scalar too. `change` may spoil the list.
  v1::CheckpointManifest Save(const std::function<void(v1::CheckpointManifest&)>& change = {}) {
    const float values[6] = {1, 2, 3, 4, 5, 6};
    for (int64_t rank = 0; rank < 2; ++rank) {
      auto writer = ChunkWriter::Create(StepDirectory(root_, 7), rank);
      EXPECT_TRUE(writer.ok()) << writer.status();
      EXPECT_TRUE(writer->Append("w", v1::FLOAT32, {4, 3}, {{rank * 2, 0}, {2, 3}}, values).ok());
      if (rank == 0) {
        EXPECT_TRUE(writer->Append("step", v1::FLOAT32, {}, {}, values).ok());
      }
      EXPECT_TRUE(writer->Append("none", v1::FLOAT32, {4}, {{4}, {0}}, values).ok());
      EXPECT_TRUE(writer->Finish().ok());
    }
    v1::CheckpointManifest manifest;
    manifest.set_step(7);
    manifest.set_build_version("1.0+abc");
    manifest.set_next_sample(56);
    EXPECT_TRUE(CollectChunks(StepDirectory(root_, 7), 2, manifest).ok());
    if (change) change(manifest);
    return manifest;
  }

  std::string ManifestPath() { return StepDirectory(root_, 7) + "/manifest.pb"; }

  void ExpectRefused(const std::string& word, const std::function<void(v1::CheckpointManifest&)>& change) {
    const absl::Status status = PrepareManifest(root_, Save(change)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_NE(status.message().find(word), std::string::npos) << status;
    EXPECT_NE(status.message().find("step-7"), std::string::npos) << status;
  }

  std::string root_;
};

TEST_F(ManifestTest, FoundOnlyAfterTheCommit) {
  const v1::CheckpointManifest manifest = Save();
  ASSERT_EQ(manifest.chunks_size(), 3);
  const auto digest = PrepareManifest(root_, manifest).value();
  EXPECT_EQ(digest.size(), 64u);
  EXPECT_FALSE(IsCommitted(root_, 7).value());
  EXPECT_EQ(ReadManifest(root_, 7, "1.0+abc").status().code(), absl::StatusCode::kDataLoss);
  ASSERT_TRUE(CommitManifest(root_, 7).ok());
  EXPECT_TRUE(IsCommitted(root_, 7).value());
  const auto read = ReadManifest(root_, 7, "1.0+abc").value();
  EXPECT_EQ(read.next_sample(), 56);
  EXPECT_EQ(read.chunks_size(), 3);
  EXPECT_EQ(read.version(), kManifestVersion);
}

TEST_F(ManifestTest, DigestNamesTheContents) {
  const std::string one = PrepareManifest(root_, Save()).value();
  EXPECT_EQ(PrepareManifest(root_, Save()).value(), one);
  EXPECT_NE(PrepareManifest(root_, Save([](auto& m) { m.set_next_sample(57); })).value(), one);
}

TEST_F(ManifestTest, OtherBuildsAndVersionsAreRefused) {
  ASSERT_TRUE(PrepareManifest(root_, Save()).ok());
  ASSERT_TRUE(CommitManifest(root_, 7).ok());
  EXPECT_TRUE(ReadManifest(root_, 7, "").ok());
  const absl::Status status = ReadManifest(root_, 7, "1.1+def").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("build_version = 1.0+abc: this is build 1.1+def"), std::string::npos) << status;
  EXPECT_TRUE(GetFieldViolation(status).has_value());
  std::filesystem::rename(StepDirectory(root_, 7), StepDirectory(root_, 8));
  EXPECT_NE(ReadManifest(root_, 8, "").status().message().find("another step"), std::string::npos);
}

// Any shorter manifest, and any with one bit changed, is refused.
TEST_F(ManifestTest, TornManifest) {
  ASSERT_TRUE(PrepareManifest(root_, Save()).ok());
  ASSERT_TRUE(CommitManifest(root_, 7).ok());
  const std::string whole = ReadFile(ManifestPath()).value();
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] ^= 1 << (at % 8);
    for (const std::string& contents : {whole.substr(0, at), changed}) {
      ASSERT_TRUE(WriteFile(ManifestPath(), contents).ok());
      const absl::Status status = ReadManifest(root_, 7, "").status();
      ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << at << " " << status;
    }
  }
}

TEST_F(ManifestTest, ChunksMustCoverEveryTensorOnce) {
  ExpectRefused("w = 6: elements written, the tensor has 12", [](auto& m) { m.mutable_chunks()->DeleteSubrange(2, 1); });
  ExpectRefused("written twice", [](auto& m) { *m.add_chunks() = m.chunks(0); });
  ExpectRefused("disagree", [](auto& m) { m.mutable_chunks(2)->set_global_shape(0, 5); });
  ExpectRefused("written twice", [](auto& m) { *m.add_chunks() = m.chunks(1); });  // the scalar
}

TEST_F(ManifestTest, ChunksLieInFilesOfItsFolderAndHaveNames) {
  const std::string file = Save().chunks(0).file();
  for (const std::string& name :
       {"../step-7/" + file, std::string(".."), std::string(), file + std::string("\0x", 2), "\x1b" + file})
    ExpectRefused("is no file of the checkpoint",
                  [&](v1::CheckpointManifest& manifest) { manifest.mutable_chunks(0)->set_file(name); });
  ExpectRefused("is no file of the checkpoint",
                [](v1::CheckpointManifest& manifest) { manifest.mutable_chunks(0)->set_name("w\n"); });
}

TEST_F(ManifestTest, ChunksMustBeWholeOnTheDisk) {
  const std::string file = StepDirectory(root_, 7) + "/rank-00001.bin";
  ExpectRefused("rank-00001.bin: w = [2, 0] + [2, 3]: the file ends before it",
                [&](auto&) { std::filesystem::resize_file(file, 23); });
  ExpectRefused("rank-00001.bin: missing", [&](auto&) { std::filesystem::remove(file); });
  ASSERT_TRUE(PrepareManifest(root_, Save()).ok());
  ASSERT_TRUE(CommitManifest(root_, 7).ok());
  std::filesystem::resize_file(file, 23);
  EXPECT_EQ(ReadManifest(root_, 7, "").status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(ManifestTest, ARankThatDidNotFinishIsMissed) {
  Save();
  v1::CheckpointManifest manifest;
  const absl::Status status = CollectChunks(StepDirectory(root_, 7), 3, manifest);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(status.message().find("rank-00002.chunks.pb"), std::string::npos) << status;
}

}  // namespace
}  // namespace legoai::checkpoint

// Manifests of checkpoints. Damage is found by the checksum; so that it is met behind it too, each input is read as it is, and as
// the contents of a manifest whose checksum is right.
#include <gtest/gtest.h>

#include "core/checkpoint/files.h"
#include "core/checkpoint/manifest.h"
#include "tests/fuzz/fuzz.h"

namespace legoai::fuzz {
namespace {

constexpr int64_t kStep = 7;

// The checksum as the last field of the message, as the writer puts it there: number 15, four bytes.
std::string WithChecksum(std::string contents) {
  const uint32_t crc = checkpoint::Crc32c(contents.data(), contents.size());
  contents.push_back(15 << 3 | 5);
  for (int byte = 0; byte < 4; ++byte) contents.push_back(static_cast<char>(crc >> 8 * byte));
  return contents;
}

absl::Status Read(const std::string& bytes) {
  const std::string root = testing::TempDir() + "/checkpoints";
  WriteInput("checkpoints/step-7/rank-00000.bin", std::string(64, 'x'));
  WriteInput("checkpoints/step-7/rank-00001.bin", std::string(64, 'y'));
  WriteInput("checkpoints/step-7/manifest.pb", bytes);
  const auto manifest = checkpoint::ReadManifest(root, kStep, "");
  if (!manifest.ok()) return manifest.status();
  const auto digest = checkpoint::PrepareManifest(root, *manifest);
  EXPECT_TRUE(digest.ok()) << digest.status();
  EXPECT_TRUE(checkpoint::CommitManifest(root, kStep).ok());
  const auto again = checkpoint::ReadManifest(root, kStep, "");
  EXPECT_TRUE(again.ok()) << again.status();
  if (again.ok()) {
    v1::CheckpointManifest before = *manifest, after = *again;
    before.clear_file_crc32c();
    after.clear_file_crc32c();
    EXPECT_EQ(before.DebugString(), after.DebugString());
  }
  return absl::OkStatus();
}

absl::Status Parse(const std::string& bytes) {
  const absl::Status as_it_is = Read(bytes);
  EXPECT_TRUE(as_it_is.ok() || !as_it_is.message().empty());
  return Read(WithChecksum(bytes));
}

TEST(Fuzz, Manifest) {
  Fuzz({"manifest",
        {"rank-00000.bin", "rank-00001.bin", "../../x", "step", "w", std::string(1, '\0'), "\x0a", "\x12", "\x1a", "\x22", "\x7f",
         "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x80\x80\x80\x80\x80\x80\x80\x80\x40"},
        Parse});
}

}  // namespace
}  // namespace legoai::fuzz

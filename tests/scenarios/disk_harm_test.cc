// What is harmed leaves a whole, older checkpoint of the same job; a full disk is full to the last byte, and then is not.
#include "tests/scenarios/disk_harm.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace legoai::scenarios {
namespace {

namespace fs = std::filesystem;

class DiskHarmTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::remove_all(runs_); }

  std::string Step(const std::string& job, int epoch, int step) const {
    return runs_ + "/" + job + "/epoch-" + std::to_string(epoch) + "/checkpoints/step-" + std::to_string(step);
  }
  void Save(const std::string& path, bool committed = true) const {
    fs::create_directories(path);
    std::ofstream(path + "/rank-00000.bin") << kData;
    std::ofstream(path + "/rank-00000.chunks.pb") << kData;
    std::ofstream(path + (committed ? "/manifest.pb" : "/manifest.pb.tmp")) << kData;
  }
  static bool IsWhole(const std::string& path) {
    for (const auto& entry : fs::directory_iterator(path)) {
      std::ifstream file(entry.path(), std::ios::binary);
      if (std::string(std::istreambuf_iterator<char>(file), {}) != kData) return false;
    }
    return true;
  }

  static constexpr char kData[] = "some bytes of a tensor";
  const std::string runs_ = ::testing::TempDir() + "/runs";
  std::mt19937 random_{7};
  DiskHarm harm_{runs_, &random_};
};

TEST_F(DiskHarmTest, TheNewestOfAJobIsSpoiledOnceAndTheOneBeforeStays) {
  EXPECT_FALSE(harm_.SpoilCheckpoint()) << "nothing is there";
  Save(Step("a", 1, 10));
  Save(Step("a", 1, 30), /*committed=*/false);
  EXPECT_FALSE(harm_.SpoilCheckpoint()) << "it is the only one";
  Save(Step("a", 2, 20));
  ASSERT_TRUE(harm_.SpoilCheckpoint());
  EXPECT_FALSE(IsWhole(Step("a", 2, 20)));
  EXPECT_TRUE(IsWhole(Step("a", 1, 10)));
  EXPECT_EQ(harm_.spoiled().count(Step("a", 2, 20)), 1u);
  EXPECT_FALSE(harm_.SpoilCheckpoint()) << "of the two that are there one must stay";
  Save(Step("a", 2, 25));
  EXPECT_FALSE(harm_.SpoilCheckpoint()) << "the one before is spoiled";
  Save(Step("a", 2, 40));
  EXPECT_TRUE(harm_.SpoilCheckpoint());
  EXPECT_FALSE(IsWhole(Step("a", 2, 40)));
  EXPECT_TRUE(IsWhole(Step("a", 2, 25)));
}

TEST_F(DiskHarmTest, FilesAreCutOrDifferInOneBit) {
  int cut = 0, flipped = 0;
  for (int i = 0; i < 40; ++i) {
    const std::string job = std::to_string(i);
    Save(Step(job, 1, 10));
    Save(Step(job, 1, 20));
    ASSERT_TRUE(harm_.SpoilCheckpoint());
  }
  for (const auto& [path, time_us] : harm_.spoiled()) {
    int changed = 0;
    for (const auto& entry : fs::directory_iterator(path)) {
      std::ifstream file(entry.path(), std::ios::binary);
      const std::string bytes(std::istreambuf_iterator<char>(file), {}), whole = kData;
      if (bytes == whole) continue;
      EXPECT_NE(entry.path().filename(), "rank-00000.chunks.pb") << "nobody reads it any more";
      ++changed;
      if (bytes.size() < whole.size()) {
        ++cut;
        EXPECT_EQ(whole.substr(0, bytes.size()), bytes);
        continue;
      }
      int bits = 0;
      for (size_t i = 0; i < whole.size(); ++i) bits += __builtin_popcount((bytes[i] ^ whole[i]) & 0xff);
      EXPECT_EQ(bits, 1);
      ++flipped;
    }
    EXPECT_EQ(changed, 1) << path;
    EXPECT_GT(time_us, 0);
  }
  EXPECT_EQ(harm_.spoiled().size(), 40u);
  EXPECT_GT(cut, 0);
  EXPECT_GT(flipped, cut);
}

TEST_F(DiskHarmTest, AFullDiskTakesNoByteMore) {
  EXPECT_FALSE(harm_.Fill()) << "only a disk of its own is filled";
  ASSERT_EQ(harm_.Mount(), std::nullopt);
  Save(Step("a", 1, 10));
  const auto writes = [&](const std::string& name) {
    std::ofstream file(runs_ + "/" + name);
    file << std::string(4096, 'x');
    file.close();
    return !file.fail();
  };
  EXPECT_TRUE(writes("before"));
  ASSERT_TRUE(harm_.Fill());
  EXPECT_TRUE(harm_.full());
  EXPECT_FALSE(writes("while"));
  EXPECT_FALSE(harm_.Fill());
  EXPECT_TRUE(IsWhole(Step("a", 1, 10)));
  harm_.MakeRoom();
  EXPECT_TRUE(writes("after"));
  harm_.Unmount();
  EXPECT_FALSE(fs::exists(runs_ + "/before"));
}

}  // namespace
}  // namespace legoai::scenarios

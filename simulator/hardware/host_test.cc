#include "simulator/hardware/host.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace legoai::sim {
namespace {

void Write(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

TEST(HostTest, HasMemoryAndCores) {
  EXPECT_GT(HostMemoryBytes(), 0);
  EXPECT_GE(HostPhysicalCores(), 1);
  EXPECT_FALSE(HostProcessor().empty());
}

TEST(MemoryLimitTest, IsTheSmallestOfTheGroupAndThoseAboveIt) {
  const std::string root = testing::TempDir() + "/groups2";
  const std::string text = "0::/slice/job/step\n";
  EXPECT_EQ(MemoryLimitBytes(text, root), INT64_MAX) << "there are no files";
  Write(root + "/slice/job/step/memory.max", "max\n");
  EXPECT_EQ(MemoryLimitBytes(text, root), INT64_MAX);
  Write(root + "/slice/job/memory.max", "5000\n");
  Write(root + "/slice/memory.max", "7000\n");
  EXPECT_EQ(MemoryLimitBytes(text, root), 5000);
  Write(root + "/memory.max", "3000\n");
  EXPECT_EQ(MemoryLimitBytes(text, root), 3000);
  Write(root + "/slice/job/step/memory.max", "2000\n");
  EXPECT_EQ(MemoryLimitBytes(text, root), 2000);
  EXPECT_EQ(MemoryLimitBytes("0::/\n", root), 3000);
}

TEST(MemoryLimitTest, ReadsVersionOneToo) {
  const std::string root = testing::TempDir() + "/groups1";
  Write(root + "/memory/a/b/memory.limit_in_bytes", "900\n");
  Write(root + "/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write(root + "/a/b/memory.max", "1\n");
  EXPECT_EQ(MemoryLimitBytes("9:cpu,cpuacct:/a/b\n4:memory:/a/b\n", root), 900);
  EXPECT_EQ(MemoryLimitBytes("4:hugetlb,memory:/c\nnonsense\n", root), 9223372036854771712);
}

}  // namespace
}  // namespace legoai::sim

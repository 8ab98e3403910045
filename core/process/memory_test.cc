#include "core/process/memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace legoai::launch {
namespace {

void Write(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

TEST(MemoryTest, IsThereAndPartlyInUse) {
  EXPECT_GT(HostMemoryUsedBytes(), 0);
  EXPECT_LE(HostMemoryUsedBytes(), HostMemoryBytes());
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

TEST(MemoryUsedTest, IsWhatTheMachineHasNotAvailable) {
  const std::string root = testing::TempDir() + "/used0";
  const std::string meminfo = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    400 kB\n";
  EXPECT_EQ(MemoryUsedBytes(meminfo, "0::/\n", root), 600 * 1024);
  EXPECT_EQ(MemoryUsedBytes("MemTotal: 1000 kB\n", "", root), 0) << "of a kernel that does not say it";
  EXPECT_EQ(MemoryUsedBytes("", "", root), 0);
}

TEST(MemoryUsedTest, IsTheGroupsWhereThatHasTheSmallerLimit) {
  const std::string root = testing::TempDir() + "/used2";
  const std::string meminfo = "MemTotal: 1000 kB\nMemAvailable: 400 kB\n";
  const auto used = [&] { return MemoryUsedBytes(meminfo, "0::/slice/job\n", root); };
  Write(root + "/slice/memory.max", "500000\n");
  EXPECT_EQ(used(), 600 * 1024) << "the group does not say what it uses";
  Write(root + "/slice/memory.current", "300000\n");
  Write(root + "/slice/job/memory.max", "max\n");
  Write(root + "/slice/job/memory.current", "5\n");
  EXPECT_EQ(used(), 300000) << "that of the group with the limit";
  Write(root + "/slice/memory.stat", "anon 1\nfile 220000\ninactive_file 200000\nactive_file 20000\n");
  EXPECT_EQ(used(), 100000);
  Write(root + "/slice/memory.max", "90000000\n");
  EXPECT_EQ(used(), 600 * 1024) << "it may have more than the machine";
}

TEST(MemoryUsedTest, ReadsVersionOneToo) {
  const std::string root = testing::TempDir() + "/used1";
  Write(root + "/memory/a/memory.limit_in_bytes", "500000\n");
  Write(root + "/memory/a/memory.usage_in_bytes", "300000\n");
  Write(root + "/memory/a/memory.stat", "inactive_file 1\ntotal_inactive_file 50000\n");
  EXPECT_EQ(MemoryUsedBytes("MemTotal: 1000 kB\nMemAvailable: 400 kB\n", "4:memory:/a\n", root), 250000);
}

}  // namespace
}  // namespace legoai::launch

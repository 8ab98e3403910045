#include "core/process/host_resources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"

namespace legoai::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A machine of files: /sys and /proc below a folder.
class Machine : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = absl::StrCat(::testing::TempDir(), "/", ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(root_);
  }
  void Put(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  // Each of `cpus` is a thread of one core.
  void Core(const std::vector<int>& cpus, const std::string& list) {
    for (const int cpu : cpus) Put(absl::StrCat("/sys/devices/system/cpu/cpu", cpu, "/topology/thread_siblings_list"), list);
  }

  std::string root_;
};

TEST_F(Machine, ThreadsNumberedSideBySide) {
  Core({0, 1}, "0-1");
  Core({2, 3}, "2-3");
  Core({4, 5}, "4-5");
  EXPECT_THAT(CoresFirst({0, 1, 2, 3, 4, 5}, root_), ElementsAre(0, 2, 4, 1, 3, 5));
  EXPECT_EQ(CountCores({0, 1, 2, 3, 4, 5}, root_), 3);
}

TEST_F(Machine, ThreadsNumberedAfterAllCores) {
  Core({0, 2}, "0,2");
  Core({1, 3}, "1,3");
  EXPECT_THAT(CoresFirst({0, 1, 2, 3}, root_), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(CountCores({0, 1, 2, 3}, root_), 2);
}

TEST_F(Machine, OnlyWhatIsAllowedCounts) {
  Core({0, 1}, "0-1");
  Core({2, 3}, "2-3");
  EXPECT_THAT(CoresFirst({1, 2, 3}, root_), ElementsAre(1, 2, 3));
  EXPECT_EQ(CountCores({1, 2, 3}, root_), 2);
  EXPECT_EQ(CountCores({2, 3}, root_), 1);
}

TEST_F(Machine, WithoutTopologyEveryProcessorIsACore) {
  EXPECT_THAT(CoresFirst({0, 3}, root_), ElementsAre(0, 3));
  EXPECT_EQ(CountCores({0, 3}, root_), 2);
  EXPECT_EQ(CountCores({}, root_), 1);
}

TEST_F(Machine, TheQuotaOfTheGroupAndThoseAboveItBounds) {
  const std::vector<int> eight = {0, 1, 2, 3, 4, 5, 6, 7};
  Put("/proc/self/cgroup", "0::/pods/one");
  Put("/sys/fs/cgroup/pods/one/cpu.max", "max 100000");
  EXPECT_EQ(CountCores(eight, root_), 8);
  Put("/sys/fs/cgroup/pods/cpu.max", "550000 100000");
  EXPECT_EQ(CountCores(eight, root_), 5);
  Put("/sys/fs/cgroup/cpu.max", "300000 100000");
  EXPECT_EQ(CountCores(eight, root_), 3);
  Put("/sys/fs/cgroup/pods/one/cpu.max", "50000 100000");
  EXPECT_EQ(CountCores(eight, root_), 1) << "half a core is one";
}

TEST_F(Machine, TheQuotaOfVersionOneBounds) {
  Put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  Put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1");
  EXPECT_EQ(CountCores({0, 1, 2}, root_), 3);
  Put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000");
  EXPECT_EQ(CountCores({0, 1, 2}, root_), 2);
}

TEST(ParseCpuList, ReadsNumbersAndRanges) {
  EXPECT_THAT(ParseCpuList("0-3,8,1022-1025"), ElementsAre(0, 1, 2, 3, 8, 1022, 1023, 1024, 1025));
  EXPECT_THAT(ParseCpuList("0"), ElementsAre(0));
  for (const char* wrong : {"", "a", "0-b", "1--2", "0-99999999"}) EXPECT_THAT(ParseCpuList(wrong), IsEmpty()) << wrong;
}

TEST(AllowedCpus, FollowTheAffinity) {
  const std::vector<int> all = AllowedCpus();
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(std::set<int>(all.begin(), all.end()).size(), all.size());
  EXPECT_GE(static_cast<int64_t>(all.size()), AllowedCores());
  // A thread has an affinity of its own, so that this process keeps its.
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(all.back(), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_THAT(AllowedCpus(), ElementsAre(all.back()));
    EXPECT_EQ(AllowedCores(), 1);
  }).join();
}

// For this thread the kernel refuses to tell the affinity with `error` unless the mask has so many bytes.
bool RefuseAffinityBelow(uint32_t bytes, uint32_t error) {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_getaffinity, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, bytes, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

std::vector<int> AllowedWhereRefusedBelow(uint32_t bytes, uint32_t error) {
  std::vector<int> allowed;
  std::thread([&] {
    if (RefuseAffinityBelow(bytes, error)) allowed = AllowedCpus();
  }).join();
  return allowed;
}

TEST(AllowedCpus, AreToldWhereTheKernelHasMoreThanAThousandProcessors) {
  EXPECT_EQ(AllowedWhereRefusedBelow(1024, EINVAL), AllowedCpus());  // 8192 processors
}

TEST(AllowedCpus, AreAllThatAreOnlineWhereNoAffinityIsTold) {
  const std::vector<int> all = AllowedWhereRefusedBelow(UINT32_MAX, EPERM);
  EXPECT_FALSE(all.empty());
  EXPECT_GE(all.size(), AllowedCpus().size());
}

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

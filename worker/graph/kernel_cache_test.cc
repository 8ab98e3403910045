#include "worker/graph/kernel_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/checkpoint/files.h"

namespace legoai::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

// Gives tensors[1][i] = tensors[0][i] * factor.
std::string Times(int factor) {
  return "extern \"C\" void lego_kernel(void* const* t, long begin, long end) {\n"
         "  for (long i = begin; i < end; ++i) ((float*)t[1])[i] = ((const float*)t[0])[i] * " +
         std::to_string(factor) + ";\n}\n";
}

float RunKernel(KernelFunction kernel, float x) {
  float y = 0;
  void* const tensors[] = {&x, &y};
  kernel(tensors, 0, 1);
  return y;
}

class KernelCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "/" + testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    setenv("LEGOAI_KERNEL_CACHE", folder_.c_str(), 1);
    unsetenv("LEGOAI_CXX");
  }
  void TearDown() override { unsetenv("LEGOAI_CXX"); }

  float Load(int factor) {
    auto kernel = LoadKernel(Times(factor), &counts_, &notes_);
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    return kernel.ok() ? RunKernel(*kernel, 3) : 0;
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) names.push_back(entry.path().extension());
    std::sort(names.begin(), names.end());
    return names;
  }

  std::string folder_;
  KernelCounts counts_;
  std::vector<std::string> notes_;
};

TEST_F(KernelCacheTest, CompilesOnceAndKeepsNothingElse) {
  EXPECT_EQ(Load(2), 6);
  EXPECT_EQ(Load(2), 6);
  EXPECT_EQ(counts_.compiled, 1);
  EXPECT_EQ(counts_.loaded, 1);
  EXPECT_GT(counts_.seconds, 0);
  EXPECT_THAT(notes_, IsEmpty());
  EXPECT_THAT(Files(), ElementsAre("", ".so"));
  EXPECT_EQ(Load(5), 15);
  EXPECT_EQ(counts_.compiled, 2);
}

// Puts another file in a kernel's place, since this process has mapped the one that is there.
void Replace(const std::string& path, const std::string& bytes) {
  std::ofstream(path + ".new", std::ios::binary) << bytes;
  fs::rename(path + ".new", path);
}

// What is damaged is never loaded.
TEST_F(KernelCacheTest, BuildsAgainWhatIsDamagedAndSaysSo) {
  EXPECT_EQ(Load(2), 6);
  const std::string path = KernelPath(Times(2)).value();
  const std::string whole = checkpoint::ReadFile(path).value();
  std::string changed = whole;
  changed[whole.size() / 3] ^= 1;
  int64_t compiled = 1;
  const std::vector<std::string> damaged = {whole.substr(0, whole.size() / 2), whole.substr(0, whole.size() - 1), "",
                                            whole.substr(0, whole.size() - 70), changed};
  for (const std::string& bytes : damaged) {
    Replace(path, bytes);
    notes_.clear();
    EXPECT_EQ(Load(2), 6) << bytes.size();
    EXPECT_EQ(counts_.compiled, ++compiled);
    ASSERT_EQ(notes_.size(), 1u);
    EXPECT_THAT(notes_[0], HasSubstr(path));
    EXPECT_THAT(notes_[0], HasSubstr("is built again: it is damaged"));
    EXPECT_EQ(checkpoint::ReadFile(path).value().size(), whole.size());
  }
}

// A script that is another compiler by its version, and compiles as the real one does.
std::string OtherCompiler(const std::string& folder) {
  const std::string path = folder + "-c++", real = FindKernelCompiler().value().path;
  std::ofstream(path) << "#!/bin/sh\nif [ \"$1\" = --version ]; then echo 'other compiler 1.0'; else exec " << real
                      << " \"$@\"; fi\n";
  fs::permissions(path, fs::perms::owner_all);
  return path;
}

TEST_F(KernelCacheTest, TakesNoKernelOfAnotherCompiler) {
  EXPECT_EQ(Load(2), 6);
  const std::string first = KernelPath(Times(2)).value();
  setenv("LEGOAI_CXX", OtherCompiler(folder_).c_str(), 1);
  const std::string second = KernelPath(Times(2)).value();
  EXPECT_NE(first, second);
  EXPECT_EQ(Load(2), 6);
  EXPECT_EQ(counts_.compiled, 2);
  // Even where its file has the name of this compiler's.
  Replace(second, checkpoint::ReadFile(first).value());
  EXPECT_EQ(Load(2), 6);
  EXPECT_EQ(counts_.compiled, 3);
  ASSERT_EQ(notes_.size(), 1u);
  EXPECT_THAT(notes_[0], HasSubstr("it was built by"));
  EXPECT_THAT(notes_[0], HasSubstr("not by other compiler 1.0"));
}

TEST_F(KernelCacheTest, IsCompiledByOneOfManyProcesses) {
  constexpr int kProcesses = 6;
  ASSERT_TRUE(FindKernelCompiler().ok());
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t pid = fork();
    if (pid == 0) {
      const auto kernel = LoadKernel(Times(7), &counts_, &notes_);
      _exit(!kernel.ok() || RunKernel(*kernel, 3) != 21 ? 99 : static_cast<int>(counts_.compiled));
    }
    children.push_back(pid);
  }
  int compiled = 0;
  for (const pid_t pid : children) {
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    compiled += WEXITSTATUS(status);
  }
  EXPECT_EQ(compiled, 1);
}

// Before the folder is there, where new ones may be written by the group.
TEST_F(KernelCacheTest, IsMadeByManyProcessesAtOnce) {
  ASSERT_TRUE(FindKernelCompiler().ok());
  constexpr int kRounds = 20, kProcesses = 6;
  int go[2];
  for (int round = 0; round < kRounds; ++round) {
    fs::remove_all(folder_);
    setenv("LEGOAI_KERNEL_CACHE", (folder_ + "/a/kernels/").c_str(), 1);
    ASSERT_EQ(pipe(go), 0);
    std::vector<pid_t> children;
    for (int i = 0; i < kProcesses; ++i) {
      const pid_t pid = fork();
      if (pid == 0) {
        umask(0002);
        char byte = 0;
        close(go[1]);
        const bool woken = read(go[0], &byte, 1) == 0;  // the end, when the other side is closed
        _exit(woken && KernelPath(Times(2)).ok() ? 0 : 1);
      }
      children.push_back(pid);
    }
    close(go[0]), close(go[1]);
    for (const pid_t pid : children) {
      int status = 0;
      ASSERT_EQ(waitpid(pid, &status, 0), pid);
      EXPECT_EQ(status, 0) << "round " << round;
    }
    struct stat facts = {};
    ASSERT_EQ(stat((folder_ + "/a/kernels").c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777, 0700u);
  }
}

TEST_F(KernelCacheTest, SaysThatItGoesOnWhileAnotherProcessCompiles) {
  ASSERT_TRUE(KernelPath(Times(2)).ok());
  const int file = open((folder_ + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(flock(file, LOCK_EX), 0);
  int called = 0;
  const auto kernel = LoadKernel(Times(2), &counts_, &notes_, [&] {
    if (++called == 3) close(file);
  });
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_EQ(RunKernel(*kernel, 3), 6);
  EXPECT_GE(called, 3);
}

TEST_F(KernelCacheTest, SaysThatItsLockCannotBeOpened) {
  ASSERT_TRUE(KernelPath(Times(2)).ok());
  fs::create_directory(folder_ + "/lock");
  EXPECT_THAT(LoadKernel(Times(2), &counts_, &notes_).status().message(), HasSubstr("/lock"));
}

TEST_F(KernelCacheTest, RemovesWhatAKilledProcessLeft) {
  EXPECT_EQ(Load(2), 6);
  const std::string kernel = KernelPath(Times(2)).value();
  for (const std::string& name : {kernel, kernel + ".abcdef.cc", kernel + ".ghijkl.log", folder_ + "/version.abcdef"}) {
    std::ofstream(name, std::ios::app).flush();
    const bool is_old = name != kernel + ".ghijkl.log";
    fs::last_write_time(name, fs::file_time_type::clock::now() - std::chrono::hours(is_old ? 25 : 1));
  }
  EXPECT_EQ(Load(5), 15);
  EXPECT_THAT(Files(), ElementsAre("", ".log", ".so", ".so"));
}

TEST_F(KernelCacheTest, SaysWhatTheCompilerSaid) {
  const auto kernel = LoadKernel("not C++", &counts_, &notes_);
  EXPECT_EQ(kernel.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(kernel.status().message(), HasSubstr("exited with code 1"));
  EXPECT_THAT(kernel.status().message(), HasSubstr("error:"));
  EXPECT_THAT(Files(), ElementsAre("")) << "the lock";
}

TEST_F(KernelCacheTest, SaysThatThereIsNoCompiler) {
  setenv("LEGOAI_CXX", "/nowhere/c++", 1);
  EXPECT_THAT(LoadKernel(Times(2), &counts_, &notes_).status().message(), HasSubstr("LEGOAI_CXX"));
  unsetenv("LEGOAI_CXX");
  const std::string path = std::getenv("PATH");
  setenv("PATH", "/nowhere", 1);
  EXPECT_THAT(LoadKernel(Times(2), &counts_, &notes_).status().message(), HasSubstr("needs a C++ compiler"));
  setenv("PATH", path.c_str(), 1);
}

// What lies in the cache is run.
TEST_F(KernelCacheTest, RefusesAFolderThatOthersMayWrite) {
  fs::create_directories(folder_);
  chmod(folder_.c_str(), 0777);
  EXPECT_THAT(LoadKernel(Times(2), &counts_, &notes_).status().message(), HasSubstr("may be written by others"));
  setenv("LEGOAI_KERNEL_CACHE", "/dev/null/kernels", 1);
  EXPECT_THAT(LoadKernel(Times(2), &counts_, &notes_).status().message(), HasSubstr("cannot be made or written"));
}

}  // namespace
}  // namespace legoai::graph

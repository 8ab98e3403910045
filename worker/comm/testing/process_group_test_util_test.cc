#include "worker/comm/testing/process_group_test_util.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>

namespace legoai::comm::testing {
namespace {

TEST(RunRanks, GivesWhatEveryRankReturned) {
  const auto results = RunRanks({.dp_shard = 2}, [](int64_t rank, Runtime&) { return std::string(rank + 1, 'x'); });
  EXPECT_THAT(results, ::testing::ElementsAre("x", "xx"));
}

// The process of a test is killed: its ranks die with it. This process adopts them and sees them end.
TEST(RunRanks, NoRankSurvivesTheTest) {
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const pid_t victim = fork();
  if (victim == 0) {
    RunRanks({.dp_shard = 2}, [&](int64_t, Runtime&) -> std::string {
      const pid_t pid = getpid();
      if (write(fds[1], &pid, sizeof(pid)) != sizeof(pid)) _exit(1);
      for (;;) pause();
    });
    _exit(0);
  }
  std::set<pid_t> expected = {victim};
  for (int i = 0; i < 2; ++i) {
    pid_t pid = 0;
    ASSERT_EQ(read(fds[0], &pid, sizeof(pid)), static_cast<ssize_t>(sizeof(pid)));
    expected.insert(pid);
  }
  kill(victim, SIGKILL);
  std::set<pid_t> ended;
  for (int i = 0; i < 3; ++i) ended.insert(waitpid(-1, nullptr, 0));
  EXPECT_EQ(ended, expected);
}

}  // namespace
}  // namespace legoai::comm::testing

#include "core/process/other_user.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/checkpoint/testing/small_file_system.h"
#include "core/process/child_process.h"

namespace legoai::launch {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(FindOtherUserTest, RefusesByName) {
  EXPECT_THAT(FindOtherUser("--trainer_user", "no-such-user").status().message(),
              HasSubstr("--trainer_user = no-such-user: is no user of this host"));
  EXPECT_THAT(FindOtherUser("--trainer_user", "root").status().message(), HasSubstr("root: may do everything on this host"));
}

// A folder of root, and the user nobody.
class OtherUserTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root becomes another user";
    const auto user = FindOtherUser("--trainer_user", "nobody");
    if (absl::IsPermissionDenied(user.status())) GTEST_SKIP() << user.status();
    ASSERT_TRUE(user.ok()) << user.status();
    user_ = *user;
    char name[] = "/tmp/other-user-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    ASSERT_EQ(chmod(name, 0755), 0);
  }
  ~OtherUserTest() override {
    std::error_code none;
    if (!folder_.empty()) fs::remove_all(folder_, none);
  }

  // A file that only root may read.
  std::string Secret() const {
    const std::string path = folder_ + "/secret";
    std::ofstream(path) << "the agent's token";
    chmod(path.c_str(), 0600);
    return path;
  }

  uid_t OwnerOf(const std::string& path) const {
    struct stat facts = {};
    EXPECT_EQ(lstat(path.c_str(), &facts), 0) << path;
    return facts.st_uid;
  }

  // What a child of the user says, whose standard output goes to a file that this thread, or the user, opens.
  std::string Say(const std::string& script, std::vector<int> inherited = {}) {
    return SayTo(folder_ + "/said", script, std::move(inherited));
  }
  std::string SayTo(const std::string& log, const std::string& script, std::vector<int> inherited = {}) {
    ChildSpec spec;
    spec.arguments = {"/bin/sh", "-c", script};
    spec.inherited = std::move(inherited);
    spec.log_path = log;
    spec.user = user_;
    spec.environment = EnvironmentOf(user_, /*with_keys=*/false);
    const auto pid = SpawnChild(spec);
    EXPECT_TRUE(pid.ok()) << pid.status();
    if (pid.ok()) waitpid(*pid, nullptr, 0);
    return Contents(log);
  }

  OtherUser user_;
  std::string folder_;
};

TEST_F(OtherUserTest, AChildHasNothingOfRoot) {
  const std::string secret = Secret();
  const int opened = open(secret.c_str(), O_RDONLY);
  const int open_secret = fcntl(opened, F_DUPFD, 50);  // not close-on-exec, and none of the shell's own
  close(opened);
  ASSERT_GE(open_secret, 50);
  ASSERT_EQ(setenv("LEGOAI_TOKEN", "secret", 1), 0);
  ASSERT_EQ(setenv("AWS_SECRET_ACCESS_KEY", "secret", 1), 0);
  ASSERT_EQ(setenv("NCCL_DEBUG", "WARN", 1), 0);
  const std::string said =
      Say(absl::StrCat("cat ", secret, "; cat /proc/self/status /proc/self/limits; echo fds: /proc/$$/fd/*; env"));
  close(open_secret);
  EXPECT_THAT(said, HasSubstr("Permission denied"));
  EXPECT_THAT(said, Not(HasSubstr("the agent's token")));
  const std::string id = absl::StrCat(user_.uid), gid = absl::StrCat(user_.gid);
  const std::vector<std::string> lines = absl::StrSplit(said, '\n');
  EXPECT_THAT(lines, Contains(absl::StrCat("Uid:\t", id, "\t", id, "\t", id, "\t", id)));
  EXPECT_THAT(lines, Contains(absl::StrCat("Gid:\t", gid, "\t", gid, "\t", gid, "\t", gid)));
  std::string groups;
  for (const gid_t group : user_.groups) absl::StrAppend(&groups, group, " ");
  EXPECT_THAT(lines, Contains(absl::StrCat("Groups:\t", groups)));
  for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"})
    EXPECT_THAT(lines, Contains(absl::StrCat(set, ":\t0000000000000000")));
  EXPECT_THAT(lines, Contains("NoNewPrivs:\t1"));
  EXPECT_THAT(said, ::testing::ContainsRegex("Max core file size +0 +0 "));
  rlimit files = {}, threads = {};
  getrlimit(RLIMIT_NOFILE, &files);
  getrlimit(RLIMIT_NPROC, &threads);
  const auto most_files = std::min<rlim_t>(files.rlim_max, kMostFilesOfChild);
  const auto most_threads = std::min<rlim_t>(threads.rlim_max, kMostThreadsOfUser);
  EXPECT_THAT(said, ::testing::ContainsRegex(absl::StrCat("Max open files +", most_files, " +", most_files, " ")));
  EXPECT_THAT(said, ::testing::ContainsRegex(absl::StrCat("Max processes +", most_threads, " +", most_threads, " ")));
  EXPECT_THAT(lines, Contains(absl::StrCat("HOME=", user_.home)));
  EXPECT_THAT(lines, Contains("USER=nobody"));
  EXPECT_THAT(lines, Contains("NCCL_DEBUG=WARN"));
  EXPECT_THAT(said, Not(HasSubstr("LEGOAI_TOKEN")));
  EXPECT_THAT(said, Not(HasSubstr("AWS_")));
  EXPECT_THAT(said, Not(HasSubstr(absl::StrCat("/fd/", open_secret)))) << said;
  EXPECT_THAT(EnvironmentOf(user_, /*with_keys=*/true), Contains("AWS_SECRET_ACCESS_KEY=secret"));
}

TEST_F(OtherUserTest, AChildKeepsWhatItIsToInherit) {
  int fds[2];
  ASSERT_EQ(pipe2(fds, O_CLOEXEC), 0);
  Say(absl::StrCat("echo heard >&", fds[1]), {fds[1]});
  close(fds[1]);
  char text[16] = {};
  EXPECT_EQ(read(fds[0], text, sizeof(text) - 1), 6);
  EXPECT_STREQ(text, "heard\n");
  close(fds[0]);
}

// A thread that acts as the user follows a link no further than the user, leaves the others alone, and starts children.
TEST_F(OtherUserTest, AThreadActsAsTheUser) {
  const std::string secret = Secret(), theirs = folder_ + "/theirs";
  ASSERT_EQ(GiveFolder("--runs", folder_, "theirs", user_), absl::OkStatus());
  EXPECT_EQ(OwnerOf(theirs), user_.uid);
  ASSERT_EQ(symlink(secret.c_str(), (theirs + "/link").c_str()), 0);
  uid_t inside = 0;
  std::string through_link, said;
  bool removed = false;
  ASSERT_EQ(RunAs(user_,
                  [&] {
                    inside = geteuid();
                    EXPECT_EQ(ActAs(user_), absl::OkStatus()) << "once more";
                    through_link = Contents(theirs + "/link");
                    std::error_code error;
                    removed = fs::remove(secret, error);
                    std::ofstream(theirs + "/file") << "written";
                    ChildSpec spec;
                    spec.arguments = {"/bin/sh", "-c", "cat /proc/self/status"};
                    spec.log_path = theirs + "/said";
                    spec.user = user_;
                    const auto pid = SpawnChild(spec);
                    ASSERT_TRUE(pid.ok()) << pid.status();
                    waitpid(*pid, nullptr, 0);
                    said = Contents(theirs + "/said");
                  }),
            absl::OkStatus());
  EXPECT_EQ(inside, user_.uid);
  EXPECT_EQ(through_link, "");
  EXPECT_FALSE(removed);
  EXPECT_EQ(OwnerOf(theirs + "/file"), user_.uid);
  EXPECT_EQ(OwnerOf(theirs + "/said"), user_.uid);
  EXPECT_THAT(said, HasSubstr("CapPrm:\t0000000000000000\n"));
  EXPECT_THAT(said, HasSubstr("CapBnd:\t0000000000000000\n"));
  EXPECT_THAT(said, HasSubstr(absl::StrCat("Uid:\t", user_.uid, "\t", user_.uid, "\t", user_.uid)));
  EXPECT_EQ(geteuid(), 0u) << "this thread is as it was";
  EXPECT_EQ(Contents(secret), "the agent's token");
}

TEST_F(OtherUserTest, AChildOfAnotherUserEndsWithItsThread) {
  pid_t child = -1;
  ASSERT_EQ(RunAs(user_,
                  [&] {
                    ChildSpec spec;
                    spec.arguments = {"/bin/sleep", "1000"};
                    spec.user = user_;
                    const auto pid = SpawnChild(spec);
                    ASSERT_TRUE(pid.ok()) << pid.status();
                    child = *pid;
                  }),
            absl::OkStatus());
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << DescribeWaitStatus(status);
}

TEST_F(OtherUserTest, AProgramThatTheUserMayNotRunIsNamed) {
  const std::string program = folder_ + "/program";
  std::ofstream(program) << "#!/bin/sh\n";
  ASSERT_EQ(chmod(program.c_str(), 0700), 0);
  ChildSpec spec;
  spec.arguments = {program};
  spec.user = user_;
  EXPECT_THAT(SpawnChild(spec).status().message(), HasSubstr("cannot be run by user nobody: Permission denied"));
}

TEST_F(OtherUserTest, AFolderIsGivenOnlyWhereItIsNobodysYet) {
  const auto give = [&](const std::string& name) { return GiveFolder("--runs", folder_, name, user_); };
  EXPECT_EQ(give("new"), absl::OkStatus());
  EXPECT_EQ(give("new"), absl::OkStatus()) << "once more";
  fs::create_directory(folder_ + "/empty");
  EXPECT_EQ(give("empty"), absl::OkStatus()) << "another agent has made it this moment";
  EXPECT_EQ(OwnerOf(folder_ + "/empty"), user_.uid);

  fs::create_directories(folder_ + "/full/of-root");
  EXPECT_THAT(give("full").message(), HasSubstr("belongs to user 0, and trainers run as nobody: `chown -R nobody`"));
  EXPECT_EQ(OwnerOf(folder_ + "/full"), 0u);
  fs::create_directory(folder_ + "/others");
  ASSERT_EQ(chown((folder_ + "/others").c_str(), 12345, 12345), 0);
  EXPECT_THAT(give("others").message(), HasSubstr("belongs to user 12345"));

  fs::create_directory(folder_ + "/target");
  fs::create_directory_symlink(folder_ + "/target", folder_ + "/link");
  EXPECT_THAT(give("link").message(), HasSubstr("is no folder, or a link to one"));
  EXPECT_EQ(OwnerOf(folder_ + "/target"), 0u);
  std::ofstream(folder_ + "/file") << "";
  EXPECT_THAT(give("file").message(), HasSubstr("is no folder"));
}

// An agent of a user of its own that has these two alone.
TEST_F(OtherUserTest, TwoCapabilitiesDoWithoutRoot) {
  ASSERT_EQ(chmod(folder_.c_str(), 0777), 0);
  EXPECT_TRUE(checkpoint::PassesInChild([this] {
    const passwd* const daemon = getpwnam("daemon");
    ASSERT_NE(daemon, nullptr);
    ASSERT_EQ(prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0), 0);
    ASSERT_EQ(setgroups(0, nullptr), 0);
    ASSERT_EQ(setresgid(daemon->pw_gid, daemon->pw_gid, daemon->pw_gid), 0);
    ASSERT_EQ(setresuid(daemon->pw_uid, daemon->pw_uid, daemon->pw_uid), 0);
    __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct two[_LINUX_CAPABILITY_U32S_3] = {};
    two[0].permitted = two[0].effective = CAP_TO_MASK(CAP_SETUID) | CAP_TO_MASK(CAP_SETGID);
    ASSERT_EQ(syscall(SYS_capset, &header, two), 0);
    ASSERT_TRUE(FindOtherUser("--trainer_user", "nobody").ok());
    const auto expect_nothing_left = [this](const std::string& said) {
      const std::vector<std::string> lines = absl::StrSplit(said, '\n');
      EXPECT_THAT(lines, Contains(absl::StrCat("Uid:\t", user_.uid, "\t", user_.uid, "\t", user_.uid, "\t", user_.uid)));
      for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapAmb"})
        EXPECT_THAT(lines, Contains(absl::StrCat(set, ":\t0000000000000000")));
      EXPECT_THAT(lines, Contains("NoNewPrivs:\t1"));
    };
    expect_nothing_left(Say("cat /proc/self/status"));
    std::string said, own;
    ASSERT_EQ(RunAs(user_,
                    [&] {
                      std::ifstream status("/proc/thread-self/status");
                      own.assign(std::istreambuf_iterator<char>(status), std::istreambuf_iterator<char>());
                      said = SayTo(folder_ + "/said-by-thread", "cat /proc/self/status");
                    }),
              absl::OkStatus());
    EXPECT_THAT(own, HasSubstr("CapEff:\t0000000000000000\n"));
    expect_nothing_left(said);
  }));
}

// As another user than root: there is nothing to switch with, and itself is no other.
TEST_F(OtherUserTest, WithoutRightsItIsRefusedByName) {
  EXPECT_TRUE(checkpoint::PassesInChild([this] {
    const auto daemon = FindOtherUser("--trainer_user", "daemon");
    ASSERT_EQ(BecomeForGood(user_), 0);
    EXPECT_THAT(FindOtherUser("--trainer_user", "nobody").status().message(), HasSubstr("is the user that this process runs as"));
    if (!daemon.ok()) return;
    const absl::Status refused = FindOtherUser("--trainer_user", "daemon").status();
    EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
    EXPECT_THAT(refused.message(), HasSubstr("who has no CAP_SETUID and CAP_SETGID: start this as root, or leave it out"));
    EXPECT_TRUE(absl::IsInternal(ActAs(*daemon))) << "and it does not happen";
    EXPECT_EQ(geteuid(), user_.uid);
  }));
}

}  // namespace
}  // namespace legoai::launch

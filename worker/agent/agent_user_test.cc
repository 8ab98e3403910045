// Trainers of another user than the agent's: what they can reach, and what the agent reaches where they write.
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/checkpoint/testing/small_file_system.h"
#include "core/process/other_user.h"
#include "worker/agent/epoch_directory.h"
#include "worker/agent/gang_folder.h"
#include "worker/agent/testing/agent_test_names.h"

namespace legoai::agent {
namespace {

namespace fs = std::filesystem;
using ::testing::ContainsRegex;

constexpr char kSecret[] = "what only the agent may read";

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<std::string> LinesOf(const std::string& path) { return absl::StrSplit(Contents(path), '\n'); }

uid_t OwnerOf(const std::string& path) {
  struct stat facts = {};
  EXPECT_EQ(lstat(path.c_str(), &facts), 0) << path;
  return facts.st_uid;
}

class TrainerUserTest : public testing::AgentTest {
 protected:
  void SetUp() override {
    const passwd* const nobody = getpwnam("nobody");
    if (geteuid() != 0 || nobody == nullptr) GTEST_SKIP() << "only root has trainers of another user, and there must be nobody";
    uid_ = nobody->pw_uid;
    static const absl::Status open = checkpoint::OpenToOthers({fs::current_path(), folder(), request_.trainer});
    if (!open.ok()) GTEST_SKIP() << open;
    secret_ = fs::absolute(folder()).string() + "/secret";
    std::ofstream(secret_) << kSecret << "\n";
    ASSERT_EQ(chmod(secret_.c_str(), 0600), 0);
  }

  bool BeginAsNobody(const v1::ToAgent& attempt) {
    StartAgent({"--trainer_user=nobody"});
    if (!AwaitConnection()) return false;
    server_.Send(attempt);
    return true;
  }

  // The trainer does this first.
  void TrainerBegins(const std::string& script) {
    const std::string program = fs::absolute(folder()).string() + "/trainer", real = request_.trainer;
    std::ofstream(program) << "#!/bin/sh\n" << script << "\nexec " << real << " \"$@\"\n";
    ASSERT_EQ(chmod(program.c_str(), 0755), 0);
    request_.trainer = program;
  }

  std::string RankLog(int64_t epoch) const { return EpochFolder(epoch) + "/logs/rank-0.log"; }

  uid_t uid_ = 0;
  std::string secret_;
};

void ExpectRunsAs(pid_t pid, const passwd& user) {
  const std::string process = absl::StrCat("/proc/", pid);
  const auto status = LinesOf(process + "/status");
  const auto ids = [](const char* name, int64_t id) { return absl::StrCat(name, ":\t", id, "\t", id, "\t", id, "\t", id); };
  EXPECT_THAT(status, Contains(ids("Uid", user.pw_uid)));
  EXPECT_THAT(status, Contains(ids("Gid", user.pw_gid)));
  gid_t groups[64];
  int count = 64;
  ASSERT_GT(getgrouplist(user.pw_name, user.pw_gid, groups, &count), 0);
  std::string listed = "Groups:\t";
  for (int i = 0; i < count; ++i) absl::StrAppend(&listed, groups[i], " ");
  EXPECT_THAT(status, Contains(listed));
  EXPECT_THAT(status, Contains("NoNewPrivs:\t1"));
  for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"})
    EXPECT_THAT(status, Contains(absl::StrCat(set, ":\t0000000000000000")));
  const std::string limits = Contents(process + "/limits");
  EXPECT_THAT(limits, ContainsRegex("Max core file size +0 +0 "));
  EXPECT_THAT(limits, Not(ContainsRegex("Max processes +unlimited")));
  const std::vector<std::string> environment = absl::StrSplit(Contents(process + "/environ"), '\0');
  EXPECT_THAT(environment, Contains(absl::StrCat("HOME=", user.pw_dir)));
  EXPECT_THAT(environment, Contains("USER=nobody"));
  EXPECT_THAT(environment, Not(Contains(HasSubstr(kSecret))));
  for (const auto& descriptor : fs::directory_iterator(process + "/fd")) {
    std::error_code closed_since;
    EXPECT_THAT(fs::read_symlink(descriptor.path(), closed_since).string(), Not(HasSubstr("/secret")));
  }
}

TEST_F(TrainerUserTest, TrainsSavesGoesOnAndExports) {
  TrainerBegins("cat " + secret_);
  recipe().mutable_checkpoint()->set_last_save_in_hf(true);
  recipe().mutable_checkpoint()->set_keep_latest_k(2);
  WaitForEachVerdict();
  server_.Change([](State& state) {
    state.verdict = [](const v1::CommitRequest& request) -> std::optional<bool> {
      return request.lease().epoch() == 1 && request.step() == 4 ? std::nullopt : std::optional(true);
    };
  });
  const int inherited = open(secret_.c_str(), O_RDONLY);  // by the agent, which does not know of it
  ASSERT_GE(inherited, 0);
  setenv("LEGOAI_TOKEN", kSecret, 1);
  setenv("AWS_SECRET_ACCESS_KEY", kSecret, 1);
  const bool begun = BeginAsNobody(Attempt(1, 2));
  unsetenv("LEGOAI_TOKEN");
  unsetenv("AWS_SECRET_ACCESS_KEY");
  close(inherited);
  ASSERT_TRUE(begun);
  EXPECT_TRUE(Logged(absl::StrCat("trainers run as user nobody (", uid_, ")")));
  ASSERT_TRUE(server_.Await([](const State& state) { return state.commit_requests.size() == 2; }));
  const auto trainers = Trainers();
  ASSERT_EQ(trainers.size(), 2u);
  for (const auto& [rank, pid] : trainers) ExpectRunsAs(pid, *getpwnam("nobody"));
  EXPECT_THAT(Contents(RankLog(1)), HasSubstr("Permission denied"));
  EXPECT_THAT(Contents(RankLog(1)), Not(HasSubstr(kSecret)));

  // The ranks of the first epoch, which wait for a verdict, are killed for it.
  v1::ToAgent next = Attempt(2, 2);
  next.mutable_start()->set_resume_step(2);
  next.mutable_start()->set_resume_directory(Checkpoints(1));
  server_.Send(next);
  ASSERT_TRUE(AwaitEnd(2));
  const v1::AttemptEnded ended = *server_.Get().Ended(2);
  EXPECT_FALSE(ended.has_error()) << ended.error().message();
  EXPECT_THAT(Steps(server_.Get().Metrics(2)), ElementsAre(3, 4, 5, 6));
  EXPECT_TRUE(fs::exists(ended.hf_directory() + "/config.json"));
  Signal(SIGTERM);
  EXPECT_EQ(AwaitExit(), 0);
  EXPECT_THAT(*checkpoint::ListCheckpoints(Checkpoints(2)), ElementsAre(4, 6));
  EXPECT_THAT(*checkpoint::ListCheckpoints(Checkpoints(1)), IsEmpty()) << "removed, as there are as many of its own";

  const std::string job = fs::path(EpochFolder(1)).parent_path();
  EXPECT_EQ(OwnerOf(fs::path(job).parent_path()), 0u);
  EXPECT_EQ(OwnerOf(job), uid_);
  for (const auto& entry : fs::recursive_directory_iterator(job)) EXPECT_EQ(OwnerOf(entry.path()), uid_) << entry.path();
}

// What a trainer has put in the place of its files leads the agent no further than the trainer.
TEST_F(TrainerUserTest, LinksThatATrainerPlantsLeadNowhere) {
  const std::string victim = fs::absolute(folder()).string() + "/victim";
  fs::create_directory(victim);
  TrainerBegins(absl::StrCat("cd ", EpochFolder(1), "\nrm -f logs/rank-0.log run.json\nln -s ", secret_,
                             " logs/rank-0.log\nln -s ", secret_, " run.json\nln -s ", secret_, " flight/rank-0\nln -s ", victim,
                             " ../epoch-2\nmkdir -p ../epoch-3/logs\nln -s ", secret_, " ../epoch-3/logs/rank-0.log\nexit 7"));
  ASSERT_TRUE(BeginAsNobody(Attempt(1, 1)));
  ASSERT_TRUE(AwaitEnd(1));
  EXPECT_THAT(server_.Get().Ended(1)->error().message(), HasSubstr("exited with code 7"));
  ASSERT_TRUE(fs::is_symlink(RankLog(1))) << "it was planted";
  for (const std::string& line : server_.Get().Logs()) EXPECT_THAT(line, Not(HasSubstr(kSecret)));

  server_.Send(Attempt(2, 1));
  ASSERT_TRUE(AwaitEnd(2));
  EXPECT_THAT(server_.Get().Ended(2)->error().message(), HasSubstr("Permission denied"));
  EXPECT_TRUE(fs::is_empty(victim));

  // One that is refused before anything is made for it looks for last lines all the same.
  v1::ToAgent misplaced = Attempt(3, 1);
  misplaced.mutable_start()->mutable_placement()->set_slots(2);
  server_.Send(misplaced);
  ASSERT_TRUE(AwaitEnd(3));
  EXPECT_THAT(server_.Get().Ended(3)->error().message(), HasSubstr("placement"));
  for (const std::string& line : server_.Get().Logs()) EXPECT_THAT(line, Not(HasSubstr(kSecret)));
  EXPECT_EQ(Contents(secret_), absl::StrCat(kSecret, "\n"));
  EXPECT_EQ(OwnerOf(secret_), 0u);
}

TEST_F(TrainerUserTest, APipeInThePlaceOfALogIsNotWaitedFor) {
  TrainerBegins(absl::StrCat("cd ", EpochFolder(1), "/logs\nrm -f rank-0.log\nmkfifo rank-0.log\nexit 7"));
  ASSERT_TRUE(BeginAsNobody(Attempt(1, 1)));
  ASSERT_TRUE(AwaitEnd(1));
  EXPECT_TRUE(fs::is_fifo(RankLog(1)));
}

// The first worker, here this test, and the member have trainers of the same user.
TEST_F(TrainerUserTest, AMemberOfAGangTrainsInTheFolderOfTheFirst) {
  const auto user = launch::FindOtherUser("--trainer_user", "nobody");
  const auto listener = launch::ListenOnLoopback(0);
  ASSERT_TRUE(user.ok() && listener.ok()) << user.status() << listener.status();
  close(listener->fd);
  const v1::ToAgent attempt = AttemptOfMember(3, listener->port);
  ASSERT_TRUE(BeginAsNobody(attempt));

  launch::TrainRequest first = request_;
  first.nproc = 1;
  first.gang = launch::GangPlace{.hosts = 2, .host = 0, .address = "127.0.0.1", .port = listener->port, .device = "cpu"};
  first.lease = launch::LeasedAttempt{.attempt = 3, .epoch = 3};
  first.recipe.mutable_job()->set_dump_folder(EpochFolder(3));
  first.user = *user;
  launch::TrainCallbacks callbacks;
  callbacks.commit = [](int64_t, const std::vector<std::string>&) { return absl::OkStatus(); };
  launch::StopPipe stop;
  const fs::path job = fs::path(EpochFolder(3)).parent_path();
  ASSERT_EQ(launch::GiveFolder("--runs", job.parent_path(), job.filename(), *user), absl::OkStatus());
  absl::StatusOr<launch::TrainOutcome> outcome = absl::UnknownError("");
  ASSERT_EQ(launch::RunAs(*user,
                          [&] {
                            ASSERT_EQ(MakeEpochDirectory(EpochFolder(3)), absl::OkStatus());
                            ASSERT_EQ(WriteGangNote(EpochFolder(3), attempt.start()), absl::OkStatus());
                            outcome = launch::RunTraining(first, callbacks, &stop);
                          }),
            absl::OkStatus());
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->step, 6);
  EXPECT_THAT(*checkpoint::ListCheckpoints(Checkpoints(3)), ElementsAre(2, 4, 6));
  for (const char* file : {"/logs/rank-0.log", "/logs/rank-1.log", "/flight/rank-0", "/flight/rank-1"})
    EXPECT_EQ(OwnerOf(EpochFolder(3) + file), uid_) << file;
  ASSERT_TRUE(server_.Await([](const State& state) {
    const auto logs = state.Logs();
    return std::count(logs.begin(), logs.end(), "the part of workers/tester in attempt 3 has ended") == 1;
  }));
}

// Of a job that began without it the trainers could remove nothing, and read no tokens.
TEST_F(TrainerUserTest, AJobOfRootIsRefusedByName) {
  fs::create_directories(EpochFolder(1) + "/checkpoints");
  ASSERT_TRUE(BeginAsNobody(Attempt(2, 1)));
  ASSERT_TRUE(AwaitEnd(2));
  EXPECT_THAT(server_.Get().Ended(2)->error().message(),
              HasSubstr("belongs to user 0, and trainers run as nobody: `chown -R nobody`"));
  EXPECT_FALSE(fs::exists(EpochFolder(2)));
}

TEST_F(TrainerUserTest, TheMachineIsCheckedAsThatUser) {
  StartAgent({"--trainer_user=nobody", "--check=true"});
  std::optional<v1::MachineCheck> check;
  ASSERT_TRUE(server_.Await([&](const State& state) {
    const auto look = [&](const v1::WorkerHealth& health) {
      if (health.has_check() && !health.checking()) check = health.check();
    };
    for (const v1::Hello& hello : state.hellos) look(hello.worker().health());
    for (const v1::Heartbeat& heartbeat : state.heartbeats) look(heartbeat.health());
    return check.has_value();
  }));
  EXPECT_EQ(check->results_size(), 4) << "the disk, two slots, and what connects them";
  for (const v1::CheckResult& result : check->results()) EXPECT_TRUE(result.passed()) << result.text();
  const std::string folder = fs::path(EpochFolder(1)).parent_path().parent_path() / ".checks";
  EXPECT_EQ(OwnerOf(folder), uid_);
  EXPECT_TRUE(fs::is_empty(folder));
}

TEST_F(TrainerUserTest, WhatCannotBeIsRefusedAtTheStart) {
  const auto refused = [this](const std::vector<std::string>& arguments, const std::string& why) {
    StartAgent(arguments);
    EXPECT_EQ(AwaitExit(), 2);
    EXPECT_TRUE(Logged(why)) << why;
  };
  refused({"--trainer_user=no-such-user"}, "--trainer_user = no-such-user: is no user of this host");
  refused({"--trainer_user=root"}, "--trainer_user = root: may do everything on this host");
  const std::string token = folder() + "/token";
  std::ofstream(token) << "token\n";
  ASSERT_EQ(chmod(token.c_str(), 0600), 0);
  ASSERT_EQ(chown(token.c_str(), uid_, uid_), 0);
  refused({"--trainer_user=nobody", "--token_file=" + token}, "may be read by user nobody (--trainer_user): make it");
  fs::create_directory(folder() + "/closed");
  ASSERT_EQ(chmod((folder() + "/closed").c_str(), 0700), 0);
  refused({"--trainer_user=nobody", "--runs=" + folder() + "/closed/runs"}, "is closed to user nobody");
  TrainerBegins("");
  ASSERT_EQ(chmod(request_.trainer.c_str(), 0700), 0);
  refused({"--trainer_user=nobody"}, "cannot be run by user nobody");
}

}  // namespace
}  // namespace legoai::agent

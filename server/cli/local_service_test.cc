#include "server/cli/local_service.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include "absl/time/clock.h"

namespace legoai::cli {
namespace {

using Command = std::vector<std::string>;

// Sleeps until it is asked to end, and says so then.
const Command kObeys = {"/bin/sh", "-c",
                        R"(trap 'echo "{\"message\": \"ends\"}"; exit 0' TERM; echo ready; while :; do sleep 0.02; done)",
                        "--http=127.0.0.1:1"};
const Command kDefies = {"/bin/sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.02; done"};

class BackgroundProgramTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "/background-" + ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { BackgroundProgram(folder_, "one").End(absl::ZeroDuration()); }

  void Await(const std::function<bool()>& condition) {
    for (int i = 0; i < 6000 && !condition(); ++i) absl::SleepFor(absl::Milliseconds(10));
    ASSERT_TRUE(condition());
  }
  void RunReady(BackgroundProgram& program, const Command& command) {
    ASSERT_TRUE(program.Run(command).ok());
    Await([&] { return program.LogSinceRun() == "ready\n"; });
  }
  std::string Record() const {
    std::ifstream file(folder_ + "/one.json");
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void Record(const std::string& text) const { std::ofstream(folder_ + "/one.json") << text; }

  std::string folder_;
};

TEST_F(BackgroundProgramTest, IsFoundByAnotherAndEndsWhenItIsAsked) {
  BackgroundProgram program(folder_, "one");
  EXPECT_FALSE(program.Running());
  EXPECT_TRUE(program.End(absl::ZeroDuration()));
  RunReady(program, kObeys);
  BackgroundProgram other(folder_, "one");
  ASSERT_TRUE(other.Running());
  EXPECT_EQ(other.Running()->command, kObeys);
  EXPECT_FALSE(other.Running()->build.empty());
  EXPECT_EQ(other.ValueOf("--http"), "127.0.0.1:1");
  EXPECT_EQ(other.ValueOf("--htt"), "");
  EXPECT_EQ(other.LastMessage(), "ready");
  EXPECT_TRUE(other.End(absl::Minutes(1)));
  EXPECT_FALSE(program.Running());
  EXPECT_EQ(program.LastMessage(), "ends");
  EXPECT_EQ(program.ValueOf("--http"), "");
}

TEST_F(BackgroundProgramTest, GoesOnWithoutTheOneThatStartedIt) {
  if (const pid_t pid = fork(); pid == 0) {
    _exit(BackgroundProgram(folder_, "one").Run(kObeys).ok() ? 0 : 1);
  } else {
    int status = -1;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    ASSERT_EQ(status, 0);
  }
  BackgroundProgram program(folder_, "one");
  ASSERT_TRUE(program.Running());
  const pid_t pid = program.Running()->pid;
  EXPECT_EQ(getsid(pid), pid);  // no terminal's Ctrl-C reaches it
  Await([&] { return program.LastMessage() == "ready"; });
  EXPECT_TRUE(program.End(absl::Minutes(1)));
}

TEST_F(BackgroundProgramTest, IsKilledIfItDoesNotEnd) {
  BackgroundProgram program(folder_, "one");
  RunReady(program, kDefies);
  EXPECT_FALSE(program.End(absl::Milliseconds(100)));
  EXPECT_FALSE(program.Running());
}

TEST_F(BackgroundProgramTest, AnotherProcessOfItsNumberIsNotTakenForIt) {
  BackgroundProgram program(folder_, "one");
  RunReady(program, kObeys);
  const pid_t pid = program.Running()->pid;
  const std::string record = Record(), key = "\"start_time\": ";
  const size_t at = record.find(key);
  ASSERT_NE(at, std::string::npos);
  Record(record.substr(0, at + key.size()) + "1" + record.substr(at + key.size()));
  EXPECT_FALSE(program.Running());
  EXPECT_TRUE(program.End(absl::ZeroDuration()));
  EXPECT_EQ(kill(pid, 0), 0);
  Record(record);
  EXPECT_TRUE(program.End(absl::Minutes(1)));
}

TEST_F(BackgroundProgramTest, OneThatHasEndedDoesNotRunThoughNobodyReapedIt) {
  BackgroundProgram program(folder_, "one");
  ASSERT_TRUE(program.Run({"/bin/sh", "-c", "echo '{\"message\": \"the port is in use\"}'; exit 2"}).ok());
  Await([&] { return !program.Running(); });
  EXPECT_EQ(program.LastMessage(), "the port is in use");
}

TEST_F(BackgroundProgramTest, TheLogIsAppendedTo) {
  BackgroundProgram program(folder_, "one");
  for (const char* word : {"first", "second"}) {
    ASSERT_TRUE(program.Run({"/bin/sh", "-c", std::string("echo ") + word}).ok());
    Await([&] { return !program.Running(); });
    EXPECT_EQ(program.LogSinceRun(), std::string(word) + "\n");
  }
  EXPECT_EQ(std::filesystem::file_size(program.log()), std::string("first\nsecond\n").size());
}

TEST_F(BackgroundProgramTest, ADamagedRecordTellsOfNothing) {
  for (const char* text : {"", "{", "[]", "{\"pid\": \"x\", \"start_time\": 1, \"build\": \"\", \"command\": []}",
                           "{\"pid\": -1, \"start_time\": 1, \"build\": \"\", \"command\": []}", "{\"pid\": 1}"}) {
    Record(text);
    BackgroundProgram program(folder_, "one");
    EXPECT_FALSE(program.Running()) << text;
    EXPECT_TRUE(program.End(absl::ZeroDuration()));
  }
}

TEST_F(BackgroundProgramTest, WhatCannotBeRunIsNamed) {
  const absl::Status status = BackgroundProgram(folder_, "one").Run({folder_ + "/none"});
  EXPECT_NE(status.message().find(folder_ + "/none"), std::string::npos) << status;
}

}  // namespace
}  // namespace legoai::cli

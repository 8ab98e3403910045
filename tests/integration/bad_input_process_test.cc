// Processes in trouble, through the command: ranks that die or hang, a command that is interrupted or killed, programs that are
// not there. (That no process is left is seen by the fixture.)
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <vector>

#include "server/cli/testing/lego_process.h"

namespace legoai {
namespace {

using cli::testing::Ended;
using cli::testing::Json;
using cli::testing::ReadAll;
using cli::testing::Result;
using cli::testing::WaitUntil;

class BadProcess : public cli::testing::LegoTest {
 protected:
  // Starts a training without end, and gives its process once a few steps are done.
  pid_t StartTraining(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = Train({"--training.steps=1000000"});
    words.insert(words.end(), more.begin(), more.end());
    const pid_t pid = Start(words);
    WaitUntil("three steps",
              [&] { return Ended(pid) || ReadAll(Path("run/metrics.jsonl")).find("\"step\":3,") != std::string::npos; });
    return pid;
  }
  void ExpectFailed(const Result& result, const std::vector<std::string>& parts) const {
    ExpectError(result, 1, parts);
    const Json run = Json::parse(ReadAll(Path("run/run.json")));
    EXPECT_EQ(run["attempts"].back()["outcome"], "failed");
    EXPECT_NE(run["attempts"].back()["error"].get<std::string>().find("rank 1"), std::string::npos);
  }
  // From the last checkpoint, for one step more.
  void ExpectGoesOn() const {
    const Json checkpoints = Json::parse(Run({"checkpoints", Path("run"), "-o", "json"}).out);
    ASSERT_FALSE(checkpoints.empty());
    const int64_t saved = checkpoints.back()["step"];
    const Result again = Run(Train({"--training.steps=" + std::to_string(saved + 1)}));
    ASSERT_EQ(again.code, 0) << again.err;
    EXPECT_EQ(Json::parse(again.out)["resumed_from"], saved);
  }
  void WaitUntilAllAreGone() const {
    WaitUntil("the end of all processes", [&] { return Processes().empty(); });
  }
};

TEST_F(BadProcess, ARankThatDiesEndsAllIsNamedAndNothingSavedIsLost) {
  const pid_t pid = StartTraining({"--checkpoint.interval=2"});
  const pid_t rank = Trainer(1);
  ASSERT_NE(rank, 0);  // kill(0, ...) would be for this test's own process group
  kill(rank, SIGKILL);
  ExpectFailed(Wait(pid), {"rank 1", "was killed by signal 9", "goes on from the checkpoint of step", "lego fr " + Path("run")});
  const Result records = Run({"fr", Path("run"), "-o", "json"});
  EXPECT_EQ(records.code, 0) << records.err;
  EXPECT_EQ(Json::parse(records.out)["world_size"], 2);
  ExpectGoesOn();
}

TEST_F(BadProcess, ARankThatHangsIsFoundAndNamed) {
  const pid_t pid = StartTraining({"--checkpoint.enable_checkpoint=false", "--comm.train_timeout_seconds=20"});
  const pid_t rank = Trainer(1);
  ASSERT_NE(rank, 0);
  kill(rank, SIGSTOP);
  ExpectFailed(Wait(pid), {"rank 1", "does not answer", "begins anew", "lego fr " + Path("run")});
  // A rank that is stopped in the middle of a collective cannot be told from others inside; but none is blamed in its place.
  const Json analysis = Json::parse(Run({"fr", Path("run"), "-o", "json"}).out)["analysis"];
  EXPECT_NE(analysis["culprits"], Json::array({0})) << analysis.dump(1);
}

TEST_F(BadProcess, WhenTheCommandIsKilledItsRanksGoWithIt) {
  const pid_t pid = StartTraining({"--checkpoint.interval=2"});
  EXPECT_NE(Trainer(0), 0);
  EXPECT_NE(Trainer(1), 0);
  kill(pid, SIGKILL);
  EXPECT_EQ(Wait(pid).signal, SIGKILL);
  WaitUntilAllAreGone();
  // Its lock on the folder is gone too, and the checkpoints are whole.
  ExpectGoesOn();
}

TEST_F(BadProcess, TwoTrainingsInOneFolderAreRefused) {
  const pid_t pid = StartTraining();
  const std::string first = ReadAll(Path("run/recipe.toml"));
  const Result refused = Run(Train({}));
  EXPECT_EQ(refused.code, 1) << refused.err;
  EXPECT_NE(refused.err.find("job.dump_folder = " + Path("run")), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find("another training runs in this folder"), std::string::npos) << refused.err;
  EXPECT_EQ(ReadAll(Path("run/recipe.toml")), first);
  kill(pid, SIGINT);
  EXPECT_EQ(Wait(pid).code, 130);
}

TEST_F(BadProcess, AMeasurementIsPlausibleAndUsed) {
  const std::string file = Path("machine/this.txtpb");
  const auto measure = [&] { return Run({"hardware", "--measure", "--out", file, "-o", "json"}); };
  Result measured = measure();
  // What other processes spoil is refused, with the advice to measure again.
  for (int i = 0; i < 10 && measured.err.find("the machine is too busy") != std::string::npos; ++i) measured = measure();
  ASSERT_EQ(measured.code, 0) << measured.err;
  const Json device = Json::parse(measured.out);
  EXPECT_EQ(device["kind"], "cpu");
  bool float32 = false;
  for (const Json& peak : device["peak_flops"]) {
    // From a slow emulator to more than any core has.
    EXPECT_GT(peak["flops_per_second"], 1e7) << peak;
    EXPECT_LT(peak["flops_per_second"], 1e13) << peak;
    float32 = float32 || peak["dtype"] == "float32";
  }
  EXPECT_TRUE(float32);
  EXPECT_GT(device["memory_bandwidth_bytes_per_second"], 1e7);
  EXPECT_LT(device["memory_bandwidth_bytes_per_second"], 1e13);
  EXPECT_GT(device["host_dispatch_seconds"], 1e-8);
  EXPECT_LT(device["host_dispatch_seconds"], 1e-2);
  for (const Json& efficiency : device["efficiencies"]) {
    EXPECT_GT(efficiency["fraction"], 0.0) << efficiency;
    EXPECT_LE(efficiency["fraction"], 1.0) << efficiency;
  }
  setenv("LEGOAI_HOST_DEVICE", file.c_str(), 1);
  EXPECT_EQ(Json::parse(Run({"hardware", "-o", "json"}).out)["this_machine"], device);
  cli::testing::Write(file, ReadAll(file).substr(0, 50));
  ExpectError({"simulate", "--recipe", Path("recipe.toml"), "--cluster", "cpu:1x1"}, 2, {file, "lego hardware --measure"});
}

}  // namespace
}  // namespace legoai

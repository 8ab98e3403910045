// Disks so slow that saving, loading, evaluating and exporting take longer than the time-out of a step, through the command and
// the real trainers: none of it may end a training. What is slow is the disk alone (slow_disk.cc), a fraction of the time-out for
// each operation. All trainings wait at the same time.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "server/cli/testing/lego_process.h"

namespace legoai {
namespace {

namespace fs = std::filesystem;
using cli::testing::Json;
using cli::testing::ReadAll;
using cli::testing::Result;

constexpr int64_t kTimeOutSeconds = 20;

// A training on a disk that is slow for some of its files.
struct SlowTraining {
  std::string name;          // its run directory's
  std::string slow;          // how the paths of these files begin, below the test's folder
  int64_t milliseconds = 0;  // for each operation
  int64_t steps = 2;
  std::vector<std::string> words;
  pid_t pid = 0;
};

class SlowDisk : public cli::testing::LegoTest {
 protected:
  void SetUp() override {
    LegoTest::SetUp();
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "the sanitizer's own library must be loaded before any other";
#endif
  }
  void TearDown() override {
    unsetenv("LD_PRELOAD");
    LegoTest::TearDown();
  }
  std::vector<std::string> Train(const std::string& run, int64_t steps, const std::vector<std::string>& more) const {
    const std::string seconds = std::to_string(kTimeOutSeconds);
    std::vector<std::string> words =
        LegoTest::Train({"--training.steps=" + std::to_string(steps), "--job.dump_folder=" + Path(run),
                         "--comm.train_timeout_seconds=" + seconds, "--comm.init_timeout_seconds=" + seconds});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  void StartOn(SlowTraining* training) const {
    setenv("LD_PRELOAD", fs::absolute("tests/integration/libslow_disk.so").c_str(), 1);
    setenv("SLOW_DISK_PROGRAM", "legoai-trainer", 1);
    setenv("SLOW_DISK_PATH", Path(training->slow).c_str(), 1);
    setenv("SLOW_DISK_MILLISECONDS", std::to_string(training->milliseconds).c_str(), 1);
    setenv("SLOW_DISK_COUNT", Path("slow-" + training->name).c_str(), 1);
    training->pid = Start(Train(training->name, training->steps, training->words));
    unsetenv("LD_PRELOAD");
  }
  // How much later the slowest of its ranks was at least.
  int64_t SecondsLost(const SlowTraining& training) const {
    int64_t most = 0;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      const std::string name = entry.path().filename().string();
      if (name.rfind("slow-" + training.name + ".", 0) == 0) most = std::max<int64_t>(most, entry.file_size());
    }
    return most * training.milliseconds / 1000;
  }
};

TEST_F(SlowDisk, WhatTakesLongerThanTheTimeOutEndsNothing) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "the quick brown fox " + std::to_string(i * i) + " jumps over the lazy dog\n";
  cli::testing::Write(Path("text.txt"), text);
  // On a disk that is not slow: what there is to load.
  const Result whole = Run(Train("loads", 2, {"--checkpoint.last_save_in_hf=true"}));
  ASSERT_EQ(whole.code, 0) << whole.err;

  // Rank 1 alone has a slow disk, and rank 0 waits for it; the text and the export are for both, and for rank 0.
  std::vector<SlowTraining> trainings = {
      {"saves", "saves/checkpoints/step-2/rank-00001", 400, 2, {}},
      {"loads", "loads/checkpoints/step-2/rank-00001", 500, 3, {}},
      {"starts", "loads/hf/", 900, 2, {"--model.initial_load_path=" + Path("loads/hf")}},
      {"reads", "reads/tokens/", 600, 2, {"--validation.enable=true", "--training.validation_fraction=0.1"}},
      {"exports", "exports/hf.partial/", 1000, 2, {"--checkpoint.last_save_in_hf=true"}},
  };
  for (SlowTraining& training : trainings) StartOn(&training);
  for (const SlowTraining& training : trainings) {
    SCOPED_TRACE(training.name);
    const Result result = Wait(training.pid);
    EXPECT_GT(SecondsLost(training), kTimeOutSeconds) << "the disk was not slow enough to show anything";
    EXPECT_EQ(result.code, 0) << result.err;
    if (result.code != 0) continue;
    const Json outcome = Json::parse(result.out);
    EXPECT_EQ(outcome["cause"], "finished");
    EXPECT_EQ(outcome["step"], training.steps);
    EXPECT_EQ(outcome["resumed_from"], training.name == "loads" ? Json(2) : Json());
    EXPECT_TRUE(fs::exists(Path(training.name + "/checkpoints/step-" + std::to_string(training.steps) + "/manifest.pb")));
    EXPECT_EQ(outcome["validation_loss"].is_number(), training.name == "reads");
    EXPECT_EQ(outcome["hf_directory"].is_string(), training.name == "exports");
  }
  EXPECT_TRUE(fs::exists(Path("exports/hf/model.safetensors")));
}

// An operation that never ends: the rank is named and killed, for it hears of no SIGTERM, and no half checkpoint counts.
TEST_F(SlowDisk, ADiskThatHangsIsFoundInTime) {
  constexpr int64_t kForever = 1'000'000'000;
  SlowTraining training = {"hangs", "hangs/checkpoints/step-2/rank-00001", kForever, 3, {"--checkpoint.interval=1"}};
  StartOn(&training);
  const Result hung = Wait(training.pid);
  EXPECT_EQ(hung.code, 1);
  EXPECT_EQ(hung.out, "");
  for (const char* part : {"rank 1 (checkpoint, step 2)", "hangs, or works longer than the time-out", "while rank 0 waits in",
                           "goes on from the checkpoint of step 1", "lego fr "}) {
    EXPECT_NE(hung.err.find(part), std::string::npos) << part << " in " << hung.err;
  }
  EXPECT_TRUE(Processes().empty());
  const Result again = Run(Train("hangs", training.steps, training.words));
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(Json::parse(again.out)["resumed_from"], 1);
  EXPECT_EQ(Json::parse(again.out)["step"], 3);
}

}  // namespace
}  // namespace legoai

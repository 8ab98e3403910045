// Disks that are full, through the command: what is only looked at (metrics, TensorBoard's events) costs no training, for what is
// needed the training waits and says so; nothing half written is left, and with room again it goes on by itself.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/checkpoint/testing/small_file_system.h"
#include "server/cli/testing/lego_process.h"

namespace legoai {
namespace {

namespace fs = std::filesystem;
using cli::testing::Ended;
using cli::testing::Json;
using cli::testing::ReadAll;
using cli::testing::Result;
using cli::testing::WaitUntil;

constexpr char kSmall[] = "--comm.trace_buf_size=10";  // the flight record

int64_t Count(const std::string& text, const std::string& part) {
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

class FullDisk : public cli::testing::LegoTest {
 protected:
  void TearDown() override {
    for (const std::string& path : mounted_) EXPECT_EQ(umount2(path.c_str(), MNT_DETACH), 0) << path;
    LegoTest::TearDown();
  }
  void Mount(const std::string& folder, int64_t bytes) {
    fs::create_directories(Path(folder));
    ASSERT_EQ(checkpoint::MountSmallFileSystem(Path(folder), bytes), absl::OkStatus());
    mounted_.push_back(Path(folder));
  }
  // Until not a byte more of a new file fits.
  void Fill(const std::string& folder) const {
    std::ofstream file(Path(folder + "/filler"), std::ios::binary);
    for (const std::string block(4096, 'x'); file.write(block.data(), block.size()) && file.flush();) {
    }
  }
  void MakeRoom(const std::string& folder) const { fs::remove(Path(folder + "/filler")); }

  // A small ring, so that the disk is full where the test says.
  std::vector<std::string> TrainOnly(const std::vector<std::string>& more) const {
    std::vector<std::string> words = Train(more);
    for (const char* word : {kSmall, "--checkpoint.enable_checkpoint=false", "--metrics.enable_tensorboard=true"})
      words.push_back(word);
    return words;
  }
  std::string Errors(pid_t pid) const { return ReadAll(Path("stderr." + std::to_string(pid))); }

  // The steps in metrics.jsonl, every line of which is whole.
  std::vector<int64_t> Steps() const {
    std::vector<int64_t> steps;
    std::ifstream file(Path("run/metrics.jsonl"));
    for (std::string line; std::getline(file, line);) {
      const Json metrics = Json::parse(line, nullptr, /*allow_exceptions=*/false);
      EXPECT_TRUE(metrics.is_object()) << line;
      if (metrics.is_object()) steps.push_back(metrics["step"]);
    }
    return steps;
  }
  int64_t LastStep() const {
    const std::string text = ReadAll(Path("run/metrics.jsonl"));
    const size_t at = text.rfind("\"step\":");
    return at == std::string::npos ? 0 : std::atoll(text.c_str() + at + strlen("\"step\":"));
  }
  // Records of all event files; a torn one is a failure.
  int64_t Events() const {
    int64_t records = 0;
    for (const auto& entry : fs::directory_iterator(Path("run/tensorboard"))) {
      const std::string data = ReadAll(entry.path());
      size_t at = 0;
      while (at < data.size()) {
        uint64_t bytes = 0;
        std::memcpy(&bytes, data.data() + at, std::min(sizeof(bytes), data.size() - at));
        at += 8 + 4 + bytes + 4;
        ++records;
      }
      EXPECT_EQ(at, data.size()) << entry.path() << " ends with a torn record";
    }
    return records;
  }
  void ExpectNothingHalfDone() const {
    for (const auto& entry : fs::recursive_directory_iterator(Path("run"))) {
      EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
      EXPECT_NE(entry.path().filename(), "hf.partial") << entry.path();
    }
  }

  // Says that it waits, with these parts, and stays alive; then there is room, and it does all that it should.
  Result WaitsForRoom(const std::vector<std::string>& words, const std::vector<std::string>& parts, const std::string& folder) {
    const pid_t pid = Start(words);
    AwaitWait(pid, parts);
    ExpectNothingHalfDone();
    MakeRoom(folder);
    return Wait(pid);
  }
  void AwaitWait(pid_t pid, const std::vector<std::string>& parts) const {
    WaitUntil("a wait", [&] { return Ended(pid) || Count(Errors(pid), "waits: "); });
    ASSERT_FALSE(Ended(pid)) << Errors(pid);
    for (const std::string& part : parts) EXPECT_EQ(Count(Errors(pid), part) > 0, true) << part << " in " << Errors(pid);
  }

  // On a small disk, which is full afterwards but for what a run needs to begin.
  void TrainAndFill() {
    Mount("run", 2 << 20);
    ASSERT_EQ(Run(Train({kSmall})).code, 0);
    fs::remove_all(Path("run/flight"));  // made again by what follows
    std::ofstream(Path("run/spare")) << std::string(64 << 10, 'x');
    Fill("run");
    fs::remove(Path("run/spare"));
  }

  void ASaveThatDoesNotFit() {
    ASSERT_NO_FATAL_FAILURE(TrainAndFill());
    // Ctrl-C ends the wait: what was not saved is lost, what was is not.
    const pid_t pid = Start(Train({kSmall, "--training.steps=9"}));
    AwaitWait(pid, {"the disk of ", " is full: ", " are free of the ", " that a checkpoint takes"});
    kill(pid, SIGINT);
    const Result stopped = Wait(pid);
    EXPECT_EQ(stopped.code, 130) << stopped.err;
    EXPECT_EQ(Count(stopped.err, "asked to stop while it waited for room"), 1) << stopped.err;
    ExpectNothingHalfDone();
    const Result saved = WaitsForRoom(Train({kSmall, "--training.steps=9"}), {" that a checkpoint takes"}, "run");
    ASSERT_EQ(saved.code, 0) << saved.err;
    EXPECT_EQ(Json::parse(saved.out)["resumed_from"], 6);
    EXPECT_EQ(Json::parse(saved.out)["step"], 9);
    EXPECT_TRUE(fs::exists(Path("run/checkpoints/step-9/manifest.pb")));
    ExpectNothingHalfDone();
  }

  std::vector<std::string> mounted_;
};

TEST_F(FullDisk, MetricsAndEventsAreGivenUpWithAWarningEach) {
  Mount("run", 2 << 20);
  const pid_t pid = Start(TrainOnly({"--training.steps=1000000"}));
  WaitUntil("three steps", [&] { return Ended(pid) || LastStep() >= 3; });
  Fill("run");
  const std::string metrics = Path("run/metrics.jsonl") + ": cannot write: No space left on device; free some space";
  const std::string events = "no more TensorBoard events are written: ";
  WaitUntil("both warnings", [&] { return Ended(pid) || (Count(Errors(pid), metrics) && Count(Errors(pid), events)); });
  const int64_t last = LastStep();
  MakeRoom("run");
  WaitUntil("later steps", [&] { return Ended(pid) || LastStep() > last; });
  EXPECT_FALSE(Ended(pid)) << "the training went on";
  kill(pid, SIGINT);
  const Result stopped = Wait(pid);
  EXPECT_EQ(stopped.code, 130) << stopped.err;
  EXPECT_EQ(Count(stopped.err, metrics), 1) << stopped.err;
  EXPECT_EQ(Count(stopped.err, events), 1) << stopped.err;
  const std::vector<int64_t> steps = Steps();
  for (size_t i = 1; i < steps.size(); ++i) EXPECT_LT(steps[i - 1], steps[i]);
  EXPECT_EQ(steps.back(), Json::parse(stopped.out)["step"]);
  EXPECT_GE(Events(), 1 + 3);
  ExpectNothingHalfDone();
}

// The disk is full from before the first step to after the last. Nothing is lost but how it ended, which is said.
TEST_F(FullDisk, ARunIsNotedWhenThereIsRoom) {
  Mount("run", 2 << 20);
  const pid_t pid = Start(TrainOnly({}));
  WaitUntil("both ranks", [&] { return Ended(pid) || (Trainer(0) != 0 && Trainer(1) != 0); });
  // No step is done before the ranks have met at the command. It stands still but for moments, each too short for two meetings:
  // there is one before the ranks connect, too.
  kill(pid, SIGSTOP);
  WaitUntil("the ranks' files", [&] {
    if (fs::exists(Path("run/tensorboard")) && !fs::is_empty(Path("run/tensorboard"))) return true;
    kill(pid, SIGCONT);
    usleep(1'000);
    kill(pid, SIGSTOP);
    usleep(300'000);
    return false;
  });
  Fill("run");
  kill(pid, SIGCONT);
  AwaitWait(pid, {Path("run/run.json"), "No space left on device"});
  EXPECT_EQ(Count(Errors(pid), Path("run/metrics.jsonl") + ": cannot write"), 1) << Errors(pid);
  EXPECT_EQ(Json::parse(ReadAll(Path("run/run.json")))["attempts"][0]["outcome"], "running") << "as it was";
  EXPECT_EQ(Steps().size(), 0u);
  Events();
  ExpectNothingHalfDone();

  MakeRoom("run");
  const Result noted = Wait(pid);
  ASSERT_EQ(noted.code, 0) << noted.err;
  EXPECT_EQ(Json::parse(ReadAll(Path("run/run.json")))["attempts"][0]["outcome"], "finished");
}

TEST_F(FullDisk, EventsBeginWhenThereIsRoom) {
  Mount("run/tensorboard", 64 << 10);
  Fill("run/tensorboard");
  const Result result = WaitsForRoom(TrainOnly({}), {Path("run/tensorboard/events.out.tfevents.")}, "run/tensorboard");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(Events(), 1 + 6);
}

TEST_F(FullDisk, AFlightRecordThatDoesNotFitIsNamedAndWaitedFor) {
  Mount("run/flight", 64 << 10);
  const pid_t pid = Start(Train({}));
  AwaitWait(pid, {"run/flight/rank-", "No space left on device; free some space", "lower comm.trace_buf_size"});
  ASSERT_EQ(mount("none", Path("run/flight").c_str(), "tmpfs", MS_REMOUNT, "size=64m"), 0) << "room is made";
  const Result result = Wait(pid);
  EXPECT_EQ(result.code, 0) << result.err;
}

// Who asks it to stop meanwhile gets what was asked for.
TEST_F(FullDisk, ARunThatWaitsForItsFlightRecordStops) {
  Mount("run/flight", 64 << 10);
  const pid_t pid = Start(Train({}));
  AwaitWait(pid, {"run/flight/rank-", "No space left on device"});
  kill(pid, SIGINT);
  const Result stopped = Wait(pid);
  EXPECT_EQ(stopped.code, 130) << stopped.err;
}

// Nothing can be begun: neither folders nor run.json.
TEST_F(FullDisk, ARunBeginsWhenThereIsRoom) {
  Mount("run", 2 << 20);
  Fill("run");
  const Result result = WaitsForRoom(Train({kSmall}), {"the disk is full: "}, "run");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(Steps().size(), 6u);
}

TEST_F(FullDisk, AnExportThatDoesNotFitIsMadeWhenThereIsRoom) {
  ASSERT_NO_FATAL_FAILURE(TrainAndFill());
  const pid_t pid = Start(Train({kSmall, "--checkpoint.last_save_in_hf=true"}));
  AwaitWait(pid, {"job.dump_folder = ", "the Hugging Face folder needs", "are free"});
  EXPECT_FALSE(fs::exists(Path("run/hf")));
  MakeRoom("run");
  const Result again = Wait(pid);
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(Json::parse(again.out)["resumed_from"], 6);
  EXPECT_TRUE(fs::exists(Path("run/hf/model.safetensors")));
}

TEST_F(FullDisk, ASaveThatDoesNotFitWaitsForOtherUsersThanRoot) {
  if (geteuid() != 0) return ASaveThatDoesNotFit();  // this is another user already
  EXPECT_TRUE(checkpoint::PassesInChild([&] {
    ASSERT_EQ(checkpoint::BecomeNobody(folder_), absl::OkStatus());
    EXPECT_NE(geteuid(), 0u);
    ASaveThatDoesNotFit();
  }));
}

}  // namespace
}  // namespace legoai

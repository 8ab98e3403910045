// Checkpoints in trouble, through the command: torn ones are named, put aside and passed over, a full disk keeps what was saved,
// and what was interrupted goes on.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>

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

class BadCheckpoint : public cli::testing::LegoTest {
 protected:
  std::vector<std::string> Train(const std::vector<std::string>& more) const {
    std::vector<std::string> words = LegoTest::Train(more);
    words.insert(words.begin() + 4, "--comm.trace_buf_size=10");
    return words;
  }
  std::vector<int64_t> Steps() const {
    const Result listed = Run({"checkpoints", Path("run"), "-o", "json"});
    EXPECT_EQ(listed.code, 0) << listed.err;
    std::vector<int64_t> steps;
    for (const Json& checkpoint : Json::parse(listed.out)) steps.push_back(checkpoint["step"]);
    return steps;
  }
  // No file that a save, an export or a rewrite did not finish.
  void ExpectNothingHalfDone() const {
    for (const auto& entry : fs::recursive_directory_iterator(Path("run"))) {
      EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
      const bool of_step = entry.path().parent_path().filename() == "checkpoints" && !entry.path().has_extension();
      EXPECT_TRUE(!of_step || fs::exists(entry.path() / "manifest.pb")) << entry.path();
    }
    EXPECT_FALSE(fs::exists(Path("run/hf")));
  }
};

using Damage = void (*)(const std::string& step);

void Truncate(const std::string& step) { fs::resize_file(step + "/rank-00001.bin", 1000); }
void Remove(const std::string& step) { fs::remove(step + "/rank-00001.bin"); }
void FlipByte(const std::string& file) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(200);
  const char flipped = static_cast<char>(stream.get() ^ 1);
  stream.seekp(200).put(flipped);
}
void FlipInData(const std::string& step) { FlipByte(step + "/rank-00001.bin"); }
void FlipInManifest(const std::string& step) { FlipByte(step + "/manifest.pb"); }
void CutManifest(const std::string& step) { fs::resize_file(step + "/manifest.pb", 100); }
void RemoveManifest(const std::string& step) { fs::remove(step + "/manifest.pb"); }

TEST_F(BadCheckpoint, TornOnesAreNamedAndPutAsideAndTheTrainingIsTheSame) {
  ASSERT_EQ(Run(Train({"--checkpoint.interval=3"})).code, 0);
  ASSERT_EQ(Steps(), (std::vector<int64_t>{3, 6}));
  fs::copy(Path("run"), Path("whole"), fs::copy_options::recursive);
  const std::vector<std::pair<Damage, std::string>> damages = {{Truncate, "rank-00001.bin"},   {Remove, "rank-00001.bin"},
                                                               {FlipInData, "rank-00001.bin"}, {FlipInManifest, "manifest.pb"},
                                                               {CutManifest, "manifest.pb"},   {RemoveManifest, "manifest.pb"}};
  std::string whole_manifest;  // of step 9, by one that began from step 3 because there was no other
  for (const auto& [damage, file] : damages) {
    SCOPED_TRACE(file);
    fs::remove_all(Path("run"));
    fs::copy(Path("whole"), Path("run"), fs::copy_options::recursive);
    if (whole_manifest.empty()) {
      fs::remove_all(Path("run/checkpoints/step-6"));
      ASSERT_EQ(Run(Train({"--training.steps=9"})).code, 0);
      whole_manifest = ReadAll(Path("run/checkpoints/step-9/manifest.pb"));
      fs::remove_all(Path("run"));
      fs::copy(Path("whole"), Path("run"), fs::copy_options::recursive);
    }
    damage(Path("run/checkpoints/step-6"));
    const Result passed = Run(Train({"--training.steps=9"}));
    ASSERT_EQ(passed.code, 0) << passed.err;
    EXPECT_EQ(Json::parse(passed.out)["resumed_from"], 3);
    for (const std::string& part : {std::string("the checkpoint of step 6 is damaged ("), file, std::string("step-6.damaged"),
                                    std::string("goes on from step 3")})
      EXPECT_NE(passed.err.find(part), std::string::npos) << part << " in " << passed.err;
    EXPECT_EQ(Steps(), (std::vector<int64_t>{3, 9}));
    EXPECT_TRUE(fs::exists(Path("run/checkpoints/step-6.damaged"))) << "it may be worth saving";
    EXPECT_EQ(ReadAll(Path("run/checkpoints/step-9/manifest.pb")), whole_manifest) << "which names every byte by a checksum";
    EXPECT_EQ(Json::parse(ReadAll(Path("run/run.json")))["attempts"][1]["damaged"][0]["step"], 6);
    ExpectNothingHalfDone();
  }
  // Where none loads, nothing is begun.
  FlipInData(Path("run/checkpoints/step-3"));
  FlipInManifest(Path("run/checkpoints/step-9"));
  for (int i = 0; i < 2; ++i) {
    ExpectError(Train({"--training.steps=12"}), 1, {"no checkpoint loads", "step-9", "step-3", "--fresh"});
    EXPECT_FALSE(fs::exists(Path("run/checkpoints/step-12")));
  }
}

// A checkpoint of this model has some 280 kB of each rank.
TEST_F(BadCheckpoint, AFileThatCannotGrowKeepsWhatWasSaved) {
  ASSERT_EQ(Run(Train({"--checkpoint.interval=3"})).code, 0);
  fs::remove_all(Path("run/flight"));
  const Result full = Wait(Start(Train({"--training.steps=9"}), /*file_limit_bytes=*/100'000));
  ExpectError(full, 1, {"(checkpoint, step 9)", ".bin", "File too large", "raise the limit on the size of a file"});
  EXPECT_EQ(Steps(), (std::vector<int64_t>{3, 6}));
  const Result again = Run(Train({"--training.steps=9"}));
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(Json::parse(again.out)["resumed_from"], 6);
  EXPECT_EQ(Steps(), (std::vector<int64_t>{3, 6, 9}));
  ExpectNothingHalfDone();
}

TEST_F(BadCheckpoint, AFlightRingThatMayNotBeSoLargeSaysWhatToLower) {
  const Result full = Wait(Start(Train({"--comm.trace_buf_size=10000"}), /*file_limit_bytes=*/100'000));
  EXPECT_NE(full.code, 0);
  EXPECT_NE(full.err.find("comm.trace_buf_size"), std::string::npos) << full.err;
  EXPECT_EQ(full.err.find("signal"), std::string::npos) << full.err;
}

// On a file system of its own that is nearly full.
TEST_F(BadCheckpoint, ASaveWaitsForRoom) {
  fs::create_directories(Path("run"));
  ASSERT_EQ(checkpoint::MountSmallFileSystem(Path("run"), 1600 << 10), absl::OkStatus());
  const pid_t pid = Start(Train({"--checkpoint.interval=1", "--training.steps=20"}));
  const auto errors = [&] { return ReadAll(OutputOf(pid, "stderr")); };
  WaitUntil("a wait", [&] { return Ended(pid) || errors().find(" that a checkpoint takes") != std::string::npos; });
  EXPECT_FALSE(Ended(pid)) << errors();
  EXPECT_FALSE(Steps().empty());
  EXPECT_EQ(mount("none", Path("run").c_str(), "tmpfs", MS_REMOUNT, "size=16m"), 0) << "room is made";
  const Result done = Wait(pid);
  const std::vector<int64_t> kept = Steps();
  ExpectNothingHalfDone();
  EXPECT_EQ(umount2(Path("run").c_str(), MNT_DETACH), 0);
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(Json::parse(done.out)["step"], 20);
  EXPECT_EQ(Json::parse(done.out)["attempt"], 1);
  EXPECT_EQ(kept.back(), 20);
}

TEST_F(BadCheckpoint, CtrlCSavesAndTheSameCallGoesOn) {
  const pid_t pid = Start(Train({"--training.steps=1000000", "--checkpoint.interval=1000000"}));
  WaitUntil("two steps",
            [&] { return Ended(pid) || ReadAll(Path("run/metrics.jsonl")).find("\"step\":2,") != std::string::npos; });
  kill(pid, SIGINT);
  const Result stopped = Wait(pid);
  EXPECT_EQ(stopped.code, 130) << stopped.err;
  EXPECT_NE(stopped.err.find("\nstopping: this step is finished and saved; Ctrl-C again to stop now\n"), std::string::npos)
      << stopped.err;
  const Json first = Json::parse(stopped.out);
  EXPECT_EQ(first["cause"], "stopped");
  const int64_t step = first["step"];
  EXPECT_GE(step, 2);
  EXPECT_EQ(Steps(), std::vector<int64_t>{step});
  ExpectNothingHalfDone();
  const Result again = Run(Train({"--training.steps=" + std::to_string(step + 2)}));
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(Json::parse(again.out)["resumed_from"], step);
  EXPECT_EQ(Json::parse(again.out)["step"], step + 2);
  EXPECT_EQ(Json::parse(again.out)["attempt"], 2);
}

}  // namespace
}  // namespace legoai

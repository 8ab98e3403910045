// What `lego` says of this machine's GPUs, and which of them it gives to the ranks: a fake NVML, and trainers that train nothing.
#include "worker/launch/gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/hardware/testing/fake_gpus.h"
#include "core/process/host_resources.h"
#include "server/cli/testing/lego_process.h"

namespace legoai::cli::testing {
namespace {

using sim::testing::FakeGpus;
using sim::testing::FakeH100;
using sim::testing::FakeH200;
using ::testing::HasSubstr;

class GpusTest : public LegoTest {
 protected:
  void SetUp() override {
    LegoTest::SetUp();
    setenv("LEGOAI_TRAINER", std::filesystem::absolute("worker/launch/test_trainer").c_str(), 1);
  }
  void TearDown() override {
    unsetenv("LEGOAI_TRAINER");
    LegoTest::TearDown();
  }
  std::vector<std::string> Train(std::vector<std::string> words) const {
    words.insert(words.begin(), {"train", Path("recipe.toml"), "--device", "cuda"});
    return words;
  }
};

TEST_F(GpusTest, RanksHaveTheVisibleGpusInTheirOrder) {
  const FakeGpus fake({FakeH100("GPU-a"), FakeH100("GPU-b"), FakeH100("GPU-c"), FakeH100("GPU-d")});
  setenv("CUDA_VISIBLE_DEVICES", "3,1,0", 1);
  const Result result = Run(Train({"--nproc", "2"}));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, ::testing::ContainsRegex("rank 0: pid .* gpu GPU-d"));
  EXPECT_THAT(result.err, ::testing::ContainsRegex("rank 1: pid .* gpu GPU-b"));
}

TEST_F(GpusTest, MoreRanksThanGpusAreRefusedBeforeAnythingStarts) {
  {
    const FakeGpus fake({FakeH100("GPU-a")});
    ExpectError(Train({"--nproc", "2"}), 2, {"--nproc = 2", "1, and each rank has one of its own"});
  }
  const FakeGpus none({});
  ExpectError(Train({"--nproc", "1"}), 1, {"device = cuda", "the driver shows none"});
  EXPECT_FALSE(std::filesystem::exists(Path("run")));
}

// The GPU computes; the host launches its work from several threads, and draws the weights.
TEST_F(GpusTest, RanksHaveTheirShareOfTheCoresAndArePinnedToNone) {
  const FakeGpus fake({FakeH100("GPU-a")});
  const Result result = Run(Train({"--nproc", "1"}));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr(absl::StrCat(" threads ", launch::AllowedCores(), " processors ",
                                                 launch::AllowedCpus().size(), " gpu GPU-a")));
}

TEST_F(GpusTest, TheirPeakIsTheCardsOfTheCatalog) {
  const auto peak = [&](const std::vector<std::string>& cards, const std::string& precision) {
    const FakeGpus fake(cards);
    const Result result = Run(Train({"--dry-run", "-o", "json", "--training.mixed_precision_param=" + precision}));
    EXPECT_EQ(result.code, 0) << result.err;
    return Json::parse(result.out).value("peak_flops_per_second", 0.0);
  };
  EXPECT_EQ(peak({FakeH100("GPU-a"), FakeH100("GPU-b")}, "bfloat16"), 989.4e12);
  EXPECT_EQ(peak({FakeH200("GPU-a")}, "float32"), 66.9e12);
  EXPECT_EQ(peak({FakeH100("GPU-a"), FakeH200("GPU-b")}, "bfloat16"), 0) << "cards of two kinds";
  EXPECT_EQ(peak({"name=NVIDIA Q9,uuid=GPU-b,memory=1073741824"}, "bfloat16"), 0) << "a card that is not known";
}

TEST_F(GpusTest, AGpuIsOneTrainingsAtATime) {
  const FakeGpus fake({FakeH100("GPU-a"), FakeH100("GPU-b")});
  const std::string trainer = Path("hangs"), other = "--job.dump_folder=" + Path("other");
  std::ofstream(trainer) << "#!/bin/sh\nexec " << std::getenv("LEGOAI_TRAINER") << " --act=hang \"$@\"\n";
  std::filesystem::permissions(trainer, std::filesystem::perms::owner_all);
  const std::string whole = std::getenv("LEGOAI_TRAINER");
  setenv("LEGOAI_TRAINER", trainer.c_str(), 1);
  const pid_t first = Start(Train({"--nproc", "1"}));
  setenv("LEGOAI_TRAINER", whole.c_str(), 1);
  // Not by claiming it, which might come first.
  WaitUntil("the first training has its GPU",
            [&] { return absl::StrContains(ReadAll(OutputOf(first, "stderr")), " gpu GPU-a"); });
  ExpectError(Train({"--nproc", "2", other}), 1,
              {"gpu = GPU-a", absl::StrCat("is taken by process ", first, " (lego)"), "CUDA_VISIBLE_DEVICES"});
  setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  EXPECT_EQ(Run(Train({"--nproc", "1", other})).code, 0) << "the other card";
  kill(first, SIGKILL);
  Wait(first);
  EXPECT_TRUE(launch::GpuClaim::Take({"GPU-a"}).ok());
}

TEST_F(GpusTest, HardwareListsThem) {
  const FakeGpus fake({FakeH200("GPU-a"), "name=NVIDIA Q9,uuid=GPU-b,memory=1073741824"});
  const Json gpus = Json::parse(Run({"hardware", "-o", "json"}).out)["gpus"];
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[0]["uuid"], "GPU-a");
  EXPECT_EQ(gpus[0]["type"], "h200");
  EXPECT_EQ(gpus[1]["index"], 1);
  EXPECT_TRUE(gpus[1]["type"].is_null());
  EXPECT_EQ(gpus[1]["memory_bytes"], 1073741824);
  const std::string text = Run({"hardware"}).out;
  EXPECT_THAT(text, HasSubstr("GPU 0: NVIDIA H200, "));
  EXPECT_THAT(text, HasSubstr("GPU 1: NVIDIA Q9, 1.00 GiB, GPU-b, not in the catalog"));
  const FakeGpus none({});
  EXPECT_THAT(Run({"hardware"}).out, HasSubstr("GPUs: none that CUDA can use"));
}

}  // namespace
}  // namespace legoai::cli::testing

// lego-measure as it is called, and what reads its file.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "core/hardware/catalog.h"
#include "core/process/build_version.h"
#include "simulator/cost/calibration.h"

namespace legoai::sim {
namespace {

struct Result {
  int code = 0;
  std::string out, err;
};

std::string ReadText(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

Result CallMeasure(const std::string& arguments, const std::string& environment = "") {
  const std::string err = testing::TempDir() + "/err";
  FILE* pipe = popen((environment + " simulator/measure/lego-measure " + arguments + " 2>" + err).c_str(), "re");
  EXPECT_NE(pipe, nullptr);
  Result result;
  char buffer[4096];
  while (const size_t got = fread(buffer, 1, sizeof(buffer), pipe)) result.out.append(buffer, got);
  const int status = pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  result.err = ReadText(err);
  return result;
}

TEST(MeasureTest, ACalibrationIsMadeAndRead) {
  const std::string path = testing::TempDir() + "/calibration.txtpb";
  const Result result = CallMeasure("--device=cpu --quick --seconds=300 --out=" + path);
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.err.find(" points measured in "), std::string::npos) << result.err;
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));
  const auto calibration = LoadCalibration(path);
  ASSERT_TRUE(calibration.ok()) << calibration.status();
  const auto& provenance = calibration->provenance();
  EXPECT_EQ(provenance.kind(), v1::CPU);
  EXPECT_FALSE(provenance.card().empty());
  EXPECT_EQ(provenance.build(), launch::BuildVersion());
  EXPECT_EQ(provenance.libraries().at("torch").rfind("2.", 0), 0u);
  EXPECT_EQ(provenance.date().size(), 10u);
  EXPECT_GT(provenance.seconds(), 0);
  EXPECT_GT(provenance.cache_flush_bytes(), 0);
  EXPECT_EQ(calibration->operators_size(), calibration->points_planned());
  v1::Calibration without_launch = *calibration;  // so that all of these small points are long enough, however busy the machine
  without_launch.set_kernel_launch_seconds(1e-9);
  const auto fit = FitDevice(without_launch, FindDevice("cpu").value());
  ASSERT_TRUE(fit.ok()) << fit.status();
  EXPECT_FALSE(fit->fits.empty());
  for (const ClassFit& one : fit->fits) EXPECT_GT(one.measured, 0);
  EXPECT_NE(fit->device.efficiencies(0).source().find("too small to rely on"), std::string::npos)
      << fit->device.efficiencies(0).source();
}

TEST(MeasureTest, WithoutAGpuCudaIsRefusedByName) {
  const std::string path = testing::TempDir() + "/kept.txtpb";
  std::ofstream(path) << "# mine";
  const Result result = CallMeasure("--device=cuda --seconds=5 --out=" + path, "CUDA_VISIBLE_DEVICES=");
  EXPECT_EQ(result.code, 1);
  EXPECT_NE(result.err.find("lego-measure: device = cuda: no GPU can be used here ("), std::string::npos) << result.err;
  EXPECT_EQ(ReadText(path), "# mine") << "what was there is not lost";
}

TEST(MeasureTest, WrongCallsAreRefusedByName) {
  const auto refused = [](const std::string& arguments, const std::string& text) {
    const Result result = CallMeasure(arguments);
    EXPECT_NE(result.code, 0) << arguments;
    EXPECT_NE(result.err.find(text), std::string::npos) << result.err;
  };
  refused("--device=tpu", "--device = tpu: must be cuda or cpu");
  refused("--device=cpu", "--device = cpu: is for trying the program, with --quick");
  refused("--device=cuda --seconds=0", "--seconds = 0: must be positive");
  refused("--quick", "--device: is needed with --out and --quick");
  refused("--device=cpu --quick --out=/no/such/folder/file",
          "--out = /no/such/folder/file: cannot be written: No such file or directory");
  refused("--device=cpu --quick --out=/tmp", "--out = /tmp: cannot be written");
}

}  // namespace
}  // namespace legoai::sim

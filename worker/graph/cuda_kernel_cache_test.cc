#include "worker/graph/cuda_kernel_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/checkpoint/files.h"
#include "worker/graph/testing/nvrtc_library.h"

namespace legoai::graph {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

constexpr char kSource[] = "extern \"C\" __global__ void twice(float* x) { x[threadIdx.x] *= 2.0f; }\n";

class CudaKernelCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "/" + ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    setenv("LEGOAI_KERNEL_CACHE", folder_.c_str(), 1);
    const absl::Status nvrtc = testing_cuda::UseFetchedNvrtc();
    ASSERT_TRUE(nvrtc.ok()) << nvrtc;
  }

  std::string Load(const std::string& architecture = "sm_90") {
    const auto cubin = LoadCudaKernel(kSource, architecture, &counts_, &notes_);
    EXPECT_TRUE(cubin.ok()) << cubin.status();
    return cubin.value_or("");
  }

  std::string folder_;
  KernelCounts counts_;
  std::vector<std::string> notes_;
};

TEST_F(CudaKernelCacheTest, CompilesOnceForEachArchitecture) {
  const std::string cubin = Load();
  EXPECT_EQ(cubin.substr(1, 3), "ELF");
  EXPECT_THAT(cubin, HasSubstr("twice"));
  EXPECT_EQ(Load(), cubin);
  EXPECT_EQ(counts_.compiled, 1);
  EXPECT_EQ(counts_.loaded, 1);
  EXPECT_NE(Load("sm_80"), cubin);
  EXPECT_EQ(counts_.compiled, 2);
  EXPECT_THAT(notes_, IsEmpty());
  int cubins = 0;
  for (const auto& file : fs::directory_iterator(folder_)) {
    cubins += file.path().extension() == ".cubin";
    EXPECT_TRUE(file.path().extension() == ".cubin" || file.path().filename() == "lock") << file;
  }
  EXPECT_EQ(cubins, 2);
}

TEST_F(CudaKernelCacheTest, BuildsAgainWhatIsDamagedOrOfAnotherCompiler) {
  const std::string cubin = Load();
  const std::string path = CudaKernelPath(kSource, "sm_90").value(), whole = checkpoint::ReadFile(path).value();
  std::string changed = whole, foreign = whole;
  changed[whole.size() / 3] ^= 1;
  foreign.replace(foreign.rfind("NVRTC "), 6, "OTHER ");
  int64_t compiled = 1;
  for (const std::string& bytes : {whole.substr(0, whole.size() / 2), std::string(), changed, foreign}) {
    std::ofstream(path, std::ios::binary) << bytes;
    notes_.clear();
    EXPECT_EQ(Load(), cubin);
    EXPECT_EQ(counts_.compiled, ++compiled);
    ASSERT_EQ(notes_.size(), 1u);
    EXPECT_THAT(notes_[0], HasSubstr(path + " is built again: it "));
  }
  EXPECT_THAT(notes_[0], HasSubstr("was built by OTHER "));
}

TEST_F(CudaKernelCacheTest, SaysWhatTheCompilerSaid) {
  const absl::Status wrong = LoadCudaKernel("not CUDA", "sm_90", &counts_, &notes_).status();
  EXPECT_EQ(wrong.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(wrong.message(), HasSubstr("fused.cu(1): error"));
  EXPECT_THAT(LoadCudaKernel(kSource, "sm_11", &counts_, &notes_).status().message(), HasSubstr("gpu-architecture"));
  EXPECT_EQ(counts_.compiled, 0);
}

TEST_F(CudaKernelCacheTest, SaysThatThereIsNoCompiler) {
  setenv("LEGOAI_NVRTC", "/nowhere/libnvrtc.so", 1);
  EXPECT_THAT(CudaKernelsAreBuiltBy("sm_90").status().message(), HasSubstr("LEGOAI_NVRTC = /nowhere/libnvrtc.so"));
  setenv("LEGOAI_NVRTC", "libm.so.6", 1);
  EXPECT_THAT(CudaKernelsAreBuiltBy("sm_90").status().message(), HasSubstr("it lacks functions"));
  ASSERT_TRUE(testing_cuda::UseFetchedNvrtc().ok());
  EXPECT_THAT(CudaKernelsAreBuiltBy("sm_90").value(), HasSubstr("NVRTC 13.0 | --gpu-architecture=sm_90 "));
}

}  // namespace
}  // namespace legoai::graph

// What tests on a GPU share. Where no GPU can be used each is skipped with the plugin's own words.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/recipe/resolved_recipe.h"
#include "tests/integration/cases.h"
#include "tests/integration/train_in_processes.h"
#include "worker/comm/cuda_plugin.h"
#include "worker/train/train_step.h"

namespace legoai::gpu {

// In the build's output, and in the package of tests.
inline constexpr char kPlugin[] = "worker/comm/cuda/liblegoai_cuda.so";

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override;

  const comm::CudaPlugin* plugin_ = nullptr;
};

// Whether CUDA's libraries are here and could be loaded, which needs no GPU: then the dispatcher knows which kernels there are.
bool CudaKernelsAreKnown();

// Bytes of the device's caching allocator now.
struct DeviceBytes {
  int64_t requested = 0, allocated = 0;
  int64_t requested_peak = 0;  // since the last reset
};
DeviceBytes BytesNow();
void ResetPeak();
void Synchronize();

// A runtime for a world of one on the GPU. Make its RuntimeScope current.
std::unique_ptr<comm::Runtime> RuntimeOfOne(const comm::CudaPlugin& plugin);

// One rank on the GPU, whose runtime is current.
class OneRankTest : public GpuTest {
 protected:
  void SetUp() override;

 private:
  std::unique_ptr<comm::Runtime> runtime_;
  std::unique_ptr<comm::RuntimeScope> scope_;
};

// max |a - b| / max |b|, in fp64 on the CPU; infinite where sizes or types differ, or a value is not a number.
double Difference(const at::Tensor& a, const at::Tensor& b);

// Runs the disabled test `name` ("Suite.DISABLED_Test") of this program in `ranks` processes of its own: a process that has used
// a GPU cannot fork others that use one. `time_limit_seconds`: then they are killed. Returns what each wrote by Tell(), and a
// failure where one ended otherwise than well.
struct RankOutcome {
  int exit_code = -1;  // 128 + the signal that ended it
  std::string told;
};
std::vector<RankOutcome> RunSelf(const std::string& name, int ranks, int time_limit_seconds);

// Within such a process.
int RankOfSelf();
int RanksOfSelf();
comm::RendezvousOptions RendezvousOfSelf();
// The plugin and this rank's card, selected. Where there are too few for all ranks they share the first: NCCL is told that each
// is a host of its own, and connects them by sockets; PyTorch's symmetric memory is told to let them.
const comm::CudaPlugin& PluginOfSelf();
c10::Device DeviceOfSelf(const comm::CudaPlugin& plugin);
void Tell(const std::string& text);

// The inputs that the CPU's step of that number gets, copied to where `inputs` are.
void FillDeviceInputs(train::StepInputs& inputs, const integration::Case& test_case, const parallel::ResolvedRecipe& resolved,
                      int64_t rank, int64_t step);

// One process, a batch of 8 sequences of 16 tokens. Throws where the recipe is refused.
integration::Case CaseOfOne(const std::string& name, const v1::Model& model, v1::DType param, bool checkpointed);

}  // namespace legoai::gpu

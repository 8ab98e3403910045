// Predicted and measured peak memory of each recipe of tests/integration/cases.h: peak_requested_bytes of the Trace captured
// without data, beside the counting CPU allocator's peak over a real step. Of each recipe the rank where they differ most.
//
// Usage: memory_bench [--json]. Asserts nothing.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "simulator/capture/capture.h"
#include "simulator/memory/memory_simulator.h"
#include "tests/integration/cases.h"
#include "tests/integration/train_in_processes.h"
#include "worker/comm/cpu_memory.h"

namespace legoai::integration {
namespace {

struct Peaks {
  int64_t predicted = 0, measured = 0;
  double Error() const { return measured == 0 ? 0 : static_cast<double>(predicted - measured) / measured; }
};

template <class T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) throw std::runtime_error(value.status().ToString());
  return *std::move(value);
}

int64_t Predict(const Case& test_case, int64_t rank, const parallel::ParallelDims& dims) {
  sim::MemoryOptions options;
  options.kind = v1::CPU;
  const auto trace = Must(sim::CaptureStep(test_case.model, test_case.recipe, dims, rank)).trace;
  return Must(sim::SimulateMemory(trace, options)).peak_requested_bytes;
}

int64_t Measure(const Case& test_case, int64_t rank, const parallel::ParallelDims& dims) {
  const int64_t before = comm::CpuLiveBytes();  // of nobody's step
  auto step = Must(train::TrainStep::Build(test_case.model, test_case.recipe, dims, at::kCPU, /*materialize=*/true));
  for (int64_t i = 0; i < 2; ++i) {
    FillInputs(step->inputs(), test_case, dims, rank, i);
    comm::ResetCpuPeakBytes();
    Must(step->Run());
  }
  return comm::CpuPeakBytes() - before;
}

Peaks Run(const Case& test_case) {
  const auto results = RunCase(test_case, [&](int64_t rank, comm::Runtime&, const parallel::ParallelDims& dims) {
    comm::InstallCpuMemoryCounter();
    const Peaks peaks{Predict(test_case, rank, dims), Measure(test_case, rank, dims)};
    return std::string(reinterpret_cast<const char*>(&peaks), sizeof peaks);
  });
  Peaks worst;
  for (const std::string& bytes : results) {
    Peaks peaks;
    if (bytes.size() != sizeof peaks) throw std::runtime_error(test_case.name + ": a rank failed");
    std::memcpy(&peaks, bytes.data(), sizeof peaks);
    if (worst.measured == 0 || std::abs(peaks.Error()) > std::abs(worst.Error())) worst = peaks;
  }
  return worst;
}

int Main(bool json) {
  if (json) std::printf("{\"rows\": [");
  const char* separator = "";
  for (const Case& test_case : ParityCases()) {
    const Peaks peaks = Run(test_case);
    if (json) {
      std::printf("%s{\"recipe\": \"%s\", \"predicted_bytes\": %lld, \"measured_bytes\": %lld}", separator,
                  test_case.name.c_str(), static_cast<long long>(peaks.predicted), static_cast<long long>(peaks.measured));
      separator = ", ";
    } else {
      std::printf("%-28s predicted %9lld  measured %9lld  %+.2f %%\n", test_case.name.c_str(),
                  static_cast<long long>(peaks.predicted), static_cast<long long>(peaks.measured), peaks.Error() * 100);
    }
  }
  if (json) std::printf("]}\n");
  return 0;
}

}  // namespace
}  // namespace legoai::integration

int main(int argc, char** argv) {
  try {
    return legoai::integration::Main(argc > 1 && std::strcmp(argv[1], "--json") == 0);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "memory_bench: %s\n", error.what());
    return 1;
  }
}

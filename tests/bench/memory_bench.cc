// Predicted and measured peak memory of each recipe of tests/integration/cases.h: peak_requested_bytes of the Trace captured
// without data, beside the counting CPU allocator's peak over a real step. Of each recipe the rank where they differ most.
//
// Usage: memory_bench [--json | PART_OF_A_NAME]. Asserts nothing.
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "simulator/capture/capture.h"
#include "simulator/memory/memory_simulator.h"
#include "tests/bench/bench_main.h"
#include "tests/integration/cases.h"
#include "tests/integration/train_in_processes.h"
#include "worker/comm/cpu_tensors.h"

namespace legoai::integration {
namespace {

struct Peaks {
  int64_t predicted = 0, measured = 0;
  double Error() const { return measured == 0 ? 0 : static_cast<double>(predicted - measured) / measured; }
};

int64_t Predict(const Case& test_case, int64_t rank, const parallel::ResolvedRecipe& resolved) {
  sim::MemoryOptions options;
  options.kind = v1::CPU;
  options.onednn_bfloat16 = comm::OneDnnComputesBfloat16();
  const auto trace = Must(sim::CaptureStep(resolved, rank)).trace;
  return Must(sim::SimulateMemory(trace, options)).peak_requested_bytes;
}

int64_t Measure(const Case& test_case, int64_t rank, const parallel::ResolvedRecipe& resolved) {
  const int64_t before = comm::CpuLiveBytes();  // of nobody's step
  auto step = Must(train::TrainStep::Build(resolved, at::kCPU, /*materialize=*/true));
  for (int64_t i = 0; i < 2; ++i) {
    FillInputs(step->inputs(), test_case, resolved, rank, i);
    comm::ResetCpuPeakBytes();
    Must(step->Run());
  }
  return comm::CpuPeakBytes() - before;
}

Peaks Run(const Case& test_case) {
  const auto results = RunCase(test_case, [&](int64_t rank, comm::Runtime&, const parallel::ResolvedRecipe& resolved) {
    comm::InstallCpuMemoryCounter();
    const Peaks peaks{Predict(test_case, rank, resolved), Measure(test_case, rank, resolved)};
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

void RunAll(Rows& rows, const std::string& part) {
  for (const Case& test_case : ParityCases()) {
    if (test_case.name.find(part) == std::string::npos) continue;
    const Peaks peaks = Run(test_case);
    rows.Add(absl::StrFormat("\"recipe\": \"%s\", \"predicted_bytes\": %d, \"measured_bytes\": %d", test_case.name,
                             peaks.predicted, peaks.measured),
             absl::StrFormat("%-28s predicted %9d  measured %9d  %+.2f %%", test_case.name, peaks.predicted, peaks.measured,
                             peaks.Error() * 100));
  }
}

}  // namespace
}  // namespace legoai::integration

int main(int argc, char** argv) { return legoai::integration::BenchMain(argc, argv, legoai::integration::RunAll); }

// The executed Trace against the eager step, side by side in one run, for recipes of tests/integration/cases.h: medians of steps
// that alternate, on the slowest rank.
//
// Usage: execute_bench [--json]. Asserts nothing.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "simulator/capture/capture.h"
#include "tests/integration/cases.h"
#include "tests/integration/train_in_processes.h"
#include "worker/graph/executor.h"

namespace legoai::integration {
namespace {

constexpr int kRepeats = 31;

struct Seconds {
  double eager = 0, executed = 0;
};

template <class T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) throw std::runtime_error(value.status().ToString());
  return *std::move(value);
}
void Must(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

double Time(const std::function<void()>& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

Seconds MeasureRank(const Case& test_case, int64_t rank, const parallel::ParallelDims& dims) {
  auto build = [&] { return train::TrainStep::Build(test_case.model, test_case.recipe, dims, at::kCPU, /*materialize=*/true); };
  auto eager = Must(build()), executed = Must(build());
  const graph::Trace trace = Must(sim::CaptureStep(test_case.model, test_case.recipe, dims, rank)).trace;
  auto executor = Must(graph::Executor::Create(trace, at::kCPU));
  for (const auto& state : executed->State()) Must(executor->Bind(state.name, state.tensor));
  std::vector<double> eager_seconds, executed_seconds;
  for (int i = 0; i < kRepeats; ++i) {
    FillInputs(eager->inputs(), test_case, dims, rank, i);
    FillInputs(executed->inputs(), test_case, dims, rank, i);
    eager_seconds.push_back(Time([&] { Must(eager->Run()); }));
    executed_seconds.push_back(Time([&] { Must(executor->Run()); }));
  }
  return {Median(eager_seconds), Median(executed_seconds)};
}

Seconds Run(const Case& test_case) {
  const auto results = RunCase(test_case, [&](int64_t rank, comm::Runtime&, const parallel::ParallelDims& dims) {
    const Seconds seconds = MeasureRank(test_case, rank, dims);
    return std::string(reinterpret_cast<const char*>(&seconds), sizeof seconds);
  });
  Seconds slowest;
  for (const std::string& bytes : results) {
    Seconds seconds;
    if (bytes.size() != sizeof seconds) throw std::runtime_error(test_case.name + ": a rank failed");
    std::memcpy(&seconds, bytes.data(), sizeof seconds);
    if (seconds.eager > slowest.eager) slowest = seconds;
  }
  return slowest;
}

int Main(bool json) {
  if (json) std::printf("{\"rows\": [");
  const char* separator = "";
  for (const Case& test_case : ParityCases()) {
    if (test_case.world_size > 2) continue;  // more ranks than cores measure the machine's scheduler
    const Seconds seconds = Run(test_case);
    if (json) {
      std::printf("%s{\"recipe\": \"%s\", \"eager_seconds\": %.6f, \"executed_seconds\": %.6f}", separator,
                  test_case.name.c_str(), seconds.eager, seconds.executed);
      separator = ", ";
    } else {
      std::printf("%-28s eager %.6f s  executed %.6f s  %.2f of eager\n", test_case.name.c_str(), seconds.eager, seconds.executed,
                  seconds.executed / seconds.eager);
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
    std::fprintf(stderr, "execute_bench: %s\n", error.what());
    return 1;
  }
}

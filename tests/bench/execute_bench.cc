// The executed Trace against the eager step, side by side in one run, for recipes of tests/integration/cases.h: medians of steps
// that alternate, on the slowest rank.
//
// Usage: execute_bench [--json | PART_OF_A_NAME]. Asserts nothing.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "simulator/capture/capture.h"
#include "tests/bench/bench_main.h"
#include "tests/integration/cases.h"
#include "tests/integration/train_in_processes.h"
#include "worker/graph/executor.h"

namespace legoai::integration {
namespace {

constexpr int kRepeats = 31;

struct Seconds {
  double eager = 0, executed = 0;
};

double Time(const std::function<void()>& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Seconds MeasureRank(const Case& test_case, int64_t rank, const parallel::ResolvedRecipe& resolved) {
  auto build = [&] { return train::TrainStep::Build(resolved, at::kCPU, /*materialize=*/true); };
  auto eager = Must(build()), executed = Must(build());
  const graph::Trace trace = Must(sim::CaptureStep(resolved, rank)).trace;
  auto executor = Must(graph::Executor::Create(trace, at::kCPU));
  Must(executed->GatherParameters());
  for (const auto& state : executed->State()) Must(executor->Bind(state.name, state.tensor));
  std::vector<double> eager_seconds, executed_seconds;
  for (int i = 0; i < kRepeats; ++i) {
    FillInputs(eager->inputs(), test_case, resolved, rank, i);
    FillInputs(executed->inputs(), test_case, resolved, rank, i);
    eager_seconds.push_back(Time([&] { Must(eager->Run()); }));
    executed_seconds.push_back(Time([&] { Must(executor->Run()); }));
  }
  return {Median(eager_seconds), Median(executed_seconds)};
}

Seconds Run(const Case& test_case) {
  const auto results = RunCase(test_case, [&](int64_t rank, comm::Runtime&, const parallel::ResolvedRecipe& resolved) {
    const Seconds seconds = MeasureRank(test_case, rank, resolved);
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

void RunAll(Rows& rows, const std::string& part) {
  for (const Case& test_case : ParityCases()) {
    if (test_case.world_size > 2) continue;  // more ranks than cores measure the machine's scheduler
    if (test_case.name.find(part) == std::string::npos) continue;
    const Seconds seconds = Run(test_case);
    rows.Add(absl::StrFormat("\"recipe\": \"%s\", \"eager_seconds\": %.6f, \"executed_seconds\": %.6f", test_case.name,
                             seconds.eager, seconds.executed),
             absl::StrFormat("%-28s eager %.6f s  executed %.6f s  %.2f of eager", test_case.name, seconds.eager,
                             seconds.executed, seconds.executed / seconds.eager));
  }
}

}  // namespace
}  // namespace legoai::integration

int main(int argc, char** argv) { return legoai::integration::BenchMain(argc, argv, legoai::integration::RunAll); }

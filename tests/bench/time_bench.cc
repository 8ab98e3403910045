// Predicted and measured step time on this machine's CPU, one thread for each rank: the benchmark mode of the simulator beside
// the median of real steps, for the recipes of tests/integration/cases.h with the models made larger (enlarged.h). Both are the
// median of three, taken in turns, for the speed of a machine may change from one second to the next. Worlds larger than the
// cores are listed apart: their ranks take turns.
//
// Usage: time_bench [--json | PART_OF_A_NAME | NAME,NAME...]. Asserts nothing. Worth reading only on a machine that is otherwise
// idle.
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/hardware/catalog.h"
#include "core/hardware/host.h"
#include "core/process/host_resources.h"
#include "simulator/estimate/estimate.h"
#include "tests/bench/bench_main.h"
#include "tests/bench/enlarged.h"
#include "tests/integration/cases.h"
#include "tests/integration/train_in_processes.h"

namespace legoai::integration {
namespace {

struct Times {
  double predicted = 0, measured = 0;
  double Error() const { return measured == 0 ? 0 : (predicted - measured) / measured; }
};

// As the launcher places a rank: all its threads, also those that communicators started.
void Pin(int64_t rank) {
  const std::vector<int> allowed = launch::AllowedCpus();
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(allowed[rank % allowed.size()], &cpus);
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    sched_setaffinity(std::stoi(task.path().filename().string()), sizeof cpus, &cpus);
  }
}

double Measure(const Case& test_case, int64_t rank, const parallel::ResolvedRecipe& resolved) {
  Pin(rank);
  auto step = Must(train::TrainStep::Build(resolved, at::kCPU, /*materialize=*/true));
  std::vector<double> seconds;
  for (int64_t i = 0; i < 12; ++i) {
    FillInputs(step->inputs(), test_case, resolved, rank, i);
    const auto begin = std::chrono::steady_clock::now();
    Must(step->Run());
    const double taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (i >= 2) seconds.push_back(taken);
  }
  return Median(std::move(seconds));
}

double Predict(const Case& test_case) {
  v1::SimRequest request;
  *request.mutable_model() = test_case.model;
  *request.mutable_recipe() = test_case.recipe;
  *request.mutable_cluster() = Must(sim::MakeCluster(Must(sim::FindDevice("cpu")), test_case.world_size, 1));
  request.set_cost_mode(v1::COST_BENCHMARK);
  return Must(sim::EstimateRecipe(request)).step_time_seconds();
}

double MeasureOnce(const Case& test_case) {
  double slowest = 0;
  const auto results = RunCase(test_case, [&](int64_t rank, comm::Runtime&, const parallel::ResolvedRecipe& resolved) {
    const double seconds = Measure(test_case, rank, resolved);
    return std::string(reinterpret_cast<const char*>(&seconds), sizeof seconds);
  });
  for (const std::string& bytes : results) {
    double seconds = 0;
    if (bytes.size() != sizeof seconds) throw std::runtime_error(test_case.name + ": a rank failed");
    std::memcpy(&seconds, bytes.data(), sizeof seconds);
    slowest = std::max(slowest, seconds);
  }
  return slowest;
}

// In a process of its own, so that this one stays without threads and can go on forking.
double PredictOnce(const Case& test_case) {
  Case alone = test_case;
  alone.recipe = Reference(test_case).recipe;
  alone.world_size = 1;
  const auto predicted = RunCase(alone, [&](int64_t, comm::Runtime&, const parallel::ResolvedRecipe&) {
    const double seconds = Predict(test_case);
    return std::string(reinterpret_cast<const char*>(&seconds), sizeof seconds);
  });
  if (predicted.size() != 1 || predicted[0].size() != sizeof(double))
    throw std::runtime_error(test_case.name + ": no prediction");
  double seconds = 0;
  std::memcpy(&seconds, predicted[0].data(), sizeof seconds);
  return seconds;
}

Times Run(const Case& test_case) {
  constexpr int kRounds = 3;
  std::vector<double> measured, predicted;
  for (int round = 0; round < kRounds; ++round) {
    measured.push_back(MeasureOnce(test_case));
    predicted.push_back(PredictOnce(test_case));
  }
  return {.predicted = Median(std::move(predicted)), .measured = Median(std::move(measured))};
}

void AddRow(Rows& rows, const Case& test_case, const Times& times) {
  const std::string& name = test_case.name;
  rows.Add(absl::StrFormat("\"recipe\": \"%s\", \"world_size\": %d, \"predicted_seconds\": %.6f, \"measured_seconds\": %.6f",
                           name, test_case.world_size, times.predicted, times.measured),
           absl::StrFormat("%-28s predicted %8.4f s  measured %8.4f s  %+6.1f %%", name, times.predicted, times.measured,
                           times.Error() * 100));
}

// `part`: of the name, or whole names with commas between them.
bool IsAskedFor(const std::string& name, const std::string& part) {
  if (part.find(',') == std::string::npos) return name.find(part) != std::string::npos;
  return absl::StrContains(absl::StrCat(",", part, ","), absl::StrCat(",", name, ","));
}

void RunAll(Rows& rows, const std::string& part) {
  const int64_t cores = sim::HostPhysicalCores();
  for (bool larger : {false, true}) {
    rows.Note(absl::StrFormat(larger ? "\nworlds larger than the %d cores:" : "worlds of at most the %d cores:", cores));
    std::vector<double> errors;
    for (const Case& small : ParityCases()) {
      if ((small.world_size > cores) != larger || !IsAskedFor(small.name, part)) continue;
      const Case test_case = Enlarged(small);
      const Times times = Run(test_case);
      AddRow(rows, test_case, times);
      errors.push_back(std::abs(times.Error()));
    }
    if (errors.empty()) continue;
    const double median = Median(errors), worst = *std::max_element(errors.begin(), errors.end());
    rows.Summarize(absl::StrFormat("\"%s\": {\"cores\": %d, \"recipes\": %d, \"median_error\": %.4f, \"worst_error\": %.4f}",
                                   larger ? "worlds_beyond_cores" : "worlds_within_cores", cores, errors.size(), median, worst),
                   absl::StrFormat("error: median %.1f %%, worst %.1f %%", median * 100, worst * 100));
  }
}

}  // namespace
}  // namespace legoai::integration

int main(int argc, char** argv) { return legoai::integration::BenchMain(argc, argv, legoai::integration::RunAll); }

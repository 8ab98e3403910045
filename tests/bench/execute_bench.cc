// Whole training steps, eager and by an executor that runs the captured Trace, in one process and in turns: inputs are filled,
// the step runs with a timeline that listens, as the trainer's does, and loss and gradient norm are read by the host. Recipes of
// one and two ranks, one thread each, on the small models of tests/integration/cases.h, which are bound by dispatch, and on
// larger ones (enlarged.h).
//
// A step's time is that of its slower rank, and of a recipe the median. Beside it stands what the dispatching thread of rank 0
// computes for each operator (views are none), kernels included, by the processor's clock: a busy machine disturbs that less.
//
// Usage: execute_bench [--json | PART_OF_A_NAME]. Asserts nothing about time.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "simulator/capture/capture.h"
#include "tests/bench/bench_main.h"
#include "tests/bench/enlarged.h"
#include "tests/integration/cases.h"
#include "tests/integration/train_in_processes.h"
#include "worker/comm/cpu_tensors.h"
#include "worker/comm/step_timeline.h"
#include "worker/graph/executor.h"
#include "worker/train/step_breakdown.h"

namespace legoai::integration {
namespace {

// Modes take turns of some steps each, the first of which finds the memory as the other mode has left it and does not count. Nor
// does the first turn.
constexpr int kTurns = 12, kTurnsOfLarger = 5, kStepsOfTurn = 4;

enum Mode { kEager, kGraph, kModes };

struct Sample {
  double seconds = 0, host_seconds = 0;
};

// What one rank measured: `samples` of both modes in the order of the steps.
struct Samples {
  std::vector<Sample> of[kModes];
  double operators = 0;
};

struct Figures {
  double seconds[kModes], host_ns[kModes];  // of a step; of an operator
  double Ratio() const { return seconds[kGraph] / seconds[kEager]; }
};

double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

Sample Measure(const std::function<void()>& step) {
  const auto start = std::chrono::steady_clock::now();
  const double host = ThreadSeconds();
  step();
  return {std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), ThreadSeconds() - host};
}

// Both modes of a rank's training, which stay the same training bit by bit.
class Rank {
 public:
  Rank(const Case& test_case, int64_t rank, const comm::Runtime& runtime, const parallel::ResolvedRecipe& resolved)
      : case_(test_case), rank_(rank), runtime_(runtime), resolved_(resolved) {
    comm::InstallCpuMemoryCounter();
    for (auto& step : steps_) step = Must(train::TrainStep::Build(resolved, at::kCPU, /*materialize=*/true));
    trace_ = Must(sim::CaptureStep(resolved, rank)).trace;
    executor_ = Must(graph::Executor::Create(trace_, at::kCPU));
    Must(steps_[kGraph]->GatherParameters());
    for (const auto& state : steps_[kGraph]->State()) Must(executor_->Bind(state.name, state.tensor));
  }

  Samples Run(int turns) {
    Samples samples;
    samples.operators = static_cast<double>(executor_->OperatorsPerRun());
    for (int turn = 0; turn < turns; ++turn) {
      for (const Mode mode : {kEager, kGraph}) {
        for (int i = 0; i < kStepsOfTurn; ++i) {
          const Sample sample = Measure([&] { Step(mode, turn * kStepsOfTurn + i); });
          if (turn > 0 && i > 0) samples.of[mode].push_back(sample);
        }
      }
      if (losses_[kEager] != losses_[kGraph]) throw std::runtime_error(case_.name + ": the modes train otherwise");
    }
    return samples;
  }

 private:
  void Step(Mode mode, int64_t step) {
    FillInputs(steps_[mode]->inputs(), case_, resolved_, rank_, step);
    timeline_.Begin();
    at::Tensor loss, norm;
    if (mode == kEager) {
      const auto result = Must(steps_[mode]->Run());
      loss = result.loss, norm = result.grad_norm;
    } else {
      Must(executor_->Run());
      loss = Must(executor_->Output("loss")), norm = Must(executor_->Output("grad_norm"));
    }
    train::BreakdownOf(Must(timeline_.End()), runtime_.groups());
    losses_[mode] = {loss.item<float>(), norm.item<float>()};
  }

  const Case& case_;
  const int64_t rank_;
  const comm::Runtime& runtime_;
  const parallel::ResolvedRecipe& resolved_;
  std::unique_ptr<train::TrainStep> steps_[kModes];
  graph::Trace trace_;
  std::unique_ptr<graph::Executor> executor_;
  comm::StepTimeline timeline_;
  std::pair<float, float> losses_[kModes];
};

// As bytes: the number of operators, then the samples of both modes.
std::string ToBytes(const Samples& samples) {
  std::string bytes(reinterpret_cast<const char*>(&samples.operators), sizeof(double));
  for (const auto& of : samples.of) bytes.append(reinterpret_cast<const char*>(of.data()), of.size() * sizeof(Sample));
  return bytes;
}

Samples FromBytes(const std::string& name, int turns, const std::string& bytes) {
  const size_t each = (turns - 1) * (kStepsOfTurn - 1);
  if (bytes.size() != sizeof(double) + kModes * each * sizeof(Sample)) throw std::runtime_error(name + ": a rank failed");
  Samples samples;
  const char* at = bytes.data();
  std::memcpy(&samples.operators, at, sizeof(double));
  at += sizeof(double);
  for (auto& of : samples.of) {
    of.resize(each);
    std::memcpy(of.data(), at, each * sizeof(Sample));
    at += each * sizeof(Sample);
  }
  return samples;
}

Figures Run(const Case& test_case, int turns) {
  const auto results = RunCase(test_case, [&](int64_t rank, comm::Runtime& runtime, const parallel::ResolvedRecipe& resolved) {
    return ToBytes(Rank(test_case, rank, runtime, resolved).Run(turns));
  });
  std::vector<Samples> ranks;
  for (const std::string& bytes : results) ranks.push_back(FromBytes(test_case.name, turns, bytes));
  Figures figures{};
  for (const Mode mode : {kEager, kGraph}) {
    std::vector<double> seconds, host;
    for (size_t step = 0; step < ranks[0].of[mode].size(); ++step) {
      double slowest = 0;
      for (const Samples& rank : ranks) slowest = std::max(slowest, rank.of[mode][step].seconds);
      seconds.push_back(slowest);
      host.push_back(ranks[0].of[mode][step].host_seconds);
    }
    figures.seconds[mode] = Median(seconds);
    figures.host_ns[mode] = 1e9 * Median(host) / ranks[0].operators;
  }
  return figures;
}

// Data parallelism taken away: its whole batch on one rank.
Case OnOneRank(Case test_case) {
  auto* parallelism = test_case.recipe.mutable_parallelism();
  auto* training = test_case.recipe.mutable_training();
  training->set_local_batch_size(training->local_batch_size() * test_case.world_size);
  parallelism->set_data_parallel_replicate_degree(1);
  parallelism->set_data_parallel_shard_degree(1);
  test_case.world_size = 1;
  test_case.name += "_on_one";
  return test_case;
}

std::vector<Case> Cases() {
  const std::vector<Case> all = ParityCases();
  const auto named = [&](const std::string& name) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const Case& test_case) { return test_case.name == name; });
    if (found == all.end()) throw std::runtime_error("no recipe is called " + name);
    return *found;
  };
  std::vector<Case> cases;
  for (const char* name : {"ddp2", "ddp2_ac", "ddp2_ac_op", "ddp2_accumulate2", "fsdp2_bf16", "ddp2_muon", "gpt2_ddp2"}) {
    cases.push_back(OnOneRank(named(name)));
  }
  for (const char* name : {"ddp2", "fsdp2", "fsdp2_ac", "fsdp2_bf16", "fsdp2_accumulate2_zero2", "gpt2_fsdp2", "fsdp2_muon",
                           "tp2", "tp2_ac_again", "gpt2_tp2", "cp2", "cp2_ring", "pp2_1f1b", "pp2_gpipe_ac", "pp2_interleaved",
                           "pp2_zb_h1", "gpt2_pp2_zbv", "mistral_fsdp2_ac_op"}) {
    cases.push_back(named(name));
  }
  return cases;
}

void AddRow(Rows& rows, const Case& test_case, const char* models, const Figures& figures) {
  rows.Add(absl::StrFormat(R"("recipe": "%s", "models": "%s", "eager_seconds": %.6f, "graph_seconds": %.6f, )"
                           R"("eager_ns_per_operator": %.0f, "graph_ns_per_operator": %.0f)",
                           test_case.name, models, figures.seconds[kEager], figures.seconds[kGraph], figures.host_ns[kEager],
                           figures.host_ns[kGraph]),
           absl::StrFormat("%-26s eager %8.3f ms  graph %8.3f ms  %.2f of eager  host of an operator %6.0f and %6.0f ns  %.2f",
                           test_case.name, 1e3 * figures.seconds[kEager], 1e3 * figures.seconds[kGraph], figures.Ratio(),
                           figures.host_ns[kEager], figures.host_ns[kGraph], figures.host_ns[kGraph] / figures.host_ns[kEager]));
}

void RunAll(Rows& rows, const std::string& part) {
  for (const bool larger : {false, true}) {
    const char* const models = larger ? "larger" : "small";
    rows.Note(absl::StrFormat("%s models:", models));
    std::vector<double> ratios, host;
    for (const Case& small : Cases()) {
      if (small.name.find(part) == std::string::npos) continue;
      const Case test_case = larger ? Enlarged(small) : small;
      const Figures figures = Run(test_case, larger ? kTurnsOfLarger : kTurns);
      AddRow(rows, test_case, models, figures);
      ratios.push_back(figures.Ratio());
      host.push_back(figures.host_ns[kGraph] / figures.host_ns[kEager]);
    }
    if (ratios.empty()) continue;
    const auto faster = std::count_if(ratios.begin(), ratios.end(), [](double ratio) { return ratio <= 1; });
    const double median = Median(ratios), worst = *std::max_element(ratios.begin(), ratios.end());
    rows.Summarize(
        absl::StrFormat(R"("%s": {"recipes": %d, "median": %.3f, "worst": %.3f, "at_most_1": %d, "median_of_host": %.3f})",
                        models, ratios.size(), median, worst, faster, Median(host)),
        absl::StrFormat("graph of eager: median %.2f, worst %.2f, at most 1.0 in %d of %d; host: median %.2f\n", median, worst,
                        faster, ratios.size(), Median(host)));
  }
}

}  // namespace
}  // namespace legoai::integration

int main(int argc, char** argv) { return legoai::integration::BenchMain(argc, argv, legoai::integration::RunAll); }

// What it costs that a step's phases and communication are timed (worker/comm/step_timeline.h): steps of a tiny Llama under FSDP
// on two ranks, that a timeline listens to and not, in turns; medians of the slower rank.
//
// Usage: timeline_bench [--json]. Asserts nothing.
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/model/catalog.h"
#include "core/recipe/recipe.h"
#include "core/recipe/resolved_recipe.h"
#include "tests/bench/bench_main.h"
#include "worker/comm/step_timeline.h"
#include "worker/comm/testing/process_group_test_util.h"
#include "worker/train/step_breakdown.h"
#include "worker/train/train_step.h"

namespace legoai::integration {
namespace {

constexpr int kRepeats = 101;

struct Figures {
  double without = 0, with = 0;  // seconds of a step
  double entries = 0;            // of the timeline
};

parallel::ResolvedRecipe Resolve(int64_t hidden, int64_t layers) {
  const v1::Model model = model::Llama({.vocab = 256,
                                        .hidden = hidden,
                                        .intermediate = 2 * hidden,
                                        .layers = layers,
                                        .heads = 4,
                                        .kv_heads = 2,
                                        .positions = 128});
  v1::Recipe recipe = parallel::DefaultRecipe();
  recipe.mutable_training()->set_seq_len(128);
  recipe.mutable_training()->set_local_batch_size(1);
  recipe.mutable_training()->set_mixed_precision_param(v1::FLOAT32);
  recipe.mutable_parallelism()->set_data_parallel_shard_degree(2);
  return parallel::ResolvedRecipe::Create(recipe, model, 2).value();
}

Figures MeasureRank(const parallel::ResolvedRecipe& resolved, comm::Runtime& runtime) {
  const auto step = train::TrainStep::Build(resolved, at::kCPU, /*materialize=*/true).value();
  comm::StepTimeline timeline;
  std::vector<double> seconds[2];
  Figures figures;
  for (int i = 0; i < 2 * kRepeats; ++i) {
    const bool listens = i % 2 == 1;
    const auto start = std::chrono::steady_clock::now();
    if (listens) timeline.Begin();
    if (!step->Run().ok()) throw std::runtime_error("a step failed");
    if (listens) {
      const comm::StepTimes times = timeline.End().value();
      train::BreakdownOf(times, runtime.groups());
      figures.entries = static_cast<double>(times.phases.size() + times.calls.size() + times.waits.size());
    }
    seconds[listens].push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  figures.without = Median(seconds[0]), figures.with = Median(seconds[1]);
  return figures;
}

// Of an entry, opened and closed, in a loop.
double SecondsOfEntry() {
  constexpr int kEntries = 1'000;
  comm::StepTimeline timeline;
  std::vector<double> seconds;
  for (int i = 0; i < kRepeats; ++i) {
    timeline.Begin();
    const auto start = std::chrono::steady_clock::now();
    for (int entry = 0; entry < kEntries; ++entry) comm::TimelineScope::Wait();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / kEntries);
  }
  return Median(seconds);
}

void RunAll(Rows& rows) {
  const double entry = SecondsOfEntry();
  rows.Summarize(absl::StrFormat("\"entry_seconds\": %.9f", entry), absl::StrFormat("an entry: %.0f ns", 1e9 * entry));
  for (const auto& [hidden, layers] : {std::pair<int64_t, int64_t>(32, 4), {128, 4}, {256, 8}}) {
    const auto resolved = Resolve(hidden, layers);
    const auto results = comm::testing::RunRanks(resolved.mesh(), [&](int64_t, comm::Runtime& runtime) {
      const Figures figures = MeasureRank(resolved, runtime);
      return std::string(reinterpret_cast<const char*>(&figures), sizeof figures);
    });
    Figures slower;
    for (const std::string& bytes : results) {
      Figures figures;
      if (bytes.size() != sizeof figures) throw std::runtime_error("a rank failed");
      std::memcpy(&figures, bytes.data(), sizeof figures);
      if (figures.without > slower.without) slower = figures;
    }
    rows.Add(absl::StrFormat(R"("hidden": %d, "layers": %d, "entries": %.0f, "without_seconds": %.6f, "with_seconds": %.6f)",
                             hidden, layers, slower.entries, slower.without, slower.with),
             absl::StrFormat("hidden %3d, %d layers: %3.0f entries  without %.3f ms  with %.3f ms  %+.2f %%", hidden, layers,
                             slower.entries, 1e3 * slower.without, 1e3 * slower.with, 100 * (slower.with / slower.without - 1)));
  }
}

}  // namespace
}  // namespace legoai::integration

int main(int argc, char** argv) {
  return legoai::integration::AddRows(argv[0], argc > 1 && std::strcmp(argv[1], "--json") == 0, legoai::integration::RunAll);
}

// The three algorithms for a block's policy beside each other, on blocks of catalog models: the time each takes, and by how much
// the recomputation of greedy and knapsack exceeds that of the linear program. Asserts nothing about time.
//
// Usage: sac_bench [--json]
#include <ATen/Parallel.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "core/hardware/catalog.h"
#include "core/model/catalog.h"
#include "core/recipe/recipe.h"
#include "core/recipe/resolved_recipe.h"
#include "planner/autosac/module_budgets.h"
#include "simulator/capture/capture_stages.h"
#include "tests/bench/bench_main.h"

namespace legoai::integration {
namespace {

using planner::LocalSolver;

constexpr int kRepeats = 5, kBudgets = 19;

template <class T>
T Value(absl::StatusOr<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().ToString());
  return *std::move(result);
}

planner::StageModel StageOf(const std::string& model, int64_t batch, int64_t seq) {
  v1::Recipe recipe = parallel::DefaultRecipe();
  recipe.mutable_parallelism()->set_data_parallel_shard_degree(8);
  auto* training = recipe.mutable_training();
  training->set_local_batch_size(batch);
  training->set_global_batch_size(8 * batch);
  training->set_seq_len(seq);
  training->set_mixed_precision_param(v1::BFLOAT16);
  recipe.mutable_activation_checkpoint()->set_mode(v1::AC_FULL);
  const auto resolved = Value(parallel::ResolvedRecipe::Create(recipe, Value(model::ResolveModel(model)), 8));
  const auto stages = Value(sim::CaptureStages(resolved));
  const auto cluster = Value(sim::ParseCluster("h100-sxm-80:8x1"));
  return Value(planner::ModelOf(Value(planner::FactsOf(stages.at(0).Flat(), cluster))));
}

struct Solved {
  double recomputed = 0, seconds = 0;
};

Solved Solve(LocalSolver solver, const std::vector<planner::Group>& groups, int64_t budget) {
  std::vector<double> seconds;
  Solved solved;
  for (int i = 0; i < kRepeats; ++i) {
    const absl::Time start = absl::Now();
    solved.recomputed = Value(planner::SolveLocal(solver, groups, budget)).recomputed_seconds;
    seconds.push_back(absl::ToDoubleSeconds(absl::Now() - start));
  }
  solved.seconds = Median(seconds);
  return solved;
}

// By solver: what it takes, and how much worse it is, over all budgets.
struct Totals {
  std::vector<double> seconds, excess;
};

void AddRow(const std::string& name, const planner::StageModel& stage, Rows& rows, std::vector<Totals>* all) {
  const auto& groups = stage.groups.front();
  std::vector<Totals> totals(3);
  for (int i = 1; i <= kBudgets; ++i) {
    const auto budget =
        static_cast<int64_t>(static_cast<double>(stage.facts.blocks.front().TotalBytes()) * i / (kBudgets + 1));
    const Solved best = Solve(LocalSolver::kIlp, groups, budget);
    for (int s = 0; s < 3; ++s) {
      const Solved solved = Solve(static_cast<LocalSolver>(s), groups, budget);
      for (Totals* to : {&totals[s], &(*all)[s]}) {
        to->seconds.push_back(solved.seconds);
        to->excess.push_back(best.recomputed > 0 ? solved.recomputed / best.recomputed - 1 : 0);
      }
    }
  }
  std::string json = absl::StrFormat("\"model\": \"%s\"", name), text = absl::StrFormat("%-26s", name);
  for (int s = 0; s < 3; ++s) {
    const double median = 1e6 * Median(totals[s].seconds), median_excess = 100 * Quantile(totals[s].excess, 0.5);
    const double worst = 100 * *std::max_element(totals[s].excess.begin(), totals[s].excess.end());
    const std::string& solver = planner::LocalSolverNames()[s];
    json += absl::StrFormat(
        ", \"%s\": {\"microseconds\": %.2f, \"median_excess_percent\": %.3f, \"worst_excess_percent\": %.3f}", solver, median,
        median_excess, worst);
    text += absl::StrFormat("  %s %8.1f us, +%.2f %% (worst +%.2f %%)", solver, median, median_excess, worst);
  }
  rows.Add(json, text);
}

void Run(Rows& rows) {
  struct Job {
    const char* model;
    int64_t batch, seq;
  };
  std::vector<Totals> all(3);
  for (const Job& job : {Job{"llama3-1b", 6, 4096}, Job{"llama3-1b", 16, 1024}, Job{"llama3-8b", 1, 8192},
                         Job{"llama3-70b", 1, 8192}, Job{"gpt2-xl", 8, 1024}, Job{"qwen3-8b", 2, 4096}}) {
    AddRow(absl::StrFormat("%s, %d x %d", job.model, job.batch, job.seq), StageOf(job.model, job.batch, job.seq), rows, &all);
  }
  const double ilp = Median(all[2].seconds);
  for (int s = 0; s < 2; ++s) {
    const std::string& solver = planner::LocalSolverNames()[s];
    const double faster = ilp / Median(all[s].seconds), within = 100 * Quantile(all[s].excess, 0.9);
    const double worst = 100 * *std::max_element(all[s].excess.begin(), all[s].excess.end());
    rows.Summarize(
        absl::StrFormat("\"%s\": {\"times_faster\": %.1f, \"p90_excess_percent\": %.3f, \"worst_excess_percent\": %.3f}", solver,
                        faster, within, worst),
        absl::StrFormat("%s is %.0f times faster than the linear program; its recomputation is above by at most %.2f %% in 90 %% "
                        "of the cases, %.2f %% in the worst",
                        solver, faster, within, worst));
  }
}

}  // namespace
}  // namespace legoai::integration

int main(int argc, char** argv) {
  at::set_num_threads(1);
  return legoai::integration::AddRows(argv[0], argc > 1 && std::string(argv[1]) == "--json", legoai::integration::Run);
}

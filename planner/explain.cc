#include "planner/explain.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "planner/headroom.h"

namespace legoai::planner {
namespace {

std::string GiB(int64_t bytes) { return absl::StrFormat("%.2f GiB", bytes / 1073741824.0); }

std::string Share(double part, double whole) { return absl::StrFormat("%.0f %%", whole > 0 ? 100 * part / whole : 0); }

// Which part of the step makes `other` slower than `winner`, by the largest difference.
std::string LargestDifference(const v1::Estimate& winner, const v1::Estimate& other) {
  struct Part {
    const char* name;
    double seconds;
  };
  const auto &w = winner.breakdown(), &o = other.breakdown();
  Part parts[] = {{"compute", o.compute_seconds() - w.compute_seconds()},
                  {"exposed communication", o.exposed_communication_seconds() - w.exposed_communication_seconds()},
                  {"pipeline bubble", o.bubble_seconds() - w.bubble_seconds()},
                  {"launch overhead", o.launch_seconds() - w.launch_seconds()},
                  {"the optimizer", o.optimizer_seconds() - w.optimizer_seconds()}};
  const Part& largest =
      *std::max_element(std::begin(parts), std::end(parts), [](auto& a, auto& b) { return a.seconds < b.seconds; });
  if (largest.seconds <= 0) return "";
  return absl::StrFormat(", mostly %s (+%.4g s)", largest.name, largest.seconds);
}

std::string ExplainWinner(const v1::Estimate& winner) {
  const auto& parts = winner.breakdown();
  const double step = winner.step_time_seconds();
  const auto& stage = FullestStage(winner);
  return absl::StrCat("The fastest recipe that fits is ", Summarize(winner.recipe()), ": ", absl::StrFormat("%.4g", step),
                      " s a step, of which ", Share(parts.compute_seconds(), step), " compute, ",
                      Share(parts.exposed_communication_seconds(), step), " exposed communication, ",
                      Share(parts.bubble_seconds(), step), " pipeline bubble, ", Share(parts.optimizer_seconds(), step),
                      " optimizer. Its fullest device takes ", GiB(stage.peak_allocated_bytes()), " of ", GiB(UsableBytes(stage)),
                      " usable, at ", stage.peak_at(), ".");
}

}  // namespace

std::string Summarize(const v1::Recipe& recipe) {
  const auto& p = recipe.parallelism();
  std::vector<std::string> parts;
  auto degree = [&](const char* name, int64_t value) {
    if (value != 1) parts.push_back(absl::StrCat(name, " ", value));
  };
  degree("replicate", p.data_parallel_replicate_degree());
  degree("shard", p.data_parallel_shard_degree());
  degree("tp", p.tensor_parallel_degree());
  if (p.pipeline_parallel_degree() > 1) {
    parts.push_back(absl::StrCat(p.pipeline_parallel_schedule() == v1::GPIPE ? "GPipe" : "1F1B", " over ",
                                 p.pipeline_parallel_degree(), " stages with microbatches of ",
                                 p.pipeline_parallel_microbatch_size()));
  }
  parts.push_back(absl::StrCat("local batch ", recipe.training().local_batch_size()));
  parts.push_back(recipe.activation_checkpoint().mode() == v1::AC_FULL ? "full checkpointing" : "no checkpointing");
  parts.push_back(recipe.training().mixed_precision_param() == v1::BFLOAT16 ? "bfloat16" : "float32");
  return absl::StrJoin(parts, ", ");
}

std::string Explain(const std::vector<v1::Estimate>& ranked, const v1::PlanResult& result) {
  if (ranked.empty()) {
    if (result.rejected_size() == 0) return "No recipe of the space is legal for this model, batch and cluster.";
    const auto& closest = result.rejected(0);
    return absl::StrCat("Nothing fits. The closest is ", Summarize(closest.recipe()), ": ", closest.reason(),
                        ". More devices, a smaller batch or a shorter sequence would help.");
  }
  std::string text = ExplainWinner(ranked[0]);
  if (ranked.size() > 1) {
    const double more = ranked[1].step_time_seconds() / ranked[0].step_time_seconds() - 1;
    absl::StrAppend(&text, " The next one, ", Summarize(ranked[1].recipe()), ", is ", absl::StrFormat("%.1f %%", 100 * more),
                    " slower", LargestDifference(ranked[0], ranked[1]), ".");
  }
  const auto faster = std::find_if(result.rejected().begin(), result.rejected().end(), [](const auto& rejected) {
    return rejected.rule() == "out_of_memory" && !rejected.is_bound();
  });
  if (faster != result.rejected().end()) {
    absl::StrAppend(&text, " With more memory, ", Summarize(faster->recipe()), " would be next to try: ", faster->reason(), ".");
  }
  if (result.not_reached() > 0) {
    absl::StrAppend(&text, " The budget ended before ", result.not_reached(),
                    " further candidates, all of them slower by the roofline estimate; a larger --budget-seconds reaches them.");
  }
  return text;
}

}  // namespace legoai::planner

#include <algorithm>
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "core/checkpoint/files.h"
#include "planner/explain.h"
#include "planner/plan.h"
#include "planner/ranking.h"
#include "planner/schedule.h"
#include "proto/errors.h"
#include "proto/json/reflect.h"
#include "proto/status.h"
#include "server/cli/command.h"
#include "server/cli/interrupt.h"
#include "server/cli/job.h"
#include "server/cli/output.h"
#include "server/cli/prediction_text.h"
#include "server/cli/server_call.h"

namespace legoai::cli {
namespace {

constexpr char kConstraintRule[] = "constraint";

std::string ProgressText(const planner::PlanProgress& progress, double budget_seconds) {
  std::string text = absl::StrFormat("%.1f s: %s recipes, %s of %s simulations are done", progress.elapsed_seconds,
                                     WithCommas(progress.space), WithCommas(progress.captured), WithCommas(progress.to_capture));
  if (progress.best_step_seconds > 0) return absl::StrCat(text, ", best step ", SecondsText(progress.best_step_seconds));
  if (budget_seconds > 0 && progress.elapsed_seconds > budget_seconds) {
    absl::StrAppend(&text, "; the budget of ", SecondsText(budget_seconds), " is over, and goes on until one that fits is, for ",
                    absl::FormatDuration(planner::kFirstFitLimit), " at most");
  }
  return text;
}

absl::StatusOr<v1::PlanResult> PlanWithProcesses(const v1::PlanRequest& request) {
  ASSIGN_OR_RETURN(const auto pool, SimProcesses());
  InterruptGuard guard;
  ProgressLine line;
  auto result = planner::Plan(
      request, *pool, [&](const planner::PlanProgress& progress) { line.Show(ProgressText(progress, request.budget_seconds())); },
      [&] { return guard.interrupted(); });
  line.Clear();
  return result;
}

// The same on a server: its simulators, its limit of time, and never more simulations than a plan with a budget does.
absl::StatusOr<v1::PlanResult> PlanOnServer(const Arguments& arguments, v1::PlanRequest request) {
  constexpr double kLongestBudgetSeconds = 3600;
  if (request.budget_seconds() == 0) request.set_budget_seconds(kLongestBudgetSeconds);
  ASSIGN_OR_RETURN(const auto client, ConnectTo(arguments));
  InterruptGuard guard;
  ProgressLine line;
  auto show = [&](const v1::PlanningProgress& at) {
    line.Show(ProgressText({at.space(), at.to_capture(), at.captured(), at.best_step_seconds(), at.elapsed_seconds()},
                           request.budget_seconds()));
  };
  auto result = client->Plan(request, show, [&] { return guard.interrupted(); });
  line.Clear();
  return result;
}

// Nothing was simulated: that nothing fits is not known.
absl::Status AllFailed(const v1::PlanResult& result) {
  const auto first = std::find_if(result.rejected().begin(), result.rejected().end(),
                                  [](const auto& rejected) { return rejected.rule() == kFailedRule; });
  return absl::InternalError(absl::StrCat("all ", result.failed(), " simulations failed, the first of them: ",
                                          first == result.rejected().end() ? "" : first->reason()));
}

const char* MissingForTraining(const v1::PlanResult& result) {
  if (result.ranked(0).recipe().training().has_dataset_path()) return "";
  return "; to train with it, give it training.dataset_path, and model.tokenizer_path unless its tokens are bytes";
}

// A ranking by estimates alone names no recipe that is known to fit.
absl::Status NoRecipeToWrite(const std::string& path, const v1::PlanResult& result) {
  return FieldError("--out", path,
                    absl::StrFormat("is not written: in %.1f s no recipe was simulated that fits; give a larger --budget-seconds",
                                    result.seconds()),
                    absl::StatusCode::kDeadlineExceeded);
}

absl::Status WriteWinner(const std::string& path, const v1::PlanResult& result, const std::string& shown) {
  if (!planner::HasRecipe(result)) return NoRecipeToWrite(shown, result);
  const absl::Status status = checkpoint::WriteFile(path, result.ranked(0).recipe_toml());
  if (status.ok()) {
    std::fprintf(stderr, "wrote the recipe of rank 1 to %s%s\n", shown.c_str(), MissingForTraining(result));
  }
  return status;
}

// The rules leave nothing: the call asks for what cannot be, with or without constraints.
absl::Status NothingLegal(const v1::PlanRequest& request, const v1::PlanResult& result) {
  if (!result.pruned().contains(kConstraintRule)) return FieldError("--model", result.model(), result.explanation());
  return FieldError("--constraint", absl::StrJoin(request.constraints(), " "), result.explanation());
}

absl::StatusOr<int> Run(const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto request, ReadPlanRequest(arguments));
  ASSIGN_OR_RETURN(const auto out, OutputPath(arguments, "out"));
  ASSIGN_OR_RETURN(const auto result, arguments.Has("server") ? PlanOnServer(arguments, request) : PlanWithProcesses(request));
  if (result.failed() > 0 && result.captured() == 0) return AllFailed(result);
  const int64_t legal = result.captured() + result.bounded_out() + result.not_reached() + result.failed();
  if (legal == 0) return NothingLegal(request, result);
  const bool found = result.ranked_size() > 0;
  absl::Status written;
  if (found && !out.empty()) written = WriteWinner(out, result, arguments.Text("out"));
  Print(arguments.format() == Format::kTable ? PlanText(result, request.all_rejected())
                                             : TreeText(arguments.format(), ToTree(result)));
  if (!written.ok()) return written;
  if (found) return kDone;
  // The table has said it.
  if (arguments.format() != Format::kTable) std::fprintf(stderr, "lego plan: %s\n", result.explanation().c_str());
  return kNothingFits;
}

}  // namespace

Command PlanCommand() {
  CommandSpec spec;
  spec.name = "plan";
  spec.summary = "Ranks the recipes that train a model fastest on a cluster; no device is needed. Exit code 3: nothing fits.";
  spec.options = {
      {"model", "M", "config.json, its folder, or a name of `lego models`; the base recipe's [model] name if it is not given"},
      {"cluster", "C", "TYPE:DEVICES_PER_NODExNODES[@LINK] (`lego hardware`), or a Cluster as a text-format file", false, true},
      {"global-batch", "N", "sequences per optimizer step; the base recipe's training.global_batch_size if it is not given"},
      {"seq", "S", "tokens per sequence; the base recipe's training.seq_len if it is not given"},
      {"constraint", "KEY=VALUE", "only recipes with this: parallelism.tensor_parallel_degree=2", true},
      {"top", "K", absl::StrCat("how many to rank (", planner::kDefaultTop, ")")},
      {"budget-seconds", "T",
       absl::StrCat("ends simulating early, once a recipe fits (", absl::ToDoubleSeconds(planner::kDefaultBudget),
                    "); 0: simulates all that may fit, not the ", planner::kSimulations, " most promising only")},
      {"min-headroom", "M", "what a recipe must leave free of each device, beside its reserve: 4GiB, or 10% of its memory (0)"},
      {"objective", "O", "what to rank by: step_time, the fastest first, or memory, the smallest peak first (step_time)"},
      {"price", "P", "of a GPU for an hour, in any currency: what a billion tokens cost"},
      {"rejected", "closest|all", "what to list of the rejected (closest to fitting)"},
      {"recipe", "BASE.toml", "what every candidate inherits: data, optimizer, steps, checkpoints"},
      {"out", "RECIPE.toml", "writes the winner, ready for `lego train`"},
      {"server", "ADDRESS", "plans on this server instead of here: HOST:PORT"}};
  spec.recipe_keys = true;
  spec.details = "A key on the command line, as --training.local_batch_size=2, binds all candidates like a constraint.";
  spec.example = "lego plan --model llama3-8b --cluster h100-sxm-80:8x1 --global-batch 64 --seq 8192";
  return {spec, Run};
}

}  // namespace legoai::cli

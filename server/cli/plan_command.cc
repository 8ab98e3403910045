#include "server/cli/plan_command.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "planner/explain.h"
#include "planner/lego_sim_pool.h"
#include "planner/plan.h"
#include "planner/ranking.h"
#include "planner/schedule.h"
#include "proto/errors.h"
#include "proto/json/reflect.h"
#include "server/cli/interrupt.h"
#include "server/cli/job.h"
#include "server/cli/machine.h"
#include "server/cli/output.h"
#include "server/cli/plan_text.h"
#include "server/cli/progress.h"
#include "server/cli/read_bytes.h"
#include "server/cli/server_call.h"
#include "worker/checkpoint/files.h"
#include "worker/launch/processors.h"

namespace legoai::cli {
namespace {

constexpr char kConstraintRule[] = "constraint";

// Keys that the request has a place for; every other key on the command line binds all candidates.
bool IsOfRequest(const std::string& key) {
  static const std::set<std::string> keys = {"model.name", "training.global_batch_size", "training.seq_len"};
  return keys.count(key) > 0;
}

// --global-batch and --seq win over the base recipe; there must be one or the other.
absl::Status ReadBatch(const Arguments& arguments, const v1::Recipe& base, v1::PlanRequest* request) {
  const auto batch = arguments.Integer("global-batch", 1), seq = arguments.Integer("seq", 1);
  if (!batch.ok()) return batch.status();
  if (!seq.ok()) return seq.status();
  request->set_global_batch(batch->value_or(base.training().global_batch_size()));
  if (request->global_batch() < 1) {
    return FieldError("--global-batch", "",
                      "is needed: sequences per optimizer step (or training.global_batch_size in --recipe)");
  }
  const bool known = arguments.Has("recipe") || std::any_of(arguments.recipe_keys().begin(), arguments.recipe_keys().end(),
                                                            [](const auto& key) { return key.first == "training.seq_len"; });
  if (!*seq && !known) return FieldError("--seq", "", "is needed: tokens per sequence (or training.seq_len in --recipe)");
  request->set_seq_len(seq->value_or(base.training().seq_len()));
  return absl::OkStatus();
}

absl::Status ReadLimits(const Arguments& arguments, v1::PlanRequest* request) {
  const auto top = arguments.Integer("top", 1);
  if (!top.ok()) return top.status();
  const auto budget = arguments.Real("budget-seconds", 0);
  if (!budget.ok()) return budget.status();
  request->set_top(top->value_or(planner::kDefaultTop));
  request->set_budget_seconds(budget->value_or(absl::ToDoubleSeconds(planner::kDefaultBudget)));
  if (const std::string rejected = arguments.Text("rejected", "closest"); rejected != "all" && rejected != "closest") {
    return FieldError("--rejected", rejected, "must be closest or all");
  }
  request->set_all_rejected(arguments.Text("rejected") == "all");
  for (const std::string& constraint : arguments.All("constraint")) request->add_constraints(constraint);
  for (const auto& [key, value] : arguments.recipe_keys()) {
    if (!IsOfRequest(key)) request->add_constraints(absl::StrCat(key, "=", value));
  }
  return absl::OkStatus();
}

// "4GiB", or "10%" of a device's memory.
absl::Status ReadHeadroom(const Arguments& arguments, v1::PlanRequest* request) {
  if (!arguments.Has("min-headroom")) return absl::OkStatus();
  const std::string text = arguments.Text("min-headroom");
  const int64_t memory = request->cluster().device().memory_bytes();
  const auto bytes = ReadBytes(text, static_cast<double>(memory));
  if (!bytes || *bytes >= static_cast<double>(memory)) {
    return FieldError("--min-headroom", text,
                      absl::StrCat("give what is to be left free of each device's ", BytesText(static_cast<double>(memory)),
                                   ", as 4GiB, 512MiB or 10%"));
  }
  request->set_min_headroom_bytes(static_cast<int64_t>(*bytes));
  return absl::OkStatus();
}

absl::StatusOr<v1::Objective> ReadObjective(const Arguments& arguments) {
  const std::string objective = arguments.Text("objective", "step_time");
  if (objective == "step_time") return v1::STEP_TIME;
  if (objective == "memory") return v1::MEMORY;
  if (objective == "gpu_hours" || objective == "cost" || objective == "price") {
    return FieldError("--objective", objective,
                      "is step_time here: all recipes of a plan use the whole cluster, so the fastest takes the fewest GPU-hours "
                      "and costs least; --price says how much");
  }
  return FieldError("--objective", objective, "must be step_time or memory");
}

absl::StatusOr<v1::PlanRequest> ReadRequest(const Arguments& arguments) {
  v1::PlanRequest request;
  auto base = ReadRecipe(arguments.Text("recipe"), arguments);
  if (!base.ok()) return base.status();
  auto model = ReadModel(arguments, &*base);
  if (!model.ok()) return model.status();
  auto cluster = ResolveCluster(arguments.Text("cluster"));
  if (!cluster.ok()) return cluster.status();
  if (absl::Status status = ReadPrice(arguments, &*cluster); !status.ok()) return status;
  if (absl::Status status = ReadBatch(arguments, *base, &request); !status.ok()) return status;
  if (absl::Status status = ReadLimits(arguments, &request); !status.ok()) return status;
  *request.mutable_model() = *std::move(model);
  *request.mutable_cluster() = *std::move(cluster);
  *request.mutable_base() = *std::move(base);
  if (absl::Status status = ReadHeadroom(arguments, &request); !status.ok()) return status;
  const auto objective = ReadObjective(arguments);
  if (!objective.ok()) return objective.status();
  request.set_objective(*objective);
  return request;
}

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
  const auto program = FindSim();
  if (!program.ok()) return program.status();
  planner::LegoSimOptions options;
  options.program = *program;
  options.processes = std::max<int64_t>(1, launch::AllowedCpus().size());
  planner::LegoSimPool pool(options);
  InterruptGuard guard;
  ProgressLine line;
  auto result = planner::Plan(
      request, pool, [&](const planner::PlanProgress& progress) { line.Show(ProgressText(progress, request.budget_seconds())); },
      [&] { return guard.interrupted(); });
  line.Clear();
  return result;
}

// The same on a server: its simulators, its limit of time, and never more simulations than a plan with a budget does.
absl::StatusOr<v1::PlanResult> PlanOnServer(const Arguments& arguments, v1::PlanRequest request) {
  constexpr double kLongestBudgetSeconds = 3600;
  if (request.budget_seconds() == 0) request.set_budget_seconds(kLongestBudgetSeconds);
  const auto client = ConnectTo(arguments);
  if (!client.ok()) return client.status();
  InterruptGuard guard;
  ProgressLine line;
  auto show = [&](const v1::PlanningProgress& at) {
    line.Show(ProgressText({at.space(), at.to_capture(), at.captured(), at.best_step_seconds(), at.elapsed_seconds()},
                           request.budget_seconds()));
  };
  auto result = (*client)->Plan(request, show, [&] { return guard.interrupted(); });
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
  const auto request = ReadRequest(arguments);
  if (!request.ok()) return request.status();
  const auto out = OutputPath(arguments, "out");
  if (!out.ok()) return out.status();
  const auto result = arguments.Has("server") ? PlanOnServer(arguments, *request) : PlanWithProcesses(*request);
  if (!result.ok()) return result.status();
  if (result->failed() > 0 && result->captured() == 0) return AllFailed(*result);
  const int64_t legal = result->captured() + result->bounded_out() + result->not_reached() + result->failed();
  if (legal == 0) return NothingLegal(*request, *result);
  const bool found = result->ranked_size() > 0;
  absl::Status written;
  if (found && !out->empty()) written = WriteWinner(*out, *result, arguments.Text("out"));
  Print(arguments.format() == Format::kTable ? PlanText(*result, request->all_rejected())
                                             : TreeText(arguments.format(), ToTree(*result)));
  if (!written.ok()) return written;
  if (found) return kDone;
  // The table has said it.
  if (arguments.format() != Format::kTable) std::fprintf(stderr, "lego plan: %s\n", result->explanation().c_str());
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

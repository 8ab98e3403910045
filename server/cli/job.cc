#include "server/cli/job.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "core/model/catalog.h"
#include "core/process/host_resources.h"
#include "core/recipe/recipe.h"
#include "planner/estimates.h"
#include "planner/lego_sim_pool.h"
#include "planner/plan.h"
#include "planner/schedule.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "server/cli/arguments.h"
#include "server/cli/machine.h"
#include "server/cli/output.h"
#include "server/jobs/plan_base.h"

namespace legoai::cli {
namespace {

// Keys that the request has a place for, or that its base says with the text of a file; every other key on the command line binds
// all candidates.
bool IsOfRequest(const std::string& key) {
  static const std::set<std::string> keys = {"model.name", "training.global_batch_size", "training.seq_len",
                                             "parallelism.pipeline_parallel_schedule_csv"};
  return keys.count(key) > 0;
}

// --global-batch and --seq win over the base recipe; there must be one or the other.
absl::Status ReadBatch(const Arguments& arguments, const v1::Recipe& base, v1::PlanRequest* request) {
  ASSIGN_OR_RETURN(const auto batch, arguments.Integer("global-batch", 1));
  ASSIGN_OR_RETURN(const auto seq, arguments.Integer("seq", 1));
  request->set_global_batch(batch.value_or(base.training().global_batch_size()));
  if (request->global_batch() < 1) {
    return FieldError("--global-batch", "",
                      "is needed: sequences per optimizer step (or training.global_batch_size in --recipe)");
  }
  const bool known = arguments.Has("recipe") || std::any_of(arguments.recipe_keys().begin(), arguments.recipe_keys().end(),
                                                            [](const auto& key) { return key.first == "training.seq_len"; });
  if (!seq && !known) return FieldError("--seq", "", "is needed: tokens per sequence (or training.seq_len in --recipe)");
  request->set_seq_len(seq.value_or(base.training().seq_len()));
  return absl::OkStatus();
}

absl::Status ReadLimits(const Arguments& arguments, v1::PlanRequest* request) {
  ASSIGN_OR_RETURN(const auto top, arguments.Integer("top", 1));
  ASSIGN_OR_RETURN(const auto budget, arguments.Real("budget-seconds", 0));
  request->set_top(top.value_or(planner::kDefaultTop));
  request->set_budget_seconds(budget.value_or(absl::ToDoubleSeconds(planner::kDefaultBudget)));
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

}  // namespace

absl::StatusOr<v1::Recipe> ReadRecipe(const std::string& path, const Arguments& arguments) {
  return path.empty() ? parallel::ParseRecipe("", arguments.recipe_keys()) : parallel::LoadRecipe(path, arguments.recipe_keys());
}

absl::StatusOr<v1::Model> ReadModel(const Arguments& arguments, v1::Recipe* recipe) {
  if (arguments.Has("model")) recipe->mutable_model()->set_name(arguments.Text("model"));
  if (recipe->model().name().empty()) {
    return FieldError("--model", "",
                      "is needed, as the recipe's [model] has no name: a config.json, its folder, or a name of `lego models`");
  }
  return model::ResolveModel(recipe->model().name());
}

absl::StatusOr<v1::SimRequest> ReadSimRequest(const std::string& path, const Arguments& arguments) {
  ASSIGN_OR_RETURN(auto recipe, ReadRecipe(path, arguments));
  ASSIGN_OR_RETURN(auto model, ReadModel(arguments, &recipe));
  ASSIGN_OR_RETURN(auto cluster, ResolveCluster(arguments.Text("cluster")));
  RETURN_IF_ERROR(ReadPrice(arguments, &cluster));
  v1::SimRequest request;
  *request.mutable_model() = std::move(model);
  *request.mutable_cluster() = std::move(cluster);
  *request.mutable_recipe() = std::move(recipe);
  request.set_cost_mode(v1::COST_ROOFLINE);
  return request;
}

absl::Status ReadPrice(const Arguments& arguments, v1::Cluster* cluster) {
  ASSIGN_OR_RETURN(const auto price, arguments.Real("price", 0));
  if (price) cluster->set_price_per_gpu_hour(*price);
  return absl::OkStatus();
}

std::string WarmUpNote(const v1::Recipe& recipe) {
  const int64_t warmup = recipe.lr_scheduler().warmup_steps(), steps = recipe.training().steps();
  if (warmup < steps) return "";
  return absl::StrCat("note: the whole run is warm-up of the learning rate: lr_scheduler.warmup_steps = ", warmup,
                      ", training.steps = ", steps);
}

std::string ContextNote(const v1::Recipe& recipe, const v1::Model& model) {
  const int64_t tokens = recipe.training().seq_len(), context = model.max_position_embeddings();
  if (model.architecture() == v1::GPT2 || context <= 0 || tokens <= context) return "";
  return absl::StrCat("note: training.seq_len = ", tokens,
                      " is longer than the model's context, max_position_embeddings = ", context,
                      "; it can be trained so, but what uses the model later may not go beyond its context");
}

absl::StatusOr<std::string> OutputPath(const Arguments& arguments, const std::string& option) {
  const std::string path = arguments.Text(option);
  if (path.empty()) return path;
  std::error_code error;
  const auto absolute = std::filesystem::absolute(path, error);
  if (error) return FieldError("--" + option, path, absl::StrCat("cannot be placed: ", error.message()));
  RETURN_IF_ERROR(CheckOutput("--" + option, absolute.string()));
  return absolute.string();
}

absl::Status CheckOutput(const std::string& option, const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status there = fs::status(path, error);
  if (there.type() == fs::file_type::none) return FieldError(option, path, absl::StrCat("cannot be written: ", error.message()));
  if (fs::is_directory(there)) return FieldError(option, path, "is a folder: name a file in it");
  if (fs::exists(there) && !fs::is_regular_file(there))
    return FieldError(option, path, "is no regular file: name one, or a new one");
  const std::string folder = fs::path(path).parent_path().string();
  if (!fs::is_directory(folder, error)) return FieldError(option, path, "its folder does not exist", absl::StatusCode::kNotFound);
  if (access(fs::exists(there) ? path.c_str() : folder.c_str(), W_OK) == 0) return absl::OkStatus();
  return FieldError(option, path, absl::StrCat("cannot be written: ", std::strerror(errno)));
}

absl::StatusOr<v1::Estimate> EstimateOne(const v1::SimRequest& request, const std::function<bool()>& interrupted,
                                         const std::function<void(const v1::SimProgress&)>& progress,
                                         const std::vector<std::string>& arguments) {
  ASSIGN_OR_RETURN(const auto program, FindSim());
  planner::LegoSimOptions options;
  options.program = program;
  options.arguments = arguments;
  options.processes = 1;
  // Without fast kernels one operator of a large step takes minutes, in which there is no progress to tell.
  if (request.cost_mode() == v1::COST_BENCHMARK) options.time_limit = absl::Minutes(30);
  planner::LegoSimPool pool(options);
  return planner::EstimateOne(request, pool, interrupted, progress);
}

absl::StatusOr<std::unique_ptr<planner::Estimator>> SimProcesses() {
  ASSIGN_OR_RETURN(const auto program, FindSim());
  planner::LegoSimOptions options;
  options.program = program;
  options.processes = std::max<int64_t>(1, launch::AllowedCpus().size());
  return std::make_unique<planner::LegoSimPool>(options);
}

absl::StatusOr<v1::PlanRequest> ReadPlanRequest(const Arguments& arguments) {
  v1::PlanRequest request;
  ASSIGN_OR_RETURN(auto base, server::LoadBase(arguments.Text("recipe"), arguments.recipe_keys()));
  ASSIGN_OR_RETURN(auto model, ReadModel(arguments, &base));
  ASSIGN_OR_RETURN(auto cluster, ResolveCluster(arguments.Text("cluster")));
  RETURN_IF_ERROR(ReadPrice(arguments, &cluster));
  RETURN_IF_ERROR(ReadBatch(arguments, base, &request));
  RETURN_IF_ERROR(ReadLimits(arguments, &request));
  *request.mutable_model() = std::move(model);
  *request.mutable_cluster() = std::move(cluster);
  *request.mutable_base() = std::move(base);
  RETURN_IF_ERROR(ReadHeadroom(arguments, &request));
  ASSIGN_OR_RETURN(const auto objective, ReadObjective(arguments));
  request.set_objective(objective);
  return request;
}

}  // namespace legoai::cli

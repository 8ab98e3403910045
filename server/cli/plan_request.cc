#include "server/cli/plan_request.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "planner/plan.h"
#include "planner/schedule.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "server/cli/arguments.h"
#include "server/cli/job.h"
#include "server/cli/machine.h"
#include "server/cli/output.h"

namespace legoai::cli {
namespace {

// Keys that the request has a place for; every other key on the command line binds all candidates.
bool IsOfRequest(const std::string& key) {
  static const std::set<std::string> keys = {"model.name", "training.global_batch_size", "training.seq_len"};
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

absl::StatusOr<v1::PlanRequest> ReadPlanRequest(const Arguments& arguments) {
  v1::PlanRequest request;
  ASSIGN_OR_RETURN(auto base, ReadRecipe(arguments.Text("recipe"), arguments));
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

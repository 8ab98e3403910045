// Shared by commands: recipe, model and cluster from the command line, and running simulations.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/estimates.h"
#include "proto/legoai/v1/cluster.pb.h"
#include "proto/legoai/v1/estimate.pb.h"
#include "proto/legoai/v1/model.pb.h"
#include "proto/legoai/v1/plan.pb.h"
#include "proto/legoai/v1/recipe.pb.h"
#include "proto/legoai/v1/sim.pb.h"
#include "server/cli/arguments.h"

namespace legoai::cli {

// The recipe of the file `path` (empty: only defaults), with the keys of the command line, checked.
absl::StatusOr<v1::Recipe> ReadRecipe(const std::string& path, const Arguments& arguments);

// The model of --model, which is then also set in the recipe; otherwise the recipe's. Errors: neither names one.
absl::StatusOr<v1::Model> ReadModel(const Arguments& arguments, v1::Recipe* recipe);

// Sets the cluster's price from --price, per GPU and hour. Errors: not a number, or below 0.
absl::Status ReadPrice(const Arguments& arguments, v1::Cluster* cluster);

// A request to simulate the recipe of the file `path` with the keys of the command line, on --cluster, at --price.
absl::StatusOr<v1::SimRequest> ReadSimRequest(const std::string& path, const Arguments& arguments);

// A note if the whole run is warm-up; otherwise empty.
std::string WarmUpNote(const v1::Recipe& recipe);

// A note if sequences are longer than the model's context; otherwise empty. Models with learned positions are refused instead
// (core/recipe/legality.h).
std::string ContextNote(const v1::Recipe& recipe, const v1::Model& model);

// The absolute path of an output file named by the option; empty if it is not given. Errors: those of CheckOutput.
absl::StatusOr<std::string> OutputPath(const Arguments& arguments, const std::string& option);

// Checks before the work that a file with this absolute path can be created or replaced: it is a regular file or does not exist,
// and its folder exists. Errors name `option`.
absl::Status CheckOutput(const std::string& option, const std::string& path);

// Runs one estimate in its own lego-sim process. `interrupted` is polled; `progress` is called during a benchmark, and, without a
// total, with what a trace file omits. `arguments`: of lego-sim.
absl::StatusOr<v1::Estimate> EstimateOne(const v1::SimRequest& request, const std::function<bool()>& interrupted = {},
                                         const std::function<void(const v1::SimProgress&)>& progress = {},
                                         const std::vector<std::string>& arguments = {});

// lego-sim processes, one per processor that this process may use. Errors: the program is missing.
absl::StatusOr<std::unique_ptr<planner::Estimator>> SimProcesses();

// From --model, --cluster, --global-batch, --seq, --constraint, --top, --budget-seconds, --min-headroom, --objective, --price,
// --rejected, --recipe and keys of the recipe; a command may have only some of these. Errors: FieldErrors of the option.
absl::StatusOr<v1::PlanRequest> ReadPlanRequest(const Arguments& arguments);

}  // namespace legoai::cli

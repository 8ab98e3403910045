// What the commands share in reading a job: recipe, model and cluster from the command line, and one simulation of it.
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

// The recipe of the file `path` (the defaults alone if it is empty), with the keys of the command line, checked.
absl::StatusOr<v1::Recipe> ReadRecipe(const std::string& path, const Arguments& arguments);

// --model if it is given, which the recipe then names too; otherwise the recipe's. Errors: neither names one.
absl::StatusOr<v1::Model> ReadModel(const Arguments& arguments, v1::Recipe* recipe);

// --price, of a GPU for an hour: what the cluster costs. Errors: not a number, or below 0.
absl::Status ReadPrice(const Arguments& arguments, v1::Cluster* cluster);

// A request to simulate the recipe of the file `path` with the keys of the command line, on --cluster, at --price.
absl::StatusOr<v1::SimRequest> ReadSimRequest(const std::string& path, const Arguments& arguments);

// Where the whole run is warm-up, a line that says so; otherwise empty.
std::string WarmUpNote(const v1::Recipe& recipe);

// Where sequences are longer than the context that the model was made for, a line that says so; otherwise empty. A model with a
// vector for each position is refused instead (core/recipe/legality.h).
std::string ContextNote(const v1::Recipe& recipe, const v1::Model& model);

// The absolute path that the option names, of a file to be written; empty if it is not given. Errors: as of CheckOutput.
absl::StatusOr<std::string> OutputPath(const Arguments& arguments, const std::string& option);

// Whether a file of this absolute path can be made or replaced, which must be known before the work: it is a regular file or not
// there, in a folder that is. `option` is what the error names.
absl::Status CheckOutput(const std::string& option, const std::string& path);

// One estimate in a lego-sim process of its own. `interrupted` is polled; `progress` is called in a benchmark,
// and, without a total, with what a trace file leaves out. `arguments`: of lego-sim.
absl::StatusOr<v1::Estimate> EstimateOne(const v1::SimRequest& request, const std::function<bool()>& interrupted = {},
                                         const std::function<void(const v1::SimProgress&)>& progress = {},
                                         const std::vector<std::string>& arguments = {});

// lego-sim processes, as many as there are processors for this one. Errors: there is no such program.
absl::StatusOr<std::unique_ptr<planner::Estimator>> SimProcesses();

// From --model, --cluster, --global-batch, --seq, --constraint, --top, --budget-seconds, --min-headroom, --objective, --price,
// --rejected, --recipe and keys of the recipe, of which a command may have some. Errors: FieldErrors of the option.
absl::StatusOr<v1::PlanRequest> ReadPlanRequest(const Arguments& arguments);

}  // namespace legoai::cli

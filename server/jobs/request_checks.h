// Checks shared by requests: the model, the recipe, constraints. gRPC-free; they read no file of the server. Thread-safety: pure
// functions.
//
// Errors: FieldErrors whose field begins with `path`, the path in the request: "spec.recipe" gives
// "spec.recipe.training.seq_len".
#pragma once

#include <google/protobuf/message.h>

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "proto/legoai/v1/job.pb.h"
#include "proto/legoai/v1/model.pb.h"
#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::server {

// The largest accepted message, in bytes.
inline constexpr int64_t kMostRequestBytes = int64_t{4} << 20;
inline constexpr int64_t kMostConfigBytes = int64_t{1} << 20;
inline constexpr double kMostBudgetSeconds = 3600;
inline constexpr int64_t kMostTop = 1000;
inline constexpr int64_t kMostHeadroomBytes = int64_t{1} << 50;

// Refuses fields and enum values that this build does not know, because what they ask for would not be done, and control
// characters in texts, except for a model's config_json, which has line breaks.
absl::Status CheckKnown(const google::protobuf::Message& message, std::string_view path);

// A model is defined by its config_json, or else by the catalog's entry for its name. Missing numbers are filled in; numbers that
// differ are refused.
absl::Status CheckModel(std::string_view path, v1::Model* model);

// parallel::CheckRecipe, and defaults for unset fields.
absl::Status CheckRecipe(std::string_view path, v1::Recipe* recipe);
// The same for the base of a plan (plan_base.h).
absl::Status CheckBase(std::string_view path, v1::Recipe* base);

// Checks that its paths are absolute, because workers have a different working folder than the user. `recipe` has its defaults.
absl::Status CheckPaths(std::string_view path, const v1::Recipe& recipe);

// Each must be KEY=VALUE with a key of the recipe and a legal value; none may contradict another one or `recipe`.
absl::Status CheckConstraints(std::string_view path, const std::vector<std::string>& constraints, const v1::Recipe& recipe);

// Text for people must have at most `most` bytes and be printable (proto/errors.h).
absl::Status CheckText(std::string_view path, std::string_view text, size_t most);

// `status` with its field prefixed with "path.".
absl::Status Under(std::string_view path, const absl::Status& status);

// Whether any recipe could train a job on any workers: what no plan can fix is refused at submission, by the rules of
// core/recipe/legality.h. gRPC-free. Thread-safety: pure functions.

// `spec` has passed all other checks and has its defaults. Constraints are binding; choices left to the planner are assumed such
// that they break the fewest rules, so that nothing is refused that some cluster could train. Errors: FieldErrors of
// spec.planning.constraints[i] if a constraint is at fault, of spec.recipe... if the job itself is.
absl::Status CheckLegal(const v1::JobSpec& spec);

}  // namespace legoai::server

// Checks of what requests have in common: the model, the recipe, constraints. gRPC-free; no file of the server is read.
// Thread-safety: pure functions.
//
// Errors: FieldErrors whose field begins with `path`, the place in the request: "spec.recipe" gives
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

// The largest message that is taken, in bytes.
inline constexpr int64_t kMostRequestBytes = int64_t{4} << 20;
inline constexpr int64_t kMostConfigBytes = int64_t{1} << 20;
inline constexpr double kMostBudgetSeconds = 3600;
inline constexpr int64_t kMostTop = 1000;
inline constexpr int64_t kMostHeadroomBytes = int64_t{1} << 50;

// Fields and enum values that this build does not know are refused: they ask for something that would not be done. So are control
// characters in a text, but for a model's config_json, which has lines.
absl::Status CheckKnown(const google::protobuf::Message& message, std::string_view path);

// A model with config_json is what its config.json says, another one what the catalog says of its name. With nothing but these
// two given, the numbers are filled in; numbers that differ are refused.
absl::Status CheckModel(std::string_view path, v1::Model* model);

// parallel::CheckRecipe, and defaults for what is unset.
absl::Status CheckRecipe(std::string_view path, v1::Recipe* recipe);

// Paths in it are absolute: workers have another working folder than who submits. `recipe` has its defaults.
absl::Status CheckPaths(std::string_view path, const v1::Recipe& recipe);

// Each is KEY=VALUE with a key of the recipe and a legal value; none contradicts another, or what `recipe` fixes.
absl::Status CheckConstraints(std::string_view path, const std::vector<std::string>& constraints, const v1::Recipe& recipe);

// Text for people: at most `most` bytes, and printable (proto/errors.h).
absl::Status CheckText(std::string_view path, std::string_view text, size_t most);

// `status` with its field prefixed with "path.".
absl::Status Under(std::string_view path, const absl::Status& status);

// Whether any recipe at all could train a job, on whatever workers: what no plan can fix is refused at submission, by the
// rules of core/recipe/legality.h. gRPC-free. Thread-safety: pure functions.

// `spec` has passed all other checks and has its defaults. Constraints bind; whatever the planner is free to choose is taken as
// what breaks the fewest rules, so that nothing is refused that some cluster could train.
// Errors: FieldErrors of spec.planning.constraints[i] where a constraint is at fault, of spec.recipe... where the job itself is.
absl::Status CheckLegal(const v1::JobSpec& spec);

}  // namespace legoai::server

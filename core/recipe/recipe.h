// Recipes: reading, defaults and the checks that need neither a model nor a world (those are legality.h's). The keys are
// those of proto/legoai/v1/recipe.proto. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::parallel {

// Keys given on the command line, which win over the file: {"training.local_batch_size", "2"}.
using Overrides = std::vector<std::pair<std::string, std::string>>;

// A recipe that says nothing but the defaults of every key that has one.
const v1::Recipe& DefaultRecipe();

// Sets what is unset and has a default. Degrees and batches of -1 stay -1: ResolvedRecipe derives them.
void FillDefaults(v1::Recipe* recipe);

// FieldErrors of the keys that are out of their range or not supported. `recipe` has its defaults.
std::vector<absl::Status> RecipeFaults(const v1::Recipe& recipe);
// The first of them. Unset keys count as their defaults.
absl::Status CheckRecipe(v1::Recipe recipe);

// How many of the blocks [first, last), counted from 0 over the whole model, are computed again in backward, in whole or but for
// what keep_policy.h says. `section` is checked and has its defaults.
int64_t RecomputedBlocks(const v1::ActivationCheckpoint& section, int64_t first, int64_t last);

// Reads a file with a recipe's sections into `message`, a Recipe or what has more sections, and sets the keys of the command
// line. Gives all that cannot be read (proto/toml/toml.h), of TorchTitan's keys with what becomes of them here.
std::vector<absl::Status> ReadRecipeToml(const std::string& text, const Overrides& overrides, google::protobuf::Message* message);

// Where pipeline_parallel_schedule_csv names a file, it gets the file's text, which goes wherever the recipe goes. Errors: those
// of ReadFileOf.
absl::Status ReadListedSchedule(v1::Recipe* recipe);

// TOML to a recipe with defaults, checked, with the text of the schedule that it names. Errors: FieldErrors of all keys at fault
// (proto/errors.h); of LoadRecipe also for a file that cannot be read (NotFound).
absl::StatusOr<v1::Recipe> ParseRecipe(const std::string& text, const Overrides& overrides = {});
absl::StatusOr<v1::Recipe> LoadRecipe(const std::string& path, const Overrides& overrides = {});

// The fields that are set, as TOML; ParseRecipe reads it back.
std::string RecipeToToml(const v1::Recipe& recipe);

}  // namespace legoai::parallel

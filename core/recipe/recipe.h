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

// Keys given on the command line, which override the file: {"training.local_batch_size", "2"}.
using Overrides = std::vector<std::pair<std::string, std::string>>;

// A recipe with the default of every key that has one.
const v1::Recipe& DefaultRecipe();

// Sets what is unset and has a default. Degrees and batches of -1 stay -1: ResolvedRecipe derives them.
void FillDefaults(v1::Recipe* recipe);

// The same for the base of a plan, but for the keys that a plan decides last and only where nobody named them: compile.enable,
// compile.fsdp_bucketing, parallelism.enable_async_tensor_parallel, and training.dtype with optimizer.master_weights where
// neither is named. Unset, they are left to the plan.
void FillBaseDefaults(v1::Recipe* base);

// FieldErrors of the keys that are out of range or not supported. `recipe` has its defaults.
std::vector<absl::Status> RecipeFaults(const v1::Recipe& recipe);
// The first of them. Unset keys count as their defaults.
absl::Status CheckRecipe(v1::Recipe recipe);

// Whether tensor parallelism splits the tokens between the regions that it cuts by heads and columns. Unset: yes.
inline bool SplitsTokens(const v1::Parallelism& p) { return !p.has_sequence_parallel() || p.sequence_parallel(); }

// How many of the blocks [first, last), counted from 0 over the whole model, are recomputed in backward, fully or except for what
// keep_policy.h keeps. `section` is checked and has its defaults.
int64_t RecomputedBlocks(const v1::ActivationCheckpoint& section, int64_t first, int64_t last);

// Reads a file with a recipe's sections into `message`, a Recipe or a message with more sections, and sets the keys of the
// command line. Returns all errors (proto/toml/toml.h), for TorchTitan's keys with their equivalent here.
std::vector<absl::Status> ReadRecipeToml(const std::string& text, const Overrides& overrides, google::protobuf::Message* message);

// If pipeline_parallel_schedule_csv names a file, replaces it by the file's text, so that the recipe is self-contained. Errors:
// those of ReadFileOf.
absl::Status ReadListedSchedule(v1::Recipe* recipe);

// TOML to a checked recipe with defaults and the text of the schedule that it names. Errors: FieldErrors of all wrong keys
// (proto/errors.h); LoadRecipe also NotFound for a file that cannot be read.
absl::StatusOr<v1::Recipe> ParseRecipe(const std::string& text, const Overrides& overrides = {});
absl::StatusOr<v1::Recipe> LoadRecipe(const std::string& path, const Overrides& overrides = {});
// The same for the base of a plan (FillBaseDefaults); an empty path is a base that names nothing.
absl::StatusOr<v1::Recipe> LoadBase(const std::string& path, const Overrides& overrides = {});

// The fields that are set, as TOML; ParseRecipe reads it back.
std::string RecipeToToml(const v1::Recipe& recipe);

}  // namespace legoai::parallel

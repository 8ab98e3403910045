// The base recipe of a plan: all defaults, but for the keys that a plan decides last and only where nobody named them
// (planner/last_choices.h): compile.enable, compile.fuse and compile.fall_back_to_eager, compile.fsdp_bucketing,
// parallelism.enable_async_tensor_parallel, and training.dtype with optimizer.master_weights where neither is named. Unset, they
// are left to the plan. Thread-safety: pure functions, but for the file.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "core/recipe/recipe.h"
#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::server {

// Sets what is unset and has a default, but for these keys.
void FillBaseDefaults(v1::Recipe* base);

// As parallel::LoadRecipe; an empty path is a file that names nothing. Errors: those of LoadRecipe.
absl::StatusOr<v1::Recipe> LoadBase(const std::string& path, const parallel::Overrides& overrides);

}  // namespace legoai::server

// Finds the programs that belong together: installed side by side, or in the build's output tree. Torch-free.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace legoai::launch {

// Path of the program `name`, which the build leaves in `folder` (from the root of its output tree): what the environment
// variable says, if it is set; else beside this program, or in the output tree. Errors: NotFound, saying how to build it.
absl::StatusOr<std::string> FindProgram(const std::string& name, const std::string& folder, const char* variable);

// legoai-trainer; LEGOAI_TRAINER names another one.
absl::StatusOr<std::string> FindTrainer();

}  // namespace legoai::launch

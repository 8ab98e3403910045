// `lego completion SHELL`: completion of commands, options and their values, recipe keys and jobs, written from the commands
// themselves, the catalogs and the recipe's schema; jobs are asked of the server when they are needed.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/cli/command.h"

namespace legoai::cli {

// `shell`: bash, zsh or fish. Errors: FieldError for another one.
absl::StatusOr<std::string> CompletionScript(const std::string& shell, const std::vector<CommandSpec>& commands);

// `commands`: all others.
Command CompletionCommand(std::vector<CommandSpec> commands);

}  // namespace legoai::cli

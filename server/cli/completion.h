// `lego completion SHELL`: completion of commands and options, written from the commands themselves.
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

// One command of `lego`, and what its exit codes mean (cli.md).
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "server/cli/arguments.h"

namespace legoai::cli {

inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kWrongCall = 2;
inline constexpr int kNothingFits = 3;
inline constexpr int kInterrupted = 130;

struct Command {
  CommandSpec spec;
  // Gives the exit code. An error becomes one on standard error: kWrongCall if it carries a FieldViolation and is an
  // InvalidArgument or NotFound (something the user wrote, or named), kInterrupted if Cancelled, kFailed otherwise.
  std::function<absl::StatusOr<int>(const Arguments&)> run;
};

}  // namespace legoai::cli

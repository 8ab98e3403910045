// A job to its end: `lego watch`, `lego wait`, and `lego submit` with --watch or --wait.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "server/cli/client.h"
#include "server/cli/arguments.h"

namespace legoai::cli {

// Shows the job on standard error until its end: changes of state, and a line of progress. As JSON or YAML every message of the
// watch goes to standard output, one a line or document. The exit code is that of the job; kInterrupted where the user has left,
// which the job does not notice.
absl::StatusOr<int> WatchToEnd(Client& client, const std::string& name, Format format);

// Waits for the end without a word, then prints how it ended, or the job as JSON or YAML. The same exit codes.
absl::StatusOr<int> WaitForEnd(Client& client, const std::string& name, Format format);

}  // namespace legoai::cli

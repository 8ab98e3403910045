#include "core/process/run_lock.h"

#include <signal.h>

#include <cerrno>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "core/process/run_directory.h"
#include "proto/read_file.h"

namespace legoai::launch {

bool IsTraining(const std::string& run_directory) {
  const auto run = ReadRun(run_directory);
  if (!run.ok() || !run->has_value() || (*run)->attempts().empty()) return false;
  if ((*run)->attempts().rbegin()->outcome() != "running") return false;
  const absl::StatusOr<std::string> holder = ReadFile(run_directory + "/.lock", /*most_bytes=*/64);
  pid_t pid = 0;
  if (!holder.ok() || !absl::SimpleAtoi(absl::StripAsciiWhitespace(*holder), &pid) || pid <= 0) return false;
  return kill(pid, 0) == 0 || errno == EPERM;
}

}  // namespace legoai::launch

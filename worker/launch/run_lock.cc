#include "worker/launch/run_lock.h"

#include <signal.h>

#include <cerrno>
#include <fstream>

#include "worker/launch/run_directory.h"

namespace legoai::launch {

bool IsTraining(const std::string& run_directory) {
  const auto run = ReadRun(run_directory);
  if (!run.ok() || !run->has_value() || (*run)->attempts().empty()) return false;
  if ((*run)->attempts().rbegin()->outcome() != "running") return false;
  std::ifstream file(run_directory + "/.lock");
  pid_t pid = 0;
  if (!(file >> pid) || pid <= 0) return false;
  return kill(pid, 0) == 0 || errno == EPERM;
}

}  // namespace legoai::launch

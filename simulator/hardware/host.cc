#include "simulator/hardware/host.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "worker/launch/processors.h"

namespace legoai::sim {
namespace {

// The number in a file of /proc or /sys; -1 where there is none ("max", or no such file).
int64_t ReadNumber(const std::string& path) {
  std::ifstream file(path);
  int64_t number = -1;
  return file >> number ? number : -1;
}

}  // namespace

int64_t HostMemoryBytes() {
  int64_t bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    int64_t limit = ReadNumber(path);
    if (limit > 0) bytes = std::min(bytes, limit);
  }
  return bytes;
}

int64_t HostPhysicalCores() { return launch::AllowedCores(); }

}  // namespace legoai::sim

#include "simulator/hardware/host.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <utility>

namespace legoai::sim {
namespace {

// The number in a file of /proc or /sys; -1 where there is none ("max", or no such file).
int64_t ReadNumber(const std::string& path) {
  std::ifstream file(path);
  int64_t number = -1;
  return file >> number ? number : -1;
}

std::string Topology(int cpu, const char* name) {
  return "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/" + name;
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

int64_t HostPhysicalCores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
  std::set<std::pair<int64_t, int64_t>> cores;
  int64_t without_topology = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    int64_t core = ReadNumber(Topology(cpu, "core_id"));
    if (core < 0) {
      ++without_topology;
    } else {
      cores.emplace(ReadNumber(Topology(cpu, "physical_package_id")), core);
    }
  }
  return std::max<int64_t>(1, static_cast<int64_t>(cores.size()) + without_topology);
}

}  // namespace legoai::sim

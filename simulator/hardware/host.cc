#include "simulator/hardware/host.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
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

// Of the group at `path` below `base` and of all above it.
int64_t LimitOfGroup(const std::string& base, std::string path, const char* file) {
  int64_t smallest = INT64_MAX;
  for (;;) {
    const int64_t limit = ReadNumber(base + path + "/" + file);
    if (limit > 0) smallest = std::min(smallest, limit);
    if (path.empty()) return smallest;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

}  // namespace

// Lines are "4:memory:/path" (version 1) and "0::/path" (version 2).
int64_t MemoryLimitBytes(const std::string& text, const std::string& root) {
  int64_t smallest = INT64_MAX;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",", path = line.substr(second + 1);
    if (controllers == ",,") smallest = std::min(smallest, LimitOfGroup(root, path, "memory.max"));
    if (controllers.find(",memory,") != std::string::npos) {
      smallest = std::min(smallest, LimitOfGroup(root + "/memory", path, "memory.limit_in_bytes"));
    }
  }
  return smallest;
}

int64_t HostMemoryBytes() {
  const int64_t bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  std::stringstream groups;
  groups << std::ifstream("/proc/self/cgroup").rdbuf();
  return std::min(bytes, MemoryLimitBytes(groups.str(), "/sys/fs/cgroup"));
}

int64_t HostPhysicalCores() { return launch::AllowedCores(); }

std::string HostProcessor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

}  // namespace legoai::sim

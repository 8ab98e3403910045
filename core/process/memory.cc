#include "core/process/memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace legoai::launch {
namespace {

// The number in a file of /proc or /sys; -1 where there is none ("max", or no such file).
int64_t ReadNumber(const std::string& path) {
  std::ifstream file(path);
  int64_t number = -1;
  return file >> number ? number : -1;
}

std::string ReadText(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// The number behind a word at the beginning of a line, as in "MemTotal:  16314104 kB"; -1: there is none.
int64_t NumberOf(const std::string& text, const std::string& word) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first;
    int64_t number = 0;
    if (words >> first >> number && first == word) return number;
  }
  return -1;
}

// The group with the smallest limit.
struct MemoryGroup {
  int64_t limit = INT64_MAX;
  std::string folder;
  bool first_version = false;
};

// Of the group at `path` below `base` and of all above it.
void TakeSmallest(const std::string& base, std::string path, bool first_version, MemoryGroup* smallest) {
  for (;;) {
    const int64_t limit = ReadNumber(base + path + (first_version ? "/memory.limit_in_bytes" : "/memory.max"));
    if (limit > 0 && limit < smallest->limit) *smallest = {limit, base + path, first_version};
    if (path.empty()) return;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

// Lines are "4:memory:/path" (version 1) and "0::/path" (version 2).
MemoryGroup SmallestGroup(const std::string& text, const std::string& root) {
  MemoryGroup smallest;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",", path = line.substr(second + 1);
    if (controllers == ",,") TakeSmallest(root, path, false, &smallest);
    if (controllers.find(",memory,") != std::string::npos) TakeSmallest(root + "/memory", path, true, &smallest);
  }
  return smallest;
}

// -1: it does not say.
int64_t UsedByGroup(const MemoryGroup& group) {
  const int64_t charged = ReadNumber(group.folder + (group.first_version ? "/memory.usage_in_bytes" : "/memory.current"));
  const int64_t files =
      NumberOf(ReadText(group.folder + "/memory.stat"), group.first_version ? "total_inactive_file" : "inactive_file");
  return charged < 0 ? -1 : std::max<int64_t>(0, charged - std::max<int64_t>(0, files));
}

}  // namespace

int64_t MemoryLimitBytes(const std::string& text, const std::string& root) { return SmallestGroup(text, root).limit; }

int64_t MemoryUsedBytes(const std::string& meminfo, const std::string& groups, const std::string& root) {
  constexpr int64_t kKiB = 1024;
  const int64_t total = NumberOf(meminfo, "MemTotal:"), available = NumberOf(meminfo, "MemAvailable:");
  const MemoryGroup group = SmallestGroup(groups, root);
  if (group.limit < INT64_MAX && (total < 0 || group.limit < total * kKiB)) {
    const int64_t used = UsedByGroup(group);
    if (used >= 0) return std::min(used, group.limit);
  }
  return total < 0 || available < 0 ? 0 : std::max<int64_t>(0, total - available) * kKiB;
}

int64_t HostMemoryBytes() {
  const int64_t bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  return std::min(bytes, MemoryLimitBytes(ReadText("/proc/self/cgroup"), "/sys/fs/cgroup"));
}

int64_t HostMemoryUsedBytes() {
  return MemoryUsedBytes(ReadText("/proc/meminfo"), ReadText("/proc/self/cgroup"), "/sys/fs/cgroup");
}

}  // namespace legoai::launch

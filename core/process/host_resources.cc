#include "core/process/host_resources.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace legoai::launch {
namespace {

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// What all threads of a core have in common: the list of their numbers.
std::string CoreOf(int cpu, const std::string& root) {
  const std::string siblings =
      FirstLine(absl::StrCat(root, "/sys/devices/system/cpu/cpu", cpu, "/topology/thread_siblings_list"));
  return siblings.empty() ? absl::StrCat(cpu) : siblings;
}

// Cores that "QUOTA PERIOD" gives; nothing for "max", or what is no such line.
std::optional<double> QuotaOf(const std::string& line) {
  const std::vector<std::string> words = absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  double quota = 0, period = 0;
  if (words.size() != 2 || !absl::SimpleAtod(words[0], &quota) || !absl::SimpleAtod(words[1], &period)) return std::nullopt;
  if (quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

// This process's group in the one hierarchy of version 2: "/", "/user.slice/…".
std::string ControlGroup(const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("0::/", 0) == 0) return line.substr(3);
  }
  return "/";
}

// The smallest quota of the control group and all above it, and of version 1 as containers show it.
double QuotaCores(const std::string& root, double otherwise) {
  const std::string base = root + "/sys/fs/cgroup";
  double cores = otherwise;
  const auto limit = [&cores](const std::string& line) { cores = std::min(cores, QuotaOf(line).value_or(cores)); };
  for (std::filesystem::path group = ControlGroup(root);; group = group.parent_path()) {
    limit(FirstLine(absl::StrCat(base, group.string(), "/cpu.max")));
    if (group == group.parent_path()) break;
  }
  limit(absl::StrCat(FirstLine(base + "/cpu/cpu.cfs_quota_us"), " ", FirstLine(base + "/cpu/cpu.cfs_period_us")));
  return cores;
}

// The kernel refuses a mask with fewer bits than it has possible processors, with EINVAL; how many these are it does not say.
constexpr int kMostProcessors = 1 << 20;

std::vector<int> Online() {
  std::vector<int> cpus = ParseCpuList(FirstLine("/sys/devices/system/cpu/online"));
  if (!cpus.empty()) return cpus;
  const long count = std::max(1L, sysconf(_SC_NPROCESSORS_ONLN));
  for (int cpu = 0; cpu < count; ++cpu) cpus.push_back(cpu);
  return cpus;
}

// Never empty: all that are online where the kernel tells no affinity (a filter of system calls may forbid the question).
std::vector<int> Affinity() {
  std::vector<int> cpus;
  for (int bits = CPU_SETSIZE; bits <= kMostProcessors && cpus.empty(); bits *= 2) {
    std::vector<cpu_set_t> sets(bits / CPU_SETSIZE);  // they lie side by side, as CPU_ALLOC's do
    const size_t bytes = sets.size() * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, sets.data()) != 0) {
      if (errno == EINVAL) continue;
      break;
    }
    for (int cpu = 0; cpu < bits; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, sets.data())) cpus.push_back(cpu);
    }
  }
  return cpus.empty() ? Online() : cpus;
}

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

std::vector<int> ParseCpuList(const std::string& list) {
  std::vector<int> cpus;
  for (const absl::string_view range : absl::StrSplit(list, ',', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> ends = absl::StrSplit(range, absl::MaxSplits('-', 1));
    int first = 0, last = 0;
    if (!absl::SimpleAtoi(ends.first, &first)) return {};
    if (!absl::SimpleAtoi(ends.second.empty() ? ends.first : ends.second, &last)) return {};
    if (first < 0 || last >= kMostProcessors) return {};
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

std::vector<int> CoresFirst(const std::vector<int>& cpus, const std::string& root) {
  std::map<std::string, int> seen;          // threads of each core so far
  std::vector<std::pair<int, int>> places;  // (which thread of its core, number)
  for (const int cpu : cpus) places.emplace_back(seen[CoreOf(cpu, root)]++, cpu);
  std::sort(places.begin(), places.end());
  std::vector<int> ordered;
  for (const auto& [thread, cpu] : places) ordered.push_back(cpu);
  return ordered;
}

int64_t CountCores(const std::vector<int>& cpus, const std::string& root) {
  std::map<std::string, int> cores;
  for (const int cpu : cpus) ++cores[CoreOf(cpu, root)];
  const double allowed = QuotaCores(root, static_cast<double>(cores.size()));
  return std::max<int64_t>(1, static_cast<int64_t>(allowed));
}

std::vector<int> AllowedCpus() { return CoresFirst(Affinity(), ""); }

int64_t AllowedCores() { return CountCores(Affinity(), ""); }

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

// Which processors this process may use, and how many cores they are: what ranks are pinned to, and what a job on this machine is
// planned for. Linux. Thread-safety: pure reads of the affinity, /sys and /proc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace legoai::launch {

// Numbers of the processors of this process's affinity: first one thread of every physical core, then the second ones, and so on,
// each in ascending order. The first n are on n cores as long as there are n. Never empty: without an affinity, all online ones.
std::vector<int> AllowedCpus();

// Physical cores of these processors, threads of one core counted once; fewer where the control group's CPU quota is less, of
// which whole cores count. At least 1.
int64_t AllowedCores();

// The same for any processors on the machine whose /sys and /proc are below `root` ("" is this one). A processor of which nothing
// is known is a core of its own.
std::vector<int> CoresFirst(const std::vector<int>& cpus, const std::string& root);
int64_t CountCores(const std::vector<int>& cpus, const std::string& root);

// The numbers in a list as the kernel writes it, "0-3,8"; empty where it is no such list.
std::vector<int> ParseCpuList(const std::string& list);

}  // namespace legoai::launch

#include "core/hardware/processor_use.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace legoai::sim {
namespace {

// "cpu  " sums up all; "cpu3 " is one of them.
bool IsWanted(const std::string& name, const std::set<int>& cpus) {
  if (name.rfind("cpu", 0) != 0) return false;
  const std::string number = name.substr(3);
  if (cpus.empty() || number.empty()) return cpus.empty() && number.empty();
  const bool digits = std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; });
  return digits && number.size() < 9 && cpus.count(std::stoi(number)) > 0;
}

// user nice system idle iowait irq softirq steal; what follows, of guests, is in the first two once more.
bool AddLine(std::istringstream& numbers, double ticks_per_second, ProcessorTimes* times) {
  constexpr int kIdle = 3, kWait = 4, kKinds = 8, kLeast = 4;
  int kind = 0;
  double busy = 0, all = 0;
  for (double ticks = 0; kind < kKinds && numbers >> ticks; ++kind) {
    all += ticks / ticks_per_second;
    if (kind != kIdle && kind != kWait) busy += ticks / ticks_per_second;
  }
  if (kind < kLeast) return false;
  times->busy_seconds += busy;
  times->all_seconds += all;
  return true;
}

std::optional<ProcessorTimes> ReadTimes(const std::set<int>& cpus) {
  std::stringstream text;
  text << std::ifstream("/proc/stat").rdbuf();
  return ParseProcessorTimes(text.str(), cpus, static_cast<double>(sysconf(_SC_CLK_TCK)));
}

double Seconds(const timeval& time) { return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec); }

}  // namespace

std::optional<ProcessorTimes> ParseProcessorTimes(const std::string& text, const std::set<int>& cpus, double ticks_per_second) {
  ProcessorTimes times;
  bool any = false;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (IsWanted(name, cpus)) any = AddLine(words, ticks_per_second, &times) || any;
  }
  return any ? std::optional(times) : std::nullopt;
}

std::optional<double> UsedShare(const ProcessorTimes& before, const ProcessorTimes& after) {
  return OthersShare(before, after, 0);
}

std::optional<double> OthersShare(const ProcessorTimes& before, const ProcessorTimes& after, double own_seconds) {
  const double all = after.all_seconds - before.all_seconds;
  if (!(all > 0)) return std::nullopt;
  return std::clamp((after.busy_seconds - before.busy_seconds - own_seconds) / all, 0.0, 1.0);
}

std::optional<ProcessorTimes> AllowedProcessorTimes() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return HostProcessorTimes();  // more than a cpu_set_t can hold
  std::set<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) cpus.insert(cpu);
  }
  return ReadTimes(cpus);
}

std::optional<ProcessorTimes> HostProcessorTimes() { return ReadTimes({}); }

double OwnProcessorSeconds() {
  double seconds = 0;
  for (const int whose : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage = {};
    if (getrusage(whose, &usage) == 0) seconds += Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
  }
  return seconds;
}

OthersUse::OthersUse() : began_(AllowedProcessorTimes()), own_seconds_(OwnProcessorSeconds()) {}

std::optional<double> OthersUse::Share() const {
  const auto now = AllowedProcessorTimes();
  if (!began_ || !now) return std::nullopt;
  return OthersShare(*began_, *now, OwnProcessorSeconds() - own_seconds_);
}

}  // namespace legoai::sim

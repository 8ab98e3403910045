#include "core/hardware/host.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "core/hardware/catalog.h"
#include "core/process/host_resources.h"
#include "proto/errors.h"
#include "proto/text.h"

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

int64_t HostPhysicalCores() { return launch::AllowedCores(); }

std::string HostProcessor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

std::string HostDevicePath() {
  if (const char* path = std::getenv("LEGOAI_HOST_DEVICE"); path != nullptr && *path != '\0') return path;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string folder = cache != nullptr && *cache != '\0' ? cache : absl::StrCat(home == nullptr ? "." : home, "/.cache");
  return folder + "/legoai/this-machine.txtpb";
}

absl::StatusOr<std::optional<v1::Device>> LoadHostDevice() {
  const std::string path = HostDevicePath();
  const char* variable = std::getenv("LEGOAI_HOST_DEVICE");
  const bool named = variable != nullptr && *variable != '\0';
  if (!named && access(path.c_str(), F_OK) != 0) return std::optional<v1::Device>();
  auto device = LoadDevice(path);
  if (!device.ok()) return Annotate(device.status(), "this machine's CPU (made by `lego hardware --measure`)");
  return std::optional<v1::Device>(*std::move(device));
}

bool WasMeasuredBusy(const v1::Device& device) { return device.measured_while_busy() > kBusyShare; }

std::string MeasuredBusyText(const v1::Device& device) {
  if (!WasMeasuredBusy(device)) return "";
  return absl::StrCat("others took ", PercentText(device.measured_while_busy()),
                      " of the processors while this machine was measured: the figures are too low; run `lego hardware "
                      "--measure` again when the machine is quiet");
}

bool HostIsQuiet() {
  constexpr int kLookMicroseconds = 500'000;
  const OthersUse others;
  usleep(kLookMicroseconds);
  const auto share = others.Share();
  return share && *share <= kBusyShare;
}

double TruePeakFlops(const v1::Device& device, v1::DType dtype) {
  const bool of_no_machine = device.kind() == v1::CPU && !AssumedEfficiencies(device).empty();
  const bool narrow = dtype == v1::BFLOAT16 || dtype == v1::FLOAT16;
  const double peak = PeakFlops(device, dtype);
  const bool in_software = narrow && peak < PeakFlops(device, v1::FLOAT32);
  return of_no_machine || in_software ? 0 : peak;
}

bool HasBfloat16(const std::string& cpuinfo) {
  std::istringstream lines(cpuinfo);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("flags", 0) != 0 && line.rfind("Features", 0) != 0) continue;
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      if (word == "avx512_bf16" || word == "amx_bf16" || word == "bf16") return true;
    }
  }
  return false;
}

bool HostHasBfloat16() {
  std::stringstream text;
  text << std::ifstream("/proc/cpuinfo").rdbuf();
  return HasBfloat16(text.str());
}

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

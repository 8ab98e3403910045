#include "core/hardware/host.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/hardware/catalog.h"
#include "core/hardware/processor_use.h"
#include "core/process/processors.h"
#include "proto/errors.h"
#include "proto/quantity_text.h"

namespace legoai::sim {

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

}  // namespace legoai::sim

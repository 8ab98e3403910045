#include "core/hardware/nvml.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "core/hardware/nvml_library.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::sim {
namespace {

using namespace nvml;

// In bytes. NVML's total is the whole card's; CUDA gives what the driver does not keep for itself.
Return ReadMemory(const Nvml& nvml, Device device, int64_t* bytes) {
  MemoryV2 exact = {};
  exact.version = kMemoryV2;
  if (nvml.memory_v2 != nullptr && nvml.memory_v2(device, &exact) == kSuccess && exact.reserved < exact.total) {
    *bytes = static_cast<int64_t>(exact.total - exact.reserved);
    return kSuccess;
  }
  Memory memory = {};
  const Return error = nvml.memory(device, &memory);
  *bytes = static_cast<int64_t>(memory.total);
  return error;
}

// What not every card tells.
void ReadExtras(const Nvml& nvml, Device device, Gpu* gpu) {
  unsigned value = 0;
  if (nvml.power_limit(device, &value) == kSuccess) gpu->power_limit_watts = value / 1000.0;
  if (nvml.max_clock(device, kSmClock, &value) == kSuccess) gpu->max_sm_clock_mhz = value;
  if (nvml.max_clock(device, kMemoryClock, &value) == kSuccess) gpu->max_memory_clock_mhz = value;
  if (nvml.clock(device, kSmClock, &value) == kSuccess) gpu->sm_clock_mhz = value;
}

absl::StatusOr<Gpu> ReadGpu(const Nvml& nvml, unsigned index, Device device) {
  Gpu gpu;
  gpu.index = static_cast<int>(index);
  char text[kTextLength] = {};
  if (const Return error = nvml.name(device, text, kTextLength)) return Fault(nvml, "nvmlDeviceGetName", error);
  gpu.name = text;
  if (const Return error = nvml.uuid(device, text, kTextLength)) return Fault(nvml, "nvmlDeviceGetUUID", error);
  gpu.uuid = text;
  if (const Return error = ReadMemory(nvml, device, &gpu.memory_bytes)) return Fault(nvml, "nvmlDeviceGetMemoryInfo", error);
  ReadExtras(nvml, device, &gpu);
  return gpu;
}

// Without what the driver keeps for itself, where it says how much.
bool ReadUsed(const Nvml& nvml, Device device, int64_t* bytes) {
  MemoryV2 exact = {};
  exact.version = kMemoryV2;
  if (nvml.memory_v2 != nullptr && nvml.memory_v2(device, &exact) == kSuccess) {
    *bytes = static_cast<int64_t>(exact.used);
    return true;
  }
  Memory memory = {};
  if (nvml.memory(device, &memory) != kSuccess) return false;
  *bytes = static_cast<int64_t>(memory.used);
  return true;
}

// Not that its power limit holds it, which a card that works hard is meant to do, nor that it idles.
std::vector<std::string> ReadSlowdowns(const Nvml& nvml, Device device) {
  unsigned long long reasons = 0;
  std::vector<std::string> names;
  if (nvml.clock_reasons == nullptr || nvml.clock_reasons(device, &reasons) != kSuccess) return names;
  for (const auto& [bit, name] : kSlowdowns) {
    if ((reasons & bit) != 0) names.push_back(name);
  }
  return names;
}

std::optional<GpuLoad> ReadLoad(const Nvml& nvml, int index) {
  Device device = nullptr;
  GpuLoad load;
  load.index = index;
  if (nvml.handle(static_cast<unsigned>(index), &device) != kSuccess) return std::nullopt;
  if (!ReadUsed(nvml, device, &load.memory_bytes)) return std::nullopt;
  Utilization share = {};
  unsigned value = 0;
  if (nvml.utilization != nullptr && nvml.utilization(device, &share) == kSuccess) load.utilization = share.gpu / 100.0;
  if (nvml.temperature != nullptr && nvml.temperature(device, kTemperatureOfGpu, &value) == kSuccess) {
    load.temperature_celsius = value;
  }
  if (nvml.power != nullptr && nvml.power(device, &value) == kSuccess) load.power_watts = value / 1000.0;
  load.slowdowns = ReadSlowdowns(nvml, device);
  unsigned long long errors = 0;
  if (ReadUncorrectedErrors(nvml, device, &errors) == kSuccess) load.uncorrected_ecc_errors = static_cast<int64_t>(errors);
  return load;
}

// All of the host that this process may use.
absl::StatusOr<NvmlReport> ReadAll(const Nvml& nvml) {
  NvmlReport report;
  char text[kTextLength] = {};
  if (nvml.driver_version(text, kTextLength) == kSuccess) report.driver_version = text;
  unsigned count = 0;
  if (const Return error = nvml.count(&count)) return Fault(nvml, "nvmlDeviceGetCount_v2", error);
  for (unsigned i = 0; i < count; ++i) {
    Device device = nullptr;
    const Return error = nvml.handle(i, &device);
    if (error == kNoPermission) continue;  // it is counted, and others' (a container's limits)
    if (error != kSuccess) return Fault(nvml, "nvmlDeviceGetHandleByIndex_v2", error);
    auto gpu = ReadGpu(nvml, i, device);
    if (!gpu.ok()) return Annotate(gpu.status(), absl::StrCat("GPU ", i));
    report.gpus.push_back(*std::move(gpu));
  }
  if (report.gpus.empty()) return NoGpu("the driver shows none");
  return report;
}

absl::Status LeaveVisible(NvmlReport* report) {
  const char* value = std::getenv("CUDA_VISIBLE_DEVICES");
  if (value == nullptr) return absl::OkStatus();
  std::vector<std::string> uuids;
  for (const Gpu& gpu : report->gpus) uuids.push_back(gpu.uuid);
  const VisibleDevices visible = ReadVisibleDevices(value, uuids);
  const char* order = std::getenv("CUDA_DEVICE_ORDER");
  const bool is_pci_order = order != nullptr && std::string_view(order) == "PCI_BUS_ID";
  if (visible.by_index && !visible.positions.empty() && !is_pci_order && !AreAlike(report->gpus)) {
    return FieldError("CUDA_VISIBLE_DEVICES", value,
                      absl::StrCat("holds indices, and this machine's GPUs differ (", GpusText(report->gpus),
                                   "): which one an index means depends on CUDA's own order. Give UUIDs (`nvidia-smi -L` lists ",
                                   "them), or set CUDA_DEVICE_ORDER=PCI_BUS_ID as well"));
  }
  std::vector<Gpu> left;
  for (const int position : visible.positions) left.push_back(report->gpus[static_cast<size_t>(position)]);
  if (left.empty()) return NoGpu(absl::StrCat("CUDA_VISIBLE_DEVICES = \"", value, "\" leaves none of ", GpusText(report->gpus)));
  report->gpus = std::move(left);
  return absl::OkStatus();
}

constexpr absl::string_view kUuidPrefix = "GPU-";

// -1: none, or more than one.
int FindUuid(absl::string_view beginning, const std::vector<std::string>& uuids) {
  int found = -1;
  for (size_t i = 0; i < uuids.size(); ++i) {
    if (!absl::StartsWith(uuids[i], beginning)) continue;
    if (found >= 0) return -1;
    found = static_cast<int>(i);
  }
  return found;
}

// As strtol() reads it: blanks before it and what follows the digits do not count. -1: no index of one of `count` cards.
int ReadIndex(const std::string& text, size_t count) {
  char* end = nullptr;
  errno = 0;
  const long index = std::strtol(text.c_str(), &end, 10);
  const bool is_number = end != text.c_str() && errno == 0;
  return is_number && index >= 0 && index < static_cast<long>(count) ? static_cast<int>(index) : -1;
}

}  // namespace

absl::StatusOr<NvmlReport> ReadNvml() {
  ASSIGN_OR_RETURN(const std::shared_ptr<const Session> session, OpenSession());
  absl::StatusOr<NvmlReport> report = ReadAll(session->nvml);
  if (!report.ok()) return report;
  RETURN_IF_ERROR(LeaveVisible(&*report));
  return report;
}

absl::StatusOr<GpuLoadReader> GpuLoadReader::Open(const std::vector<int>& indices) {
  ASSIGN_OR_RETURN(auto session, OpenSession());
  return GpuLoadReader(std::move(session), indices);
}

std::vector<GpuLoad> GpuLoadReader::Read() const {
  std::vector<GpuLoad> loads;
  for (const int index : indices_) {
    if (auto load = ReadLoad(session_->nvml, index)) loads.push_back(*load);
  }
  return loads;
}

bool IsSameMemory(int64_t a, int64_t b) { return std::abs(a - b) <= 0.03 * static_cast<double>(std::max(a, b)); }

bool AreAlike(const Gpu& a, const Gpu& b) { return a.name == b.name && IsSameMemory(a.memory_bytes, b.memory_bytes); }

bool AreAlike(const std::vector<Gpu>& gpus) {
  return std::all_of(gpus.begin(), gpus.end(), [&](const Gpu& gpu) { return AreAlike(gpu, gpus.front()); });
}

std::string GpusText(const std::vector<Gpu>& gpus) {
  std::map<std::string, int> counts;
  for (const Gpu& gpu : gpus) ++counts[gpu.name];
  return absl::StrJoin(counts, " and ", [](std::string* out, const auto& entry) {
    absl::StrAppend(out, entry.second > 1 ? absl::StrCat(entry.second, " ") : "", entry.first);
  });
}

VisibleDevices ReadVisibleDevices(std::string_view value, const std::vector<std::string>& uuids) {
  const absl::string_view text(value.data(), value.size());
  VisibleDevices visible;
  visible.by_index = !absl::StartsWith(text, kUuidPrefix);  // the first entry says what all are
  for (const absl::string_view entry : absl::StrSplit(text, ',')) {
    int position = -1;
    if (visible.by_index) {
      position = ReadIndex(std::string(entry), uuids.size());
    } else if (absl::StartsWith(entry, kUuidPrefix)) {
      position = FindUuid(entry, uuids);
    }
    if (position < 0) break;
    auto& positions = visible.positions;
    if (std::find(positions.begin(), positions.end(), position) != positions.end()) return {{}, visible.by_index};
    positions.push_back(position);
  }
  return visible;
}

}  // namespace legoai::sim

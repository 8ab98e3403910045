#include "core/hardware/nvml_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::sim::nvml {
namespace {

template <class Function>
bool Load(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

bool LoadNeeded(void* library, Nvml* nvml) {
  return Load(library, "nvmlInit_v2", &nvml->init) && Load(library, "nvmlShutdown", &nvml->shutdown) &&
         Load(library, "nvmlErrorString", &nvml->error_string) &&
         Load(library, "nvmlSystemGetDriverVersion", &nvml->driver_version) &&
         Load(library, "nvmlDeviceGetCount_v2", &nvml->count) && Load(library, "nvmlDeviceGetHandleByIndex_v2", &nvml->handle) &&
         Load(library, "nvmlDeviceGetName", &nvml->name) && Load(library, "nvmlDeviceGetUUID", &nvml->uuid) &&
         Load(library, "nvmlDeviceGetMemoryInfo", &nvml->memory) &&
         Load(library, "nvmlDeviceGetPowerManagementLimit", &nvml->power_limit) &&
         Load(library, "nvmlDeviceGetClockInfo", &nvml->clock) && Load(library, "nvmlDeviceGetMaxClockInfo", &nvml->max_clock);
}

void LoadRest(void* library, Nvml* nvml) {
  Load(library, "nvmlDeviceGetMemoryInfo_v2", &nvml->memory_v2);
  Load(library, "nvmlDeviceGetUtilizationRates", &nvml->utilization);
  Load(library, "nvmlDeviceGetTemperature", &nvml->temperature);
  Load(library, "nvmlDeviceGetPowerUsage", &nvml->power);
  Load(library, "nvmlDeviceGetCurrentClocksEventReasons", &nvml->clock_reasons) ||
      Load(library, "nvmlDeviceGetCurrentClocksThrottleReasons", &nvml->clock_reasons);  // before driver 535
  Load(library, "nvmlDeviceGetTotalEccErrors", &nvml->ecc_errors);
  Load(library, "nvmlDeviceGetRemappedRows", &nvml->remapped_rows);
  Load(library, "nvmlEventSetCreate", &nvml->make_events);
  Load(library, "nvmlDeviceRegisterEvents", &nvml->register_events);
  Load(library, "nvmlEventSetWait_v2", &nvml->wait_event);
  Load(library, "nvmlEventSetFree", &nvml->free_events);
}

absl::StatusOr<Nvml> OpenLibrary() {
  const char* chosen = std::getenv("LEGOAI_NVML");
  // Never closed: NVML keeps what it has begun with the driver.
  void* library = dlopen(chosen != nullptr && *chosen != '\0' ? chosen : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return NoGpu(absl::StrCat("NVIDIA's driver is not installed, or not given to this container, which needs ",
                              "NVIDIA_DRIVER_CAPABILITIES=compute,utility: ", dlerror()));
  }
  Nvml nvml;
  if (!LoadNeeded(library, &nvml))
    return NoGpu("the driver's libnvidia-ml.so.1 lacks functions of NVML; CUDA 13 needs driver 580 or newer");
  LoadRest(library, &nvml);
  return nvml;
}

}  // namespace

absl::Status NoGpu(const std::string& why, absl::StatusCode code) {
  return FieldError("device", "cuda",
                    absl::StrCat("no GPU can be used here (", why, "); use a machine with a GPU, or device cpu"), code);
}

absl::Status Fault(const Nvml& nvml, const char* function, Return error) {
  const auto code = error == kDriverNotLoaded ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kUnavailable;
  return NoGpu(absl::StrCat("NVML's ", function, " says: ", nvml.error_string(error)), code);
}

absl::StatusOr<std::shared_ptr<const Session>> OpenSession() {
  ASSIGN_OR_RETURN(const Nvml nvml, OpenLibrary());
  if (const Return error = nvml.init()) return Fault(nvml, "nvmlInit_v2", error);
  return std::make_shared<const Session>(nvml);
}

Return ReadUncorrectedErrors(const Nvml& nvml, Device device, unsigned long long* count) {
  constexpr Return kNotSupported = 3;
  return nvml.ecc_errors == nullptr ? kNotSupported : nvml.ecc_errors(device, kUncorrected, kVolatile, count);
}

}  // namespace legoai::sim::nvml

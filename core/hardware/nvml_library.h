// NVIDIA's NVML as it is opened: the part of its API that core/hardware uses, as its nvml.h declares it. The library keeps these
// signatures and layouts from version to version (functions that change get a suffix). For nvml.cc and gpu_health.cc alone.
// Thread-safe, as NVML is.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace legoai::sim::nvml {

using Return = int;
using Device = void*;
using EventSet = void*;
constexpr Return kSuccess = 0, kNoPermission = 4, kDriverNotLoaded = 9, kTimeout = 10, kGpuIsLost = 15;
constexpr int kSmClock = 1, kMemoryClock = 2;  // nvmlClockType_t
constexpr unsigned kTextLength = 96;           // NVML_DEVICE_NAME_V2_BUFFER_SIZE, NVML_DEVICE_UUID_V2_BUFFER_SIZE
struct Memory {
  unsigned long long total, free, used;
};
struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
constexpr unsigned kMemoryV2 = sizeof(MemoryV2) | 2U << 24;  // nvmlMemory_v2
static_assert(sizeof(MemoryV2) == 40);
struct Utilization {  // percent
  unsigned gpu, memory;
};
constexpr int kTemperatureOfGpu = 0;          // nvmlTemperatureSensors_t
constexpr int kUncorrected = 1;               // nvmlMemoryErrorType_t
constexpr int kVolatile = 0;                  // nvmlEccCounterType_t: since the driver was loaded
constexpr unsigned long long kXidEvent = 8;   // nvmlEventTypeXidCriticalError
struct EventData {                            // nvmlEventData_t
  Device device;
  unsigned long long type, data;  // of kXidEvent the Xid
  unsigned gpu_instance, compute_instance;
};
static_assert(sizeof(EventData) == 32);
// Of nvmlClocksEventReasons (nvmlClocksThrottleReasons of older drivers), those that mean that a card is not well.
constexpr std::pair<unsigned long long, const char*> kSlowdowns[] = {
    {0x8, "hw_slowdown"}, {0x40, "hw_thermal"}, {0x80, "hw_power_brake"}, {0x20, "sw_thermal"}};

struct Nvml {
  Return (*init)() = nullptr;
  Return (*shutdown)() = nullptr;
  const char* (*error_string)(Return) = nullptr;
  Return (*driver_version)(char*, unsigned) = nullptr;
  Return (*count)(unsigned*) = nullptr;
  Return (*handle)(unsigned, Device*) = nullptr;
  Return (*name)(Device, char*, unsigned) = nullptr;
  Return (*uuid)(Device, char*, unsigned) = nullptr;
  Return (*memory)(Device, Memory*) = nullptr;
  Return (*power_limit)(Device, unsigned*) = nullptr;
  Return (*clock)(Device, int, unsigned*) = nullptr;
  Return (*max_clock)(Device, int, unsigned*) = nullptr;
  // Null: the driver has none of it.
  Return (*memory_v2)(Device, MemoryV2*) = nullptr;
  Return (*utilization)(Device, Utilization*) = nullptr;
  Return (*temperature)(Device, int, unsigned*) = nullptr;
  Return (*power)(Device, unsigned*) = nullptr;
  Return (*clock_reasons)(Device, unsigned long long*) = nullptr;
  Return (*ecc_errors)(Device, int, int, unsigned long long*) = nullptr;
  Return (*remapped_rows)(Device, unsigned*, unsigned*, unsigned*, unsigned*) = nullptr;
  Return (*make_events)(EventSet*) = nullptr;
  Return (*register_events)(Device, unsigned long long, EventSet) = nullptr;
  Return (*wait_event)(EventSet, EventData*, unsigned) = nullptr;
  Return (*free_events)(EventSet) = nullptr;
};

// The library between nvmlInit and nvmlShutdown.
struct Session {
  explicit Session(const Nvml& library) : nvml(library) {}
  ~Session() { nvml.shutdown(); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  const Nvml nvml;
};

// Errors: as those of ReadNvml (nvml.h).
absl::StatusOr<std::shared_ptr<const Session>> OpenSession();

// FieldErrors of "device" = "cuda".
absl::Status NoGpu(const std::string& why, absl::StatusCode code = absl::StatusCode::kFailedPrecondition);
// A machine without a driver is one without GPUs; one whose cards fail is not.
absl::Status Fault(const Nvml& nvml, const char* function, Return error);

// Since the driver was loaded, or the card reset. kNotSupported, or another error: it does not tell.
Return ReadUncorrectedErrors(const Nvml& nvml, Device device, unsigned long long* count);

}  // namespace legoai::sim::nvml

// A stand-in for libnvidia-ml.so.1 (LEGOAI_NVML names it in tests). Its cards come from LEGOAI_FAKE_NVML, read anew by
// nvmlInit_v2: cards with ; between, each fields with , between. A card's fields:
//
//   name=NVIDIA H100 80GB HBM3,uuid=GPU-1,memory=85520809984,reserved=577765376,power=700000,max_sm=1980,max_memory=2619,sm=345
//
// and, of its load, used=1073741824,utilization=97,temperature=61,draw=512250: in bytes, milliwatts, MHz, percent and degrees
// Celsius; what is not given the card does not support, but for `reserved` and `used`, which are then 0. Of its health: ecc=1
// (errors that could not be corrected), remap_pending=1, remap_failed=1, and reasons=64 (of lowered clocks, NVML's bits).
//
// What changes while a process runs is in the file that LEGOAI_FAKE_NVML_CHANGES names, read anew at every call: a line for a
// card, which begins with its UUID; the fields that follow, with a , before each, take the place of those from the start, and
// each xid=NUMBER is one more event, told once.
//
// `error=FUNCTION:CODE` makes that function fail, on a card's handle for this card; as a part of its own (error=nvmlInit_v2:9)
// it is no card. Written from nvml.h as NVIDIA documents it, without core/hardware/nvml.cc's declarations.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "core/process/mutex.h"

namespace {

enum nvmlReturn_t {
  NVML_SUCCESS = 0,
  NVML_ERROR_UNINITIALIZED = 1,
  NVML_ERROR_INVALID_ARGUMENT = 2,
  NVML_ERROR_NOT_SUPPORTED = 3,
  NVML_ERROR_INSUFFICIENT_SIZE = 7,
  NVML_ERROR_TIMEOUT = 10,
};
enum nvmlClockType_t { NVML_CLOCK_GRAPHICS = 0, NVML_CLOCK_SM = 1, NVML_CLOCK_MEM = 2 };
struct nvmlMemory_t {
  unsigned long long total, free, used;
};
struct nvmlMemory_v2_t {
  unsigned int version;
  unsigned long long total, reserved, free, used;
};
struct nvmlUtilization_t {
  unsigned int gpu, memory;
};
enum nvmlTemperatureSensors_t { NVML_TEMPERATURE_GPU = 0 };
enum nvmlMemoryErrorType_t { NVML_MEMORY_ERROR_TYPE_CORRECTED = 0, NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1 };
enum nvmlEccCounterType_t { NVML_VOLATILE_ECC = 0, NVML_AGGREGATE_ECC = 1 };
constexpr unsigned long long nvmlEventTypeXidCriticalError = 0x8;
constexpr unsigned kMemoryVersion2 = 0x02000028;  // as pynvml has it

struct Card {
  std::map<std::string, std::string> fields;
  std::map<std::string, int> errors;  // by function
  std::vector<unsigned long long> xids;
};
using nvmlDevice_t = Card*;
struct nvmlEventData_t {
  nvmlDevice_t device;
  unsigned long long eventType, eventData;
  unsigned int gpuInstanceId, computeInstanceId;
};
struct Events {
  std::set<nvmlDevice_t> devices;
};
using nvmlEventSet_t = Events*;

legoai::Mutex mutex;  // of all that follows, but for the cards themselves, which stay as long as one session does
int initialized = 0;
std::vector<Card> cards;
std::map<const Card*, size_t> told_xids;
std::map<std::string, int> errors;  // of functions without a card

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

void ReadField(const std::string& field, Card* card) {
  const size_t equals = field.find('=');
  const std::string key = field.substr(0, equals), value = equals == std::string::npos ? "" : field.substr(equals + 1);
  if (key == "error") {
    const size_t colon = value.find(':');
    card->errors[value.substr(0, colon)] = std::atoi(value.c_str() + colon + 1);
  } else if (key == "xid") {
    card->xids.push_back(std::strtoull(value.c_str(), nullptr, 10));
  } else {
    card->fields[key] = value;
  }
}

void ReadCards() {
  cards.clear();
  told_xids.clear();
  errors.clear();
  const char* text = std::getenv("LEGOAI_FAKE_NVML");
  for (const std::string& part : Split(text == nullptr ? "" : text, ';')) {
    Card card;
    for (const std::string& field : Split(part, ',')) ReadField(field, &card);
    if (card.fields.empty()) {
      errors.insert(card.errors.begin(), card.errors.end());
    } else {
      cards.push_back(card);
    }
  }
}

// The card as it is now.
Card Now(const Card& card) {
  Card now = card;
  const char* path = std::getenv("LEGOAI_FAKE_NVML_CHANGES");
  std::ifstream file(path == nullptr ? "" : path);
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> fields = Split(line, ',');
    if (fields.empty() || fields[0] != now.fields["uuid"]) continue;
    for (size_t i = 1; i < fields.size(); ++i) ReadField(fields[i], &now);
  }
  return now;
}

int ErrorOf(const std::map<std::string, int>& errors, const char* function) {
  const auto found = errors.find(function);
  return found == errors.end() ? NVML_SUCCESS : found->second;
}

int CopyText(const std::string& text, char* to, unsigned length) {
  if (text.size() >= length) return NVML_ERROR_INSUFFICIENT_SIZE;
  std::strcpy(to, text.c_str());
  return NVML_SUCCESS;
}

template <class Number>
int GiveNumber(const char* function, const Card* card, const char* field, Number* to) {
  const Card now = Now(*card);
  if (const int error = ErrorOf(now.errors, function)) return error;
  const auto found = now.fields.find(field);
  if (found == now.fields.end()) return NVML_ERROR_NOT_SUPPORTED;
  *to = static_cast<Number>(std::strtoull(found->second.c_str(), nullptr, 10));
  return NVML_SUCCESS;
}

int GiveText(const char* function, const Card* card, const char* field, char* to, unsigned length) {
  if (const int error = ErrorOf(card->errors, function)) return error;
  const auto found = card->fields.find(field);
  return found == card->fields.end() ? NVML_ERROR_NOT_SUPPORTED : CopyText(found->second, to, length);
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  const legoai::MutexLock lock(mutex);
  if (initialized == 0) ReadCards();
  const int error = ErrorOf(errors, __func__);
  if (error == NVML_SUCCESS) ++initialized;
  return error;
}

int nvmlShutdown() {
  const legoai::MutexLock lock(mutex);
  return initialized-- > 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

const char* nvmlErrorString(int code) {
  static thread_local char text[32];
  std::snprintf(text, sizeof(text), "error %d of the fake", code);
  return text;
}

int nvmlSystemGetDriverVersion(char* version, unsigned length) { return CopyText("580.65.06", version, length); }

int nvmlDeviceGetCount_v2(unsigned* count) {
  const legoai::MutexLock lock(mutex);
  if (initialized < 1) return NVML_ERROR_UNINITIALIZED;
  *count = static_cast<unsigned>(cards.size());
  return ErrorOf(errors, __func__);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* device) {
  const legoai::MutexLock lock(mutex);
  if (initialized < 1) return NVML_ERROR_UNINITIALIZED;
  if (index >= cards.size()) return NVML_ERROR_INVALID_ARGUMENT;
  *device = &cards[index];
  return ErrorOf(Now(cards[index]).errors, __func__);
}

int nvmlDeviceGetName(nvmlDevice_t device, char* name, unsigned length) {
  return GiveText(__func__, device, "name", name, length);
}

int nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned length) {
  return GiveText(__func__, device, "uuid", uuid, length);
}

int nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  memory->free = memory->used = 0;
  GiveNumber("", device, "used", &memory->used);
  return GiveNumber(__func__, device, "memory", &memory->total);
}

int nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  if (memory->version != kMemoryVersion2) return NVML_ERROR_INVALID_ARGUMENT;
  memory->reserved = memory->free = memory->used = 0;
  GiveNumber("", device, "reserved", &memory->reserved);
  GiveNumber("", device, "used", &memory->used);
  return GiveNumber(__func__, device, "memory", &memory->total);
}

int nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t* utilization) {
  utilization->memory = 0;
  return GiveNumber(__func__, device, "utilization", &utilization->gpu);
}

int nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned* celsius) {
  return sensor == NVML_TEMPERATURE_GPU ? GiveNumber(__func__, device, "temperature", celsius) : NVML_ERROR_INVALID_ARGUMENT;
}

int nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned* milliwatts) {
  return GiveNumber(__func__, device, "draw", milliwatts);
}

int nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned* milliwatts) {
  return GiveNumber(__func__, device, "power", milliwatts);
}

int nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned* megahertz) {
  return type == NVML_CLOCK_SM ? GiveNumber(__func__, device, "sm", megahertz) : NVML_ERROR_NOT_SUPPORTED;
}

int nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned* megahertz) {
  if (type == NVML_CLOCK_SM) return GiveNumber(__func__, device, "max_sm", megahertz);
  return type == NVML_CLOCK_MEM ? GiveNumber(__func__, device, "max_memory", megahertz) : NVML_ERROR_NOT_SUPPORTED;
}

int nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter,
                                unsigned long long* count) {
  if (type != NVML_MEMORY_ERROR_TYPE_UNCORRECTED || counter != NVML_VOLATILE_ECC) return NVML_ERROR_INVALID_ARGUMENT;
  return GiveNumber(__func__, device, "ecc", count);
}

int nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned* corrected, unsigned* uncorrected, unsigned* is_pending,
                              unsigned* failure_occurred) {
  *corrected = *uncorrected = *is_pending = *failure_occurred = 0;
  GiveNumber("", device, "remap_failed", failure_occurred);
  const int pending = GiveNumber(__func__, device, "remap_pending", is_pending);
  return *failure_occurred != 0 && pending == NVML_ERROR_NOT_SUPPORTED ? NVML_SUCCESS : pending;
}

int nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long* reasons) {
  return GiveNumber(__func__, device, "reasons", reasons);
}

int nvmlEventSetCreate(nvmlEventSet_t* set) {
  *set = new Events;
  return ErrorOf(errors, __func__);
}

int nvmlEventSetFree(nvmlEventSet_t set) {
  delete set;
  return NVML_SUCCESS;
}

int nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) {
  if (types != nvmlEventTypeXidCriticalError) return NVML_ERROR_INVALID_ARGUMENT;
  if (const int error = ErrorOf(Now(*device).errors, __func__)) return error;
  set->devices.insert(device);
  return NVML_SUCCESS;
}

int nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t* data, unsigned milliseconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  do {
    for (nvmlDevice_t device : set->devices) {
      const Card now = Now(*device);
      if (const int error = ErrorOf(now.errors, __func__)) return error;
      const legoai::MutexLock lock(mutex);
      size_t& told = told_xids[device];
      if (now.xids.size() <= told) continue;
      *data = {device, nvmlEventTypeXidCriticalError, now.xids[told++], 0xFFFFFFFF, 0xFFFFFFFF};
      return NVML_SUCCESS;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  } while (std::chrono::steady_clock::now() < end);
  return NVML_ERROR_TIMEOUT;
}
}

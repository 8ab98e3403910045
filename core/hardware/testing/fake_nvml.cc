// A stand-in for libnvidia-ml.so.1 (LEGOAI_NVML names it in tests). Its cards come from LEGOAI_FAKE_NVML, read anew by
// nvmlInit_v2: cards with ; between, each fields with , between. A card's fields:
//
//   name=NVIDIA H100 80GB HBM3,uuid=GPU-1,memory=85520809984,reserved=577765376,power=700000,max_sm=1980,max_memory=2619,sm=345
//
// and, of its load, used=1073741824,utilization=97,temperature=61,draw=512250: in bytes, milliwatts, MHz, percent and degrees
// Celsius; what is not given the card does not support, but for `reserved` and `used`, which are then 0.
// `error=FUNCTION:CODE` makes that function fail, on a card's handle for this card; as a part of its own (error=nvmlInit_v2:9)
// it is no card. Written from nvml.h as NVIDIA documents it, without core/hardware/nvml.cc's declarations.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

enum nvmlReturn_t {
  NVML_SUCCESS = 0,
  NVML_ERROR_UNINITIALIZED = 1,
  NVML_ERROR_INVALID_ARGUMENT = 2,
  NVML_ERROR_NOT_SUPPORTED = 3,
  NVML_ERROR_INSUFFICIENT_SIZE = 7,
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
constexpr unsigned kMemoryVersion2 = 0x02000028;  // as pynvml has it

struct Card {
  std::map<std::string, std::string> fields;
  std::map<std::string, int> errors;  // by function
};
using nvmlDevice_t = Card*;

int initialized = 0;
std::vector<Card> cards;
std::map<std::string, int> errors;  // of functions without a card

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

void ReadCards() {
  cards.clear();
  errors.clear();
  const char* text = std::getenv("LEGOAI_FAKE_NVML");
  for (const std::string& part : Split(text == nullptr ? "" : text, ';')) {
    Card card;
    for (const std::string& field : Split(part, ',')) {
      const size_t equals = field.find('=');
      const std::string key = field.substr(0, equals), value = field.substr(equals + 1);
      const size_t colon = value.find(':');
      if (key == "error") {
        card.errors[value.substr(0, colon)] = std::atoi(value.c_str() + colon + 1);
      } else {
        card.fields[key] = value;
      }
    }
    if (card.fields.empty()) {
      errors.insert(card.errors.begin(), card.errors.end());
    } else {
      cards.push_back(card);
    }
  }
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
  if (const int error = ErrorOf(card->errors, function)) return error;
  const auto found = card->fields.find(field);
  if (found == card->fields.end()) return NVML_ERROR_NOT_SUPPORTED;
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
  ReadCards();
  const int error = ErrorOf(errors, __func__);
  if (error == NVML_SUCCESS) ++initialized;
  return error;
}

int nvmlShutdown() { return initialized-- > 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED; }

const char* nvmlErrorString(int code) {
  static thread_local char text[32];
  std::snprintf(text, sizeof(text), "error %d of the fake", code);
  return text;
}

int nvmlSystemGetDriverVersion(char* version, unsigned length) { return CopyText("580.65.06", version, length); }

int nvmlDeviceGetCount_v2(unsigned* count) {
  if (initialized < 1) return NVML_ERROR_UNINITIALIZED;
  *count = static_cast<unsigned>(cards.size());
  return ErrorOf(errors, __func__);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* device) {
  if (initialized < 1) return NVML_ERROR_UNINITIALIZED;
  if (index >= cards.size()) return NVML_ERROR_INVALID_ARGUMENT;
  *device = &cards[index];
  return ErrorOf(cards[index].errors, __func__);
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
}

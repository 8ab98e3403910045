#include "worker/agent/this_machine.h"

#include <unistd.h>

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/hardware/host.h"
#include "core/hardware/nvml.h"
#include "core/process/build_version.h"
#include "core/process/host_resources.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "worker/agent/slots.h"

namespace legoai::agent {
namespace {

constexpr int64_t kMostSlots = 4096;

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 && name[0] != '\0' ? name : "localhost";
}

bool IsIdCharacter(unsigned char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.'; }

std::string AsResourceId(std::string host) {
  std::replace_if(
      host.begin(), host.end(), [](unsigned char c) { return !IsIdCharacter(c); }, '-');
  return host.substr(0, 63);
}

absl::Status CheckId(const char* field, const std::string& id) {
  const bool good = !id.empty() && id.size() <= 63 && std::all_of(id.begin(), id.end(), IsIdCharacter);
  return good ? absl::OkStatus() : FieldError(field, id, "must be 1 to 63 letters, digits, dots, hyphens or underscores");
}

// As a ULID: 10 characters of the time in milliseconds, 16 of chance.
std::string NewInstance() {
  constexpr char kDigits[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
  std::string id(26, '0');
  int64_t milliseconds = absl::ToUnixMillis(absl::Now());
  for (int i = 9; i >= 0; --i, milliseconds >>= 5) id[i] = kDigits[milliseconds & 31];
  std::random_device random;
  for (int i = 10; i < 26; ++i) id[i] = kDigits[random() & 31];
  return id;
}

absl::Status CheckSlots(std::optional<int64_t> slots, int64_t gpus) {
  if (!slots) return absl::OkStatus();
  if (*slots < 1 || *slots > kMostSlots)
    return FieldError("--slots", absl::StrCat(*slots),
                      absl::StrCat("must be 1 to ", kMostSlots, "; leave it out for one for each GPU, or physical core"));
  if (gpus == 0 || *slots <= gpus) return absl::OkStatus();
  return FieldError("--slots", absl::StrCat(*slots),
                    absl::StrCat("is more than the GPUs that can be used here, ", gpus,
                                 ", and each slot has one of its own: give fewer, or --device=cpu"));
}

// `before` becomes what the processors' times are now.
v1::WorkerUse Look(std::optional<sim::ProcessorTimes>* before) {
  v1::WorkerUse use;
  const auto now = sim::AllowedProcessorTimes();
  const auto share = *before && now ? sim::UsedShare(**before, *now) : std::nullopt;
  if (share) use.set_processor_share(*share);
  *before = now;
  use.set_memory_bytes(launch::HostMemoryUsedBytes());
  use.set_time_us(absl::ToUnixMicros(absl::Now()));
  return use;
}

void AddGpus(const sim::GpuLoadReader& reader, v1::WorkerUse* use) {
  for (const sim::GpuLoad& load : reader.Read()) {
    v1::GpuUse* const gpu = use->add_gpus();
    gpu->set_index(load.index);
    gpu->set_memory_bytes(load.memory_bytes);
    if (load.utilization) gpu->set_utilization(*load.utilization);
    if (load.temperature_celsius) gpu->set_temperature_celsius(*load.temperature_celsius);
    if (load.power_watts) gpu->set_power_watts(*load.power_watts);
    for (const std::string& slowdown : load.slowdowns) gpu->add_slowdowns(slowdown);
    if (load.uncorrected_ecc_errors) gpu->set_uncorrected_ecc_errors(*load.uncorrected_ecc_errors);
  }
}

}  // namespace

absl::StatusOr<ThisWorker> ThisMachine(const MachineOptions& options) {
  const std::string id = options.name.empty() ? AsResourceId(HostName()) : options.name;
  RETURN_IF_ERROR(CheckId("--name", id));
  RETURN_IF_ERROR(CheckId("--pool", options.pool));
  ASSIGN_OR_RETURN(auto devices, FindSlotDevices(options.device, options.device_file));
  const auto gpus = static_cast<int64_t>(devices.gpus.size());
  RETURN_IF_ERROR(CheckSlots(options.slots, gpus));
  ThisWorker result;
  result.device_reason = devices.reason;
  v1::Worker& worker = result.worker;
  worker.set_name("workers/" + id);
  worker.set_host(HostName());
  worker.set_pool(options.pool);
  *worker.mutable_device() = devices.device;
  worker.set_host_memory_bytes(launch::HostMemoryBytes());
  worker.set_host_cores(sim::HostPhysicalCores());
  worker.set_slots(options.slots.value_or(gpus > 0 ? gpus : worker.host_cores()));
  for (int64_t slot = 0; slot < std::min(gpus, worker.slots()); ++slot) *worker.add_slot_devices() = devices.gpus[slot];
  worker.set_build_version(std::string(launch::BuildVersion()));
  worker.set_instance(NewInstance());
  return result;
}

bool HasBeenMeasured() { return access(sim::HostDevicePath().c_str(), R_OK) == 0; }

UseWatch::UseWatch(std::vector<int> gpus, absl::Duration interval)
    : gpus_(std::move(gpus)), interval_(interval), thread_([this] { Work(); }) {}

UseWatch::~UseWatch() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  ended_.NotifyAll();
  thread_.join();
}

std::optional<v1::WorkerUse> UseWatch::Latest() const {
  constexpr int kMissedLooks = 10;
  constexpr std::chrono::seconds kAtLeast{20};
  const MutexLock lock(mutex_);
  const auto longest = kMissedLooks * absl::ToChronoNanoseconds(interval_) + kAtLeast;
  if (std::chrono::steady_clock::now() - looked_ > longest) return std::nullopt;
  return latest_;
}

void UseWatch::Work() {
  std::optional<sim::ProcessorTimes> before;
  std::optional<sim::GpuLoadReader> reader;
  for (;;) {
    v1::WorkerUse use = Look(&before);
    if (!gpus_.empty() && !reader) {
      auto opened = sim::GpuLoadReader::Open(gpus_);
      if (opened.ok()) reader = *std::move(opened);
    }
    if (reader) AddGpus(*reader, &use);
    MutexLock lock(mutex_);
    latest_ = std::move(use);
    looked_ = std::chrono::steady_clock::now();
    const auto next = looked_ + absl::ToChronoNanoseconds(interval_);
    while (!ending_ && ended_.WaitUntil(lock, next)) {
    }
    if (ending_) return;
  }
}

}  // namespace legoai::agent

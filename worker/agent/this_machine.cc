#include "worker/agent/this_machine.h"

#include <unistd.h>

#include <algorithm>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/hardware/host.h"
#include "core/hardware/host_device.h"
#include "core/process/build_version.h"
#include "core/process/memory.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "worker/agent/slot_devices.h"

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

}  // namespace legoai::agent

#include "core/hardware/gpu_health.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/hardware/nvml_library.h"
#include "proto/status.h"

namespace legoai::sim {
namespace {

using namespace nvml;

// What NVIDIA's "XID Errors" (docs.nvidia.com/deploy/xid-errors, its catalog) gives a program that errs as the usual cause of,
// and to start that anew as what to do; and 45, which only follows another, or the end of a program. NVIDIA's device plugin for
// Kubernetes leaves the same ones to programs.
constexpr int64_t kXidsOfPrograms[] = {
    13,   // graphics engine exception: an address or an instruction that cannot be
    31,   // page fault of the GPU's memory
    43,   // the GPU has stopped a program
    45,   // what a program leaves is cleaned up
    68,   // exception of the video decoder
    109,  // a context could not be switched in time
};

constexpr char kReset[] =
    "drain the worker, stop its agent, which holds the card, reset it (`nvidia-smi --gpu-reset`) or boot the host, and start the "
    "agent; have the card replaced if it comes back";

}  // namespace

struct GpuHealthReader::Events {
  Events(std::shared_ptr<const Session> of, EventSet events) : session(std::move(of)), set(events) {}
  ~Events() { session->nvml.free_events(set); }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;
  const std::shared_ptr<const Session> session;
  const EventSet set;
};

absl::StatusOr<GpuHealthReader> GpuHealthReader::Open(const std::vector<int>& indices) {
  GpuHealthReader reader;
  ASSIGN_OR_RETURN(reader.session_, OpenSession());
  const Nvml& nvml = reader.session_->nvml;
  std::string why_none;
  for (const int index : indices) {
    Device device = nullptr;
    const Return error = nvml.handle(static_cast<unsigned>(index), &device);
    if (error != kSuccess && error != kGpuIsLost)
      why_none = absl::StrCat("nvmlDeviceGetHandleByIndex_v2 says of GPU ", index, ": ", nvml.error_string(error));
    reader.devices_.push_back(error == kSuccess ? device : nullptr);
    reader.lost_.push_back(error == kGpuIsLost);
  }
  reader.Register();
  if (!why_none.empty()) reader.why_no_events_ = std::move(why_none);
  return reader;
}

void GpuHealthReader::Register() {
  const Nvml& nvml = session_->nvml;
  EventSet set = nullptr;
  const bool known = nvml.make_events != nullptr && nvml.register_events != nullptr && nvml.wait_event != nullptr &&
                     nvml.free_events != nullptr;
  if (!known) {
    why_no_events_ = "the driver's NVML has no events";
    return;
  }
  if (const Return error = nvml.make_events(&set)) {
    why_no_events_ = absl::StrCat("nvmlEventSetCreate says: ", nvml.error_string(error));
    return;
  }
  events_ = std::make_shared<const Events>(session_, set);
  for (Device device : devices_) {
    // A lost card would end each wait for the others with its error.
    Memory memory = {};
    const bool is_there = device != nullptr && nvml.memory(device, &memory) != kGpuIsLost;
    const Return error = is_there ? nvml.register_events(device, kXidEvent, set) : kSuccess;
    if (error != kSuccess) why_no_events_ = absl::StrCat("nvmlDeviceRegisterEvents says: ", nvml.error_string(error));
  }
}

std::optional<XidEvent> GpuHealthReader::AwaitXid(absl::Duration wait) const {
  const absl::Time end = absl::Now() + wait;
  EventData event = {};
  const auto milliseconds = static_cast<unsigned>(absl::ToInt64Milliseconds(wait));
  const Return error = events_ == nullptr ? kTimeout : session_->nvml.wait_event(events_->set, &event, milliseconds);
  if (error != kSuccess) {
    // A card that is lost makes the wait fail at once.
    absl::SleepFor(std::min(end - absl::Now(), wait));
    return std::nullopt;
  }
  const auto device = std::find(devices_.begin(), devices_.end(), event.device);
  if (event.type != kXidEvent || device == devices_.end()) return std::nullopt;
  return XidEvent{static_cast<size_t>(device - devices_.begin()), static_cast<int64_t>(event.data)};
}

std::vector<GpuHealth> GpuHealthReader::Read() const {
  const Nvml& nvml = session_->nvml;
  std::vector<GpuHealth> all;
  for (size_t i = 0; i < devices_.size(); ++i) {
    GpuHealth& health = all.emplace_back();
    Memory memory = {};
    unsigned long long errors = 0;
    unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
    health.lost = lost_[i];
    if (devices_[i] == nullptr) continue;
    health.lost = nvml.memory(devices_[i], &memory) == kGpuIsLost;
    if (health.lost) continue;
    if (ReadUncorrectedErrors(nvml, devices_[i], &errors) == kSuccess)
      health.uncorrected_ecc_errors = static_cast<int64_t>(errors);
    if (nvml.remapped_rows == nullptr || nvml.remapped_rows(devices_[i], &corrected, &uncorrected, &pending, &failed) != kSuccess)
      continue;
    health.remap_pending = pending != 0;
    health.remap_failed = failed != 0;
  }
  return all;
}

bool IsCriticalXid(int64_t xid) {
  return std::find(std::begin(kXidsOfPrograms), std::end(kXidsOfPrograms), xid) == std::end(kXidsOfPrograms);
}

std::vector<GpuFault> FaultsOf(const GpuHealth& health, int64_t known_ecc_errors) {
  if (health.lost) {
    return {{v1::GPU_LOST, "has fallen off the bus (NVML: GPU is lost): boot the host, and have card and seat looked at"}};
  }
  std::string memory;
  const int64_t errors = health.uncorrected_ecc_errors.value_or(0) - known_ecc_errors;
  if (errors > 0)
    memory = absl::StrCat(errors, errors == 1 ? " ECC error" : " ECC errors", " of its memory could not be corrected");
  if (health.remap_failed) {
    absl::StrAppend(&memory, memory.empty() ? "" : ", and ", "a row of its memory could not be remapped: have the card replaced");
  } else if (health.remap_pending) {
    absl::StrAppend(&memory, memory.empty() ? "" : ", and ", "rows of its memory wait to be remapped: ", kReset);
  } else if (!memory.empty()) {
    absl::StrAppend(&memory, ": ", kReset);
  }
  if (memory.empty()) return {};
  return {{v1::GPU_MEMORY, memory}};
}

}  // namespace legoai::sim

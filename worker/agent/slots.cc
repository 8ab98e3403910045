#include "worker/agent/slots.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/hardware/catalog.h"
#include "core/hardware/host.h"
#include "core/hardware/nvml.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::agent {
namespace {

absl::StatusOr<std::optional<v1::Device>> ReadFile(const std::string& file) {
  if (file.empty()) return std::optional<v1::Device>();
  auto device = sim::LoadDevice(file);
  if (!device.ok()) return FieldError("--device_file", file, std::string(device.status().message()));
  return std::optional<v1::Device>(*std::move(device));
}

absl::StatusOr<SlotDevices> Processors(const std::optional<v1::Device>& file, const std::string& reason) {
  SlotDevices found;
  found.reason = reason;
  if (file) {
    found.device = *file;
    return found;
  }
  ASSIGN_OR_RETURN(const auto measured, sim::LoadHostDevice());
  ASSIGN_OR_RETURN(const auto device, measured.has_value() ? absl::StatusOr<v1::Device>(*measured) : sim::FindDevice("cpu"));
  found.device = device;
  return found;
}

// A plan is made for slots that are alike.
absl::Status CheckAlike(const std::vector<sim::Gpu>& gpus) {
  if (sim::AreAlike(gpus)) return absl::OkStatus();
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return FieldError("CUDA_VISIBLE_DEVICES", visible == nullptr ? "" : visible,
                    absl::StrCat("leaves GPUs of different kinds: ", sim::GpusText(gpus),
                                 ". All slots of a worker must be alike: start one agent for each kind, with the UUIDs of its ",
                                 "cards (`nvidia-smi -L` lists them) in CUDA_VISIBLE_DEVICES"));
}

absl::StatusOr<SlotDevices> Gpus(const sim::NvmlReport& report, const std::optional<v1::Device>& file, const std::string& why) {
  RETURN_IF_ERROR(CheckAlike(report.gpus));
  const auto least = std::min_element(report.gpus.begin(), report.gpus.end(),
                                      [](const sim::Gpu& a, const sim::Gpu& b) { return a.memory_bytes < b.memory_bytes; });
  ASSIGN_OR_RETURN(const auto device,
                   file ? absl::StatusOr<v1::Device>(*file) : sim::FindDeviceOfGpu(least->name, least->memory_bytes));
  SlotDevices found;
  found.device = device;
  found.device.set_memory_bytes(least->memory_bytes);
  for (const sim::Gpu& gpu : report.gpus) {
    v1::SlotDevice& slot = found.gpus.emplace_back();
    slot.set_index(gpu.index);
    slot.set_uuid(gpu.uuid);
    slot.set_name(gpu.name);
    slot.set_memory_bytes(gpu.memory_bytes);
  }
  found.reason = absl::StrCat("GPUs by ", why, ": ", sim::GpusText(report.gpus), ", driver ", report.driver_version);
  return found;
}

}  // namespace

Slots::Slots(int64_t count, std::vector<int> processors, std::vector<std::string> gpus)
    : count_(count), processors_(std::move(processors)), gpus_(std::move(gpus)), taken_(count, false) {}

absl::StatusOr<std::vector<int64_t>> Slots::Take(int64_t count, const std::function<bool()>& given_up) {
  if (count < 1 || count > this->count()) {
    return FieldError("placement.slots", absl::StrCat(count), absl::StrCat("this worker has ", this->count(), " slots"));
  }
  MutexLock lock(mutex_);
  while (!(given_up() || FreeLocked() >= count || SoundLocked() < count)) changed_.Wait(lock);
  if (given_up()) return absl::CancelledError("given up while it waited for slots");
  if (SoundLocked() < count) {
    return absl::UnavailableError(absl::StrCat("of this worker's ", count_, " slots ", SoundLocked(), " are sound, and ", count,
                                               " are wanted: ", faults_.begin()->second));
  }
  std::vector<int64_t> slots;
  for (int64_t slot = 0; static_cast<int64_t>(slots.size()) < count; ++slot) {
    if (!IsFreeLocked(slot)) continue;
    taken_[slot] = true;
    slots.push_back(slot);
  }
  return slots;
}

std::vector<int64_t> Slots::TakeFree() {
  const MutexLock lock(mutex_);
  std::vector<int64_t> slots;
  for (int64_t slot = 0; slot < count_; ++slot) {
    if (taken_[slot]) continue;
    taken_[slot] = true;
    slots.push_back(slot);
  }
  return slots;
}

void Slots::SetFaults(std::map<int64_t, std::string> faults) {
  {
    const MutexLock lock(mutex_);
    faults_ = std::move(faults);
  }
  changed_.NotifyAll();
}

std::string Slots::FaultsOf(const std::vector<int64_t>& slots) const {
  const MutexLock lock(mutex_);
  std::string text;
  for (const int64_t slot : slots) {
    const auto fault = faults_.find(slot);
    if (fault != faults_.end()) absl::StrAppend(&text, text.empty() ? "" : "; ", fault->second);
  }
  return text;
}

void Slots::Give(const std::vector<int64_t>& slots) {
  {
    const MutexLock lock(mutex_);
    for (const int64_t slot : slots) taken_[slot] = false;
  }
  changed_.NotifyAll();
}

void Slots::RecheckWaiting() {
  { const MutexLock lock(mutex_); }  // nobody is between asking and waiting
  changed_.NotifyAll();
}

std::vector<int> Slots::ProcessorsOf(const std::vector<int64_t>& slots) const {
  std::vector<int> processors;
  for (const int64_t slot : slots) processors.push_back(processors_[slot % processors_.size()]);
  return processors;
}

std::vector<std::string> Slots::GpusOf(const std::vector<int64_t>& slots) const {
  std::vector<std::string> gpus;
  if (gpus_.empty()) return gpus;
  for (const int64_t slot : slots) gpus.push_back(gpus_[slot]);
  return gpus;
}

int64_t Slots::free() const {
  const MutexLock lock(mutex_);
  return FreeLocked();
}

int64_t Slots::SoundLocked() const { return count_ - static_cast<int64_t>(faults_.size()); }

bool Slots::IsFreeLocked(int64_t slot) const { return !taken_[slot] && faults_.count(slot) == 0; }

int64_t Slots::FreeLocked() const {
  int64_t free = 0;
  for (int64_t slot = 0; slot < count_; ++slot) free += IsFreeLocked(slot) ? 1 : 0;
  return free;
}

absl::StatusOr<SlotDevices> FindSlotDevices(const std::string& wish, const std::string& device_file) {
  if (wish != "auto" && wish != "cpu" && wish != "cuda") return FieldError("--device", wish, "must be auto, cpu or cuda");
  ASSIGN_OR_RETURN(const auto file, ReadFile(device_file));
  const bool file_of_gpus = file.has_value() && file->kind() == v1::CUDA;
  if (file.has_value() && wish != "auto" && file_of_gpus != (wish == "cuda"))
    return FieldError("--device_file", device_file, absl::StrCat("describes another kind of device than --device=", wish));
  if (wish == "cpu") return Processors(file, "processors by --device=cpu");
  if (file.has_value() && !file_of_gpus) return Processors(file, "processors by --device_file");
  const auto report = sim::ReadNvml();
  if (report.ok()) return Gpus(*report, file, absl::StrCat("--device=", wish));
  const bool may_do_without = wish == "auto" && !file_of_gpus && absl::IsFailedPrecondition(report.status());
  if (!may_do_without) return report.status();
  const auto why = GetFieldViolation(report.status());
  return Processors(file, absl::StrCat("processors by --device=auto: ", why ? why->remedy() : ""));
}

}  // namespace legoai::agent

// What the slots of this machine train on: processors or GPUs. Torch-free. Thread-safety: reads of the machine and its
// environment.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/hardware.pb.h"
#include "proto/legoai/v1/worker.pb.h"

namespace legoai::agent {

struct SlotDevices {
  v1::Device device;                 // of one slot; of GPUs the catalog's, or that of the file, with the memory that they have
  std::vector<v1::SlotDevice> gpus;  // in the order of slots; none where slots are processors
  std::string reason;                // in a few words, for the log: "GPUs by --device=auto: 4 NVIDIA H200, driver 580.65.06"
};

// `wish` is "auto", "cpu" or "cuda". auto: what `device_file` is of; without one GPUs where NVML shows any, else processors.
// `device_file` empty: of processors as they were measured, or the catalog's; of GPUs the catalog's.
// Errors: FieldError of --device, --device_file, "device" (no GPU; a card that the catalog does not know), CUDA_VISIBLE_DEVICES
// (cards of different kinds). Unavailable: there are GPUs, and they fail.
absl::StatusOr<SlotDevices> FindSlotDevices(const std::string& wish, const std::string& device_file);

}  // namespace legoai::agent

// What the agent tells the server of the machine it runs on. Torch-free. Thread-safety: reads of the machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/worker.pb.h"

namespace legoai::agent {

struct MachineOptions {
  std::string name;  // empty: the host's
  std::string pool;
  std::optional<int64_t> slots = std::nullopt;  // unset: one for each GPU, or physical core
  std::string device = "auto";                  // or "cpu", "cuda" (slot_devices.h)
  std::string device_file;                      // empty: as slot_devices.h says
};

struct ThisWorker {
  v1::Worker worker;          // all that is the agent's to say, with an `instance` of its own for this process
  std::string device_reason;  // why its slots are GPUs or processors
};

// Errors: FieldError of an option; those of FindSlotDevices.
absl::StatusOr<ThisWorker> ThisMachine(const MachineOptions& options);

// Whether this machine's own device file is there.
bool HasBeenMeasured();

}  // namespace legoai::agent

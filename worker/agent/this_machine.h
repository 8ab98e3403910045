// What the agent tells the server of the machine it runs on. Torch-free. Thread-safety: reads of the machine.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/worker.pb.h"

namespace legoai::agent {

struct MachineOptions {
  std::string name;  // empty: the host's
  std::string pool;
  int64_t slots = 0;        // 0: one for each physical core
  std::string device_file;  // empty: where `lego hardware --measure` keeps it, or the catalog's cpu where it was not measured
};

// All of Worker that is the agent's to say, with an `instance` of its own for this process. Errors: FieldError of an option.
absl::StatusOr<v1::Worker> ThisMachine(const MachineOptions& options);

// Whether this machine's own device file is there.
bool HasBeenMeasured();

}  // namespace legoai::agent

// The file with this machine's measured CPU, which `lego hardware --measure` makes. Torch-free. Thread-safety: reads of the
// environment and the file.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/hardware.pb.h"

namespace legoai::sim {

// Where it is kept: LEGOAI_HOST_DEVICE, or ~/.cache/legoai/this-machine.txtpb.
std::string HostDevicePath();

// This machine's CPU as it was measured; nothing if it was not. Errors: the file is broken, or LEGOAI_HOST_DEVICE names none.
absl::StatusOr<std::optional<v1::Device>> LoadHostDevice();

}  // namespace legoai::sim

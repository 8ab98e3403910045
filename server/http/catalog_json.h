// What can be planned for without a machine at hand, as the page asks for it: the known models and devices, and a cluster by its
// name. No call of the service: nothing of it is stored, and `lego models` and `lego hardware` have the same tables.
// Torch-free. Thread-safety: pure functions.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace legoai::server {

// {"models": [{"name", "parameters", ...}], "devices": [{"type", "memory_bytes", ...}]}.
std::string CatalogJson();

// The Cluster message of TYPE:DEVICES_PER_NODExNODES. No file is read. Errors: FieldError of "cluster".
absl::StatusOr<std::string> ClusterJson(const std::string& name);

}  // namespace legoai::server

// The methods of the service ControlPlane as the JSON front end calls them: the same handlers that answer gRPC. Thread-safe.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "server/http/handlers.h"
#include "server/rpc/control_plane.h"

namespace legoai::server {

// `control` is not owned and must outlive what is returned. `before_scrape` sets the gauges of Metrics; it may be empty.
Handlers ControlPlaneHandlers(ControlPlane* control, std::function<void()> before_scrape);

// What can be planned for without a machine at hand, as the page asks for it: the known models and devices, and a cluster by its
// name. No call of the service: nothing of it is stored, and `lego models` and `lego hardware` have the same tables.
// Thread-safety: pure functions.

// {"models": [{"name", "parameters", ...}], "devices": [{"type", "memory_bytes", ...}]}.
std::string CatalogJson();

// The Cluster message of TYPE:DEVICES_PER_NODExNODES. No file is read. Errors: FieldError of "cluster".
absl::StatusOr<std::string> ClusterJson(const std::string& name);

}  // namespace legoai::server

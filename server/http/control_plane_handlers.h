// The methods of the service ControlPlane as the JSON front end calls them: the same handlers that answer gRPC. Thread-safe.
#pragma once

#include <functional>

#include "server/http/handlers.h"
#include "server/rpc/control_plane.h"

namespace legoai::server {

// `control` is not owned and must outlive what is returned. `before_scrape` sets the gauges of Metrics; it may be empty.
Handlers ControlPlaneHandlers(ControlPlane* control, std::function<void()> before_scrape);

}  // namespace legoai::server

// Addresses of servers, as people write them. Torch-free.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace legoai::cli {

// That it is HOST:PORT, or a socket's path as gRPC names it. `field`: where it comes from.
absl::Status CheckAddress(const std::string& field, const std::string& address);

}  // namespace legoai::cli

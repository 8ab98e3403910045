// Errors as the answer of an HTTP request: {"error": {"code", "status", "message", "details": [{"field", "value", "remedy"}]}}.
// Thread-safety: pure functions.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace legoai::server {

// The HTTP status of google.rpc's code: 400 for INVALID_ARGUMENT, 404 for NOT_FOUND and so on; 200 for OK.
int HttpCode(absl::StatusCode code);

// The JSON of an error. `http_code` is what the answer has, which says more than the status in cases like 413 and 415.
std::string ErrorJson(const absl::Status& status, int http_code);

}  // namespace legoai::server

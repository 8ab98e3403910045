#include "server/http/http_error.h"

#include "nlohmann/json.hpp"
#include "proto/errors.h"

namespace legoai::server {

int HttpCode(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk: return 200;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange: return 400;
    case absl::StatusCode::kUnauthenticated: return 401;
    case absl::StatusCode::kPermissionDenied: return 403;
    case absl::StatusCode::kNotFound: return 404;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted: return 409;
    case absl::StatusCode::kResourceExhausted: return 429;
    case absl::StatusCode::kCancelled: return 499;
    case absl::StatusCode::kUnimplemented: return 501;
    case absl::StatusCode::kUnavailable: return 503;
    case absl::StatusCode::kDeadlineExceeded: return 504;
    default: return 500;
  }
}

std::string ErrorJson(const absl::Status& status, int http_code) {
  using Json = nlohmann::ordered_json;
  Json error = {{"code", http_code},
                {"status", absl::StatusCodeToString(status.code())},
                {"message", std::string(status.message())},
                {"details", Json::array()}};
  if (const auto violation = GetFieldViolation(status)) {
    error["details"].push_back({{"field", violation->field()}, {"value", violation->value()}, {"remedy", violation->remedy()}});
  }
  return Json{{"error", error}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace legoai::server

#include "server/http/request_guard.h"

#include "absl/strings/ascii.h"
#include "proto/errors.h"

namespace legoai::server {
namespace {

// "LocalHost:8080" -> "localhost"; "[::1]:8080" -> "::1".
std::string NameOf(const std::string& host) {
  const std::string lower = absl::AsciiStrToLower(host);
  if (!lower.empty() && lower[0] == '[') return lower.substr(1, lower.find(']') - 1);
  return lower.substr(0, lower.find(':'));
}

}  // namespace

RequestGuard::RequestGuard(const std::string& address, const std::vector<std::string>& names)
    : names_{"localhost", "127.0.0.1", "::1", absl::AsciiStrToLower(address)} {
  for (const std::string& name : names) names_.insert(absl::AsciiStrToLower(name));
}

absl::Status RequestGuard::CheckHost(const std::string& host) const {
  if (names_.count(NameOf(host))) return absl::OkStatus();
  return FieldError("Host", host, "is none of the server's names: reach it by localhost, or start it with --http_host_names=NAME",
                    absl::StatusCode::kPermissionDenied);
}

absl::Status RequestGuard::CheckOrigin(const std::string& origin, const std::string& host) const {
  if (origin.empty() || origin == "http://" + host || origin == "https://" + host) return absl::OkStatus();
  return FieldError("Origin", origin, "is another site than the server's own, which may change nothing here",
                    absl::StatusCode::kPermissionDenied);
}

absl::Status RequestGuard::CheckContentType(const std::string& type) const {
  const std::string lower = absl::AsciiStrToLower(type.substr(0, type.find(';')));
  if (absl::StripAsciiWhitespace(lower) == "application/json") return absl::OkStatus();
  return FieldError("Content-Type", type, "must be application/json: send the request as JSON with this header");
}

}  // namespace legoai::server

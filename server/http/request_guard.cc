#include "server/http/request_guard.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "proto/errors.h"

namespace legoai::server {
namespace {

constexpr size_t kLongestName = 255;

bool IsPort(std::string_view text) {
  int port = 0;
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos &&
         absl::SimpleAtoi(std::string(text), &port) && port >= 1 && port <= 65535;
}

bool IsName(std::string_view text) {
  return !text.empty() && text.size() <= kLongestName && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_';
  });
}

bool IsV6(const std::string& text) {
  in6_addr address{};
  return inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

}  // namespace

std::optional<std::string> HostName(std::string_view host) {
  const bool brackets = host.starts_with('[');
  const size_t end = brackets ? host.find(']') : std::min(host.find(':'), host.size());
  if (end == std::string_view::npos) return std::nullopt;
  const std::string name = absl::AsciiStrToLower(std::string(host.substr(brackets, end - brackets)));
  const std::string_view rest = host.substr(end + brackets);
  if (!(brackets ? IsV6(name) : IsName(name))) return std::nullopt;
  if (!rest.empty() && (rest[0] != ':' || !IsPort(rest.substr(1)))) return std::nullopt;
  return name;
}

RequestGuard::RequestGuard(const std::string& address, const std::vector<std::string>& names)
    : names_{"localhost", "127.0.0.1", "::1", absl::AsciiStrToLower(address)} {
  for (const std::string& name : names) names_.insert(absl::AsciiStrToLower(name));
}

absl::Status RequestGuard::CheckHost(const std::string& host) const {
  if (const auto name = HostName(host); name && names_.count(*name)) return absl::OkStatus();
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

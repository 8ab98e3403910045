// Checks a request's line and headers before anything is done for it. libevent is lenient about much that decides where a request
// ends and whom it is for; if a proxy in front reads it differently, one client can speak in the name of another (request
// smuggling). So whatever can be read in two ways is refused. Thread-safety: pure functions.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace legoai::server {

// Where the head that `bytes` begin with ends: after its first empty line. npos: not yet.
size_t EndOfHead(std::string_view bytes);

// `head`: from the request line to the empty line. Errors, InvalidArgument with the header as field: no or several Host in
// HTTP/1.1, or one that is not NAME[:PORT]; Content-Length that is not a number or has several values; Transfer-Encoding other
// than `chunked` alone, or beside Content-Length; a body for a method that has none; folded lines, names that are not tokens,
// control characters; a target on a host other than Host.
absl::Status CheckRequestHead(std::string_view head);

// Keeps other pages in the user's browser away from a server on the loopback interface. Thread-safety: immutable.

// The name in a Host header, in lower case, IPv6 without brackets: "LocalHost:8080" -> "localhost", "[::1]" -> "::1". Nothing if
// it is not NAME or NAME:PORT with a port of 1 to 65535.
std::optional<std::string> HostName(std::string_view host);

class RequestGuard {
 public:
  // `address`: where the server listens; `names`: other names by which it is reached.
  RequestGuard(const std::string& address, const std::vector<std::string>& names);

  // A page of another site whose name was made to resolve to this host (DNS rebinding) is recognized by that name. Errors:
  // PermissionDenied with the field "Host".
  absl::Status CheckHost(const std::string& host) const;
  // A browser says which site a request comes from; it must be this one. Empty: no browser. Errors: PermissionDenied.
  absl::Status CheckOrigin(const std::string& origin, const std::string& host) const;
  // A form of another site can send text, but not JSON, without asking first. Errors: InvalidArgument.
  absl::Status CheckContentType(const std::string& type) const;

 private:
  std::set<std::string> names_;
};

}  // namespace legoai::server

// What a request's line and headers must be like before anything is done for it. libevent is lenient about much that decides
// where a request ends and whom it is for; a proxy in front that reads it another way would let one client speak in the name of
// another (request smuggling). So whatever can be read in two ways is refused. Pure functions, thread-safe.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace legoai::server {

// Where the head ends that `bytes` begin with: behind its first empty line. npos: not yet.
size_t EndOfHead(std::string_view bytes);

// `head`: from the request line to the empty line. Errors, InvalidArgument with the header as field: no or several Host in
// HTTP/1.1, or one that is not NAME[:PORT]; Content-Length that is no number or of several values; Transfer-Encoding other than
// `chunked` alone, or beside Content-Length; a body for a method that has none; folded lines, names that are no tokens, control
// characters; a target of another host than Host.
absl::Status CheckRequestHead(std::string_view head);

// What keeps other pages in the user's browser away from a server on the loopback interface. Thread-safety: immutable.

// The name in a Host header, in small letters, of IPv6 without brackets: "LocalHost:8080" -> "localhost", "[::1]" -> "::1".
// Nothing where it is not NAME or NAME:PORT with a port of 1 to 65535.
std::optional<std::string> HostName(std::string_view host);

class RequestGuard {
 public:
  // `address`: on which the server listens; `names`: others by which it is reached.
  RequestGuard(const std::string& address, const std::vector<std::string>& names);

  // A page of another site whose name was made to point here (DNS rebinding) gives itself away by its name. Errors:
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

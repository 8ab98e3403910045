// Where the server listens, and whether it may. There are no users and no encryption yet, so anybody who reaches a port can do
// everything; an address beyond the loopback interface must be requested explicitly. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace legoai::server {

struct ListenAddress {
  std::string host;  // a name or IP address; IPv6 without brackets
  int port = 0;      // 0: any free one
};

// "127.0.0.1:7420", "localhost:0", "[::1]:7420". `field` is the flag, for errors: InvalidArgument.
absl::StatusOr<ListenAddress> ParseListenAddress(const std::string& field, const std::string& text);

// The inverse, with IPv6 in brackets.
std::string ToText(const ListenAddress& address);

// All IP addresses of a host ("127.0.0.1", "::1"), as the system resolves them. Errors: NotFound for `field`.
absl::StatusOr<std::vector<std::string>> ResolveHost(const std::string& field, const std::string& host);

// Whether only this machine can reach the IP address `number`: 127.0.0.0/8, also mapped to IPv6 (::ffff:127.0.0.1), or ::1.
bool IsLoopback(const std::string& number);

// Whether the server may listen on `address`, whose host has these IP addresses: all are loopback, or `insecure` is set. Errors:
// FailedPrecondition for `field`, saying what is reachable, with both remedies.
absl::Status CheckReachable(const std::string& field, const ListenAddress& address, const std::vector<std::string>& numbers,
                            bool insecure);

}  // namespace legoai::server

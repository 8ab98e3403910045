// Where the server listens, and whether it may. Anybody who reaches a port can do everything, since there are no users and no
// encryption yet: so an address beyond this machine's loopback interface has to be asked for. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace legoai::server {

struct ListenAddress {
  std::string host;  // a name or a number; IPv6 without brackets
  int port = 0;      // 0: any that is free
};

// "127.0.0.1:7420", "localhost:0", "[::1]:7420". `field` is the flag, for errors: InvalidArgument.
absl::StatusOr<ListenAddress> ParseListenAddress(const std::string& field, const std::string& text);

// The other way round: IPv6 in brackets.
std::string ToText(const ListenAddress& address);

// All addresses of a host as numbers ("127.0.0.1", "::1"), as the system resolves them. Errors: NotFound for `field`.
absl::StatusOr<std::vector<std::string>> ResolveHost(const std::string& field, const std::string& host);

// Whether only this machine reaches `number`: 127.0.0.0/8, also as IPv6 has it (::ffff:127.0.0.1), or ::1.
bool IsLoopback(const std::string& number);

// Whether the server may listen on `address`, whose host has these numbers: all are loopback, or `insecure` was given. Errors:
// FailedPrecondition for `field`, which says what is reachable and both remedies.
absl::Status CheckReachable(const std::string& field, const ListenAddress& address, const std::vector<std::string>& numbers,
                            bool insecure);

}  // namespace legoai::server

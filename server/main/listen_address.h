// Where the server listens, and whether it may: on an address beyond the loopback interface only with tokens and TLS, or where it
// is told that a network of the operator's own keeps others away. Thread-safe.
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

// Where others reach a server that listens on `listening`: `given` (--advertise_address), or else that address, with this host's
// name where it is every address of the host. Empty where that cannot be known: the port is to be any free one. Errors:
// FieldErrors.
absl::StatusOr<std::string> AdvertisedAddress(const std::string& given, const ListenAddress& listening);

// Whether only this machine can reach the IP address `number`: 127.0.0.0/8, also mapped to IPv6 (::ffff:127.0.0.1), or ::1.
bool IsLoopback(const std::string& number);

// What stands between the server and whoever reaches it.
struct Protection {
  bool tokens = false, tls = false;
  bool insecure = false;  // the operator says that a network does
};

// What is missing: "tokens and TLS", "TLS"; empty: nothing.
std::string MissingOf(const Protection& protection);

// Whether the server may listen on `address`, whose host has these IP addresses: all are loopback, or nothing is missing, or
// `insecure` is set. Errors: FailedPrecondition for `field`, saying what is reachable and what is missing, with all remedies.
absl::Status CheckReachable(const std::string& field, const ListenAddress& address, const std::vector<std::string>& numbers,
                            const Protection& protection);

}  // namespace legoai::server

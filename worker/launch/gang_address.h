// Addresses by which the hosts of a gang reach each other. Thread-safety: functions of the machine's network.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/process/child_process.h"

namespace legoai::launch {

// One of several hosts that train together (gang_hosts.h).
struct GangPlace {
  int64_t hosts = 1;
  int64_t host = 0;            // which of them this one is; the first, 0, coordinates
  std::string address;         // of the first host, a name or an address by which all reach it
  int64_t port = 29500;        // there
  std::string interface = {};  // the network interface that the ranks of this host use; empty: that of the way to the first host
  std::string device = {};     // the kind of this host's devices, as of HostHello; all hosts must have the same
};

// An address of this host and the interface that has it ("10.0.0.3", "eth0").
struct HostAddress {
  std::string address;
  std::string interface;
};

// The first address of `interface`, of IPv4 if it has one. Errors: FieldError of --interface, naming those that there are.
absl::StatusOr<HostAddress> AddressOfInterface(const std::string& interface);

// This end of a connected socket, and the interface that has its address.
absl::StatusOr<HostAddress> OwnAddress(int fd);
// The other end, as text.
std::string PeerAddress(int fd);

// Listens on `host`, a name or an address of this machine; `port` 0: any free one. Sets `address` to what it stands for. Errors:
// FieldErrors of --master-addr and --master-port.
absl::StatusOr<ListenSocket> ListenOn(const std::string& host, int64_t port, std::string* address);

// One attempt, of at most `timeout`, to connect to `host`; the descriptor is close-on-exec. Errors: FieldError of --master-addr
// if it names no host; Unavailable: nobody listens there yet.
absl::StatusOr<int> ConnectTo(const std::string& host, int64_t port, absl::Duration timeout);

}  // namespace legoai::launch

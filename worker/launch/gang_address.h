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
  std::string device = {};     // the kind of this host's devices, as of HostHello; all hosts must have the same
};

// The first address of `interface`, of IPv4 if it has one. Errors: FieldError of --interface, naming those that there are.
absl::StatusOr<std::string> AddressOfInterface(const std::string& interface);

// The name of the variable in a rank's environment that says which interface Gloo uses, as in PyTorch.
inline constexpr char kGlooInterface[] = "GLOO_SOCKET_IFNAME";

// Has this host's ranks, by Gloo and NCCL, talk to other hosts over `interface`: in this process's environment, which they
// inherit. Errors: as of AddressOfInterface. Not thread-safe: call it before threads are started.
absl::Status UseInterface(const std::string& interface);

// What a rank listens on, so that the others of its gang reach it, given where the gang meets: the address of the interface that
// kGlooInterface names, else this host's own on the way to there.
absl::StatusOr<std::string> ListenAddress(const std::string& rendezvous_host, int64_t rendezvous_port);

// The other end of a connected socket, as text.
std::string PeerAddress(int fd);

// Listens on `host`, a name or an address of this machine; `port` 0: any free one. Sets `address` to what it stands for. Errors:
// FieldErrors of --master-addr and --master-port.
absl::StatusOr<ListenSocket> ListenOn(const std::string& host, int64_t port, std::string* address);

// One attempt, of at most `timeout`, to connect to `host`; the descriptor is close-on-exec. Errors: FieldError of --master-addr
// if it names no host; Unavailable: nobody listens there yet.
absl::StatusOr<int> ConnectTo(const std::string& host, int64_t port, absl::Duration timeout);

}  // namespace legoai::launch

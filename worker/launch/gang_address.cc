#include "worker/launch/gang_address.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::launch {
namespace {

std::string TextOf(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET)
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof(text));
  if (address->sa_family == AF_INET6)
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof(text));
  return text;
}

using Interfaces = std::unique_ptr<ifaddrs, decltype(&freeifaddrs)>;

Interfaces ListInterfaces() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) first = nullptr;
  return Interfaces(first, &freeifaddrs);
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

absl::StatusOr<Addresses> Resolve(const std::string& host, int64_t port, int type) {
  if (port < 0 || port > 65535) return FieldError("--master-port", absl::StrCat(port), "must be from 1 to 65535");
  addrinfo hints = {};
  hints.ai_socktype = type;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found);
  if (error == 0) return Addresses(found, &freeaddrinfo);
  return FieldError("--master-addr", host, absl::StrCat("is no address or name of a host: ", gai_strerror(error)));
}

// `fd` is connecting: whether it has got there in time.
absl::Status AwaitConnection(int fd, absl::Duration timeout) {
  pollfd waiting = {fd, POLLOUT, 0};
  if (poll(&waiting, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout))) <= 0)
    return absl::UnavailableError("no answer");
  int error = 0;
  socklen_t length = sizeof(error);
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
  return error == 0 ? absl::OkStatus() : absl::UnavailableError(std::strerror(error));
}

absl::StatusOr<int> Connect(const addrinfo& to, absl::Duration timeout) {
  const int fd = socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return absl::UnavailableError(absl::StrCat("socket: ", std::strerror(errno)));
  auto close_it = absl::MakeCleanup([fd] { close(fd); });
  if (connect(fd, to.ai_addr, to.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return absl::UnavailableError(std::strerror(errno));
    RETURN_IF_ERROR(AwaitConnection(fd, timeout));
  }
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  std::move(close_it).Cancel();
  return fd;
}

// A name that stands for this host alone, as Debian's /etc/hosts has it of the host's own: no other host finds it by that.
bool MeansOnlyThisHost(const std::string& host, const std::string& address) {
  unsigned char bytes[sizeof(in6_addr)];
  const bool is_address = inet_pton(AF_INET, host.c_str(), bytes) == 1 || inet_pton(AF_INET6, host.c_str(), bytes) == 1;
  const bool is_loopback = address.rfind("127.", 0) == 0 || address == "::1";
  return is_loopback && !is_address && host != "localhost";
}

}  // namespace

absl::StatusOr<std::string> AddressOfInterface(const std::string& interface) {
  const Interfaces all = ListInterfaces();
  std::set<std::string> names;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* one = all.get(); one != nullptr; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != family || (one->ifa_flags & IFF_UP) == 0) continue;
      if (one->ifa_name == interface) return TextOf(one->ifa_addr);
      names.insert(one->ifa_name);
    }
  }
  return FieldError("--interface", interface,
                    absl::StrCat("is no network interface of this host that is up and has an address; there are ",
                                 absl::StrJoin(names, ", ")));
}

absl::Status UseInterface(const std::string& interface) {
  RETURN_IF_ERROR(AddressOfInterface(interface).status());
  setenv(kGlooInterface, interface.c_str(), /*overwrite=*/1);
  setenv("NCCL_SOCKET_IFNAME", absl::StrCat("=", interface).c_str(), /*overwrite=*/1);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ListenAddress(const std::string& rendezvous_host, int64_t rendezvous_port) {
  if (const char* interface = std::getenv(kGlooInterface); interface != nullptr && *interface != '\0')
    return AddressOfInterface(interface);
  ASSIGN_OR_RETURN(const Addresses found, Resolve(rendezvous_host, rendezvous_port, SOCK_DGRAM));
  const int fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ResourceExhaustedError(absl::StrCat("socket: ", std::strerror(errno)));
  const auto close_it = absl::MakeCleanup([fd] { close(fd); });
  sockaddr_storage own = {};
  socklen_t length = sizeof(own);
  auto* const raw = reinterpret_cast<sockaddr*>(&own);
  // Nothing is sent: the socket only learns which way it would go.
  if (connect(fd, found->ai_addr, found->ai_addrlen) != 0 || getsockname(fd, raw, &length) != 0)
    return absl::UnavailableError(absl::StrCat("no way to ", rendezvous_host, ": ", std::strerror(errno)));
  return TextOf(raw);
}

std::string PeerAddress(int fd) {
  sockaddr_storage peer = {};
  socklen_t length = sizeof(peer);
  auto* const raw = reinterpret_cast<sockaddr*>(&peer);
  return getpeername(fd, raw, &length) == 0 ? TextOf(raw) : "";
}

absl::StatusOr<ListenSocket> ListenOn(const std::string& host, int64_t port, std::string* address) {
  ASSIGN_OR_RETURN(const Addresses found, Resolve(host, port, SOCK_STREAM));
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ResourceExhaustedError(absl::StrCat("socket: ", std::strerror(errno)));
  auto close_it = absl::MakeCleanup([fd] { close(fd); });
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_storage own = {};
  socklen_t length = sizeof(own);
  auto* const raw = reinterpret_cast<sockaddr*>(&own);
  if (bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, SOMAXCONN) != 0 || getsockname(fd, raw, &length) != 0) {
    const int error = errno;
    if (error == EADDRNOTAVAIL) {
      return FieldError("--master-addr", host,
                        "is no address of this host, which is the first (--node-rank 0): give the address by which the others "
                        "reach it, the same in every call");
    }
    return FieldError("--master-port", absl::StrCat(port),
                      error == EADDRINUSE ? "is in use: choose another, the same in every call"
                                          : absl::StrCat("cannot be listened on: ", std::strerror(error)),
                      absl::StatusCode::kUnavailable);
  }
  *address = TextOf(raw);
  if (MeansOnlyThisHost(host, *address)) {
    return FieldError("--master-addr", host,
                      absl::StrCat("stands for ", *address, " on this host, where no other reaches it: give its address"));
  }
  const in_port_t bound = own.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(raw)->sin6_port
                                                    : reinterpret_cast<sockaddr_in*>(raw)->sin_port;
  std::move(close_it).Cancel();
  return ListenSocket{fd, ntohs(bound)};
}

absl::StatusOr<int> ConnectTo(const std::string& host, int64_t port, absl::Duration timeout) {
  ASSIGN_OR_RETURN(const Addresses found, Resolve(host, port, SOCK_STREAM));
  absl::StatusOr<int> fd = absl::UnavailableError("it has no address");
  const absl::Time until = absl::Now() + timeout;
  for (const addrinfo* one = found.get(); one != nullptr && !fd.ok(); one = one->ai_next)
    fd = Connect(*one, std::max(until - absl::Now(), absl::ZeroDuration()));
  return fd;
}

}  // namespace legoai::launch

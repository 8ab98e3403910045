#include "core/process/listen_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"

namespace legoai::launch {

absl::StatusOr<ListenSocket> ListenOnLoopback(int64_t port) {
  if (port < 0 || port > 65535) return FieldError("rendezvous_port", absl::StrCat(port), "must be from 0 (any) to 65535");
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ResourceExhaustedError(absl::StrCat("socket: ", std::strerror(errno)));
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  socklen_t length = sizeof(address);
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  if (bind(fd, raw, sizeof(address)) != 0 || listen(fd, SOMAXCONN) != 0 || getsockname(fd, raw, &length) != 0) {
    const int error = errno;
    close(fd);
    const char* remedy = error == EADDRINUSE ? "the port is in use: choose another, or 0 for any that is free" : nullptr;
    return FieldError("rendezvous_port", absl::StrCat(port),
                      remedy ? remedy : absl::StrCat("cannot be listened on: ", std::strerror(error)),
                      absl::StatusCode::kUnavailable);
  }
  return ListenSocket{fd, ntohs(address.sin_port)};
}

}  // namespace legoai::launch

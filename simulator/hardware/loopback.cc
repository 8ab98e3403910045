#include "simulator/hardware/loopback.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace legoai::sim {
namespace {

class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

struct Pair {
  Socket left, right;
};

absl::Status Failed(const char* what) {
  return absl::UnavailableError(absl::StrCat("measuring the loopback interface: ", what, ": ", std::strerror(errno)));
}

absl::StatusOr<Pair> Connect() {
  Socket listener(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* any = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof address;
  if (listener.fd() < 0 || bind(listener.fd(), any, length) != 0 || listen(listener.fd(), 1) != 0) return Failed("listen");
  if (getsockname(listener.fd(), any, &length) != 0) return Failed("getsockname");
  Pair pair;
  pair.left = Socket(socket(AF_INET, SOCK_STREAM, 0));
  if (pair.left.fd() < 0 || connect(pair.left.fd(), any, length) != 0) return Failed("connect");
  pair.right = Socket(accept(listener.fd(), nullptr, nullptr));
  if (pair.right.fd() < 0) return Failed("accept");
  int one = 1;
  for (const Socket* end : {&pair.left, &pair.right}) setsockopt(end->fd(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return pair;
}

bool SendAll(const Socket& socket, const char* data, size_t size) {
  while (size > 0) {
    ssize_t sent = send(socket.fd(), data, size, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    data += sent;
    size -= static_cast<size_t>(sent);
  }
  return true;
}

bool ReceiveAll(const Socket& socket, char* data, size_t size) {
  while (size > 0) {
    ssize_t received = recv(socket.fd(), data, size, 0);
    if (received <= 0) return false;
    data += received;
    size -= static_cast<size_t>(received);
  }
  return true;
}

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Seconds in which `rounds` messages go from left to right, each answered by one byte.
double Exchange(Pair& pair, size_t bytes, int rounds) {
  std::vector<char> out(bytes, 1), in(bytes);
  double begin = Now();
  std::thread echo([&] {
    for (int i = 0; i < rounds && ReceiveAll(pair.right, in.data(), bytes); ++i) SendAll(pair.right, in.data(), 1);
  });
  char answer;
  for (int i = 0; i < rounds && SendAll(pair.left, out.data(), bytes); ++i) ReceiveAll(pair.left, &answer, 1);
  echo.join();
  return Now() - begin;
}

}  // namespace

absl::StatusOr<v1::Link> MeasureLoopback() {
  auto pair = Connect();
  if (!pair.ok()) return pair.status();
  constexpr size_t kLarge = 16 << 20;
  Exchange(*pair, kLarge, 1);
  const double latency = Exchange(*pair, 1, 2000) / 2000 / 2;
  const double large = Exchange(*pair, kLarge, 16) / 16;
  v1::Link link;
  link.set_type("loopback");
  link.set_latency_seconds(latency);
  link.set_bandwidth_bytes_per_second(static_cast<double>(kLarge) / large);
  link.set_efficiency(1);
  link.add_sources("measured on this machine: TCP between two threads, messages of 16 MiB and of one byte");
  return link;
}

}  // namespace legoai::sim

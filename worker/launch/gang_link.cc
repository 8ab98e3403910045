#include "worker/launch/gang_link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "worker/launch/gang_address.h"

namespace legoai::launch {
namespace {

// A message is sent at once; one that is not acknowledged in time, or a peer that is gone without a word, ends the connection
// also while nobody looks at what comes.
void SetUp(int fd) {
  const auto set = [fd](int level, int option, int value) { setsockopt(fd, level, option, &value, sizeof(value)); };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(absl::ToInt64Milliseconds(kHostTimeout + absl::Seconds(5))));
  const timeval timeout = {10, 0};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
}

}  // namespace

GangLink::GangLink(int fd, std::unique_ptr<google::protobuf::MessageLite> alive)
    : fd_(fd), peer_(PeerAddress(fd)), alive_(std::move(alive)), reader_(fd) {
  SetUp(fd_);
}

void GangLink::StartBeat() {
  beat_ = std::thread([this] { Beat(); });
}

GangLink::~GangLink() {
  EndBeat();
  close(fd_);
}

void GangLink::EndBeat() {
  {
    const MutexLock lock(mutex_);
    ends_ = true;
    ending_.NotifyAll();
  }
  if (beat_.joinable()) beat_.join();
}

// A socket that is closed with something unread resets the connection, and the peer could lose what it has not read yet.
void GangLink::Finish(const google::protobuf::MessageLite& last) {
  EndBeat();
  Send(last);
  shutdown(fd_, SHUT_WR);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  char unread[4096];
  while (std::chrono::steady_clock::now() < until) {
    pollfd readable = {fd_, POLLIN, 0};
    if (poll(&readable, 1, 100) > 0 && recv(fd_, unread, sizeof(unread), 0) <= 0) return;
  }
}

void GangLink::Beat() {
  MutexLock lock(mutex_);
  while (!ends_) {
    const auto next = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (!ends_ && ending_.WaitUntil(lock, next)) {
    }
    if (ends_) return;
    lock.Unlock();
    Send(*alive_);
    lock.Lock();
  }
}

void GangLink::Send(const google::protobuf::MessageLite& message) {
  const MutexLock lock(send_mutex_);
  if (!WriteMessage(fd_, message).ok()) shutdown(fd_, SHUT_RDWR);
}

absl::Status GangLink::Receive(google::protobuf::MessageLite* message, absl::FunctionRef<void()> hear) {
  const absl::StatusOr<bool> open = reader_.Fill();
  while (true) {
    const absl::StatusOr<bool> got = reader_.Next(message);
    if (!got.ok()) return got.status();
    if (!*got) break;
    hear();
  }
  if (!open.ok()) return open.status();
  return *open ? absl::OkStatus() : absl::UnavailableError("it has closed the connection");
}

}  // namespace legoai::launch

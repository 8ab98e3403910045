#include "server/oidc/testing/key_server.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"

namespace legoai::oidc {

KeyServer::KeyServer(const std::string& body) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener_, 8) != 0) std::abort();
  getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
  Answer(body);
  thread_ = std::thread([this] { Serve(); });
}

KeyServer::~KeyServer() {
  shutdown(listener_, SHUT_RDWR);
  thread_.join();
  for (const int fd : open_) close(fd);
  close(listener_);
}

std::string KeyServer::url() const { return absl::StrCat("http://127.0.0.1:", port_, "/realms/lego/certs"); }

void KeyServer::Set(Manner manner, std::string answer) {
  const MutexLock lock(mutex_);
  manner_ = manner;
  answer_ = std::move(answer);
}

void KeyServer::Answer(const std::string& body, int status, const std::string& headers) {
  Set(Manner::kAnswer, absl::StrCat("HTTP/1.1 ", status, " X\r\nContent-Length: ", body.size(), "\r\n", headers,
                                    "Connection: close\r\n\r\n", body));
}

void KeyServer::Hang() { Set(Manner::kHang, ""); }

void KeyServer::HangUp() { Set(Manner::kHangUp, ""); }

void KeyServer::Serve() {
  while (true) {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return;
    std::string text;
    char buffer[4096];
    while (text.find("\r\n\r\n") == std::string::npos) {
      const ssize_t got = recv(fd, buffer, sizeof(buffer), 0);
      if (got <= 0) break;
      text.append(buffer, static_cast<size_t>(got));
    }
    ++requests_;
    MutexLock lock(mutex_);
    const Manner manner = manner_;
    const std::string answer = answer_;
    lock.Unlock();
    if (manner == Manner::kHang) {
      open_.push_back(fd);
      continue;
    }
    send(fd, answer.data(), answer.size(), MSG_NOSIGNAL);
    close(fd);
  }
}

}  // namespace legoai::oidc

// A client of raw sockets for tests of the HTTP server: sends any bytes, keeps what comes back.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace legoai::server::http_test {

// One connection: what it sends, and what has come back.
class Client {
 public:
  // `from`: the address of its own end, within 127.0.0.0/8. `buffer_bytes`: of what it has not read yet; 0: the system's.
  explicit Client(int port, const char* from = nullptr, int buffer_bytes = 0) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    if (buffer_bytes > 0) setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof(buffer_bytes));
    if (from) {
      sockaddr_in own{};
      own.sin_family = AF_INET;
      inet_pton(AF_INET, from, &own.sin_addr);
      EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&own), sizeof(own)), 0);
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Client() { close(fd_); }
  Client(const Client&) = delete;

  void Send(const std::string& text) {
    for (size_t sent = 0; sent < text.size();) {
      const ssize_t n = send(fd_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return;
      sent += static_cast<size_t>(n);
    }
  }
  // Reads until `text` is among what came, or the other side closes; everything that came.
  const std::string& ReadUntil(const std::string& text) {
    while (received_.find(text) == std::string::npos && ReadSome(60'000)) {
    }
    return received_;
  }
  const std::string& ReadAll() {
    while (ReadSome(60'000)) {
    }
    return received_;
  }
  // Whether the other side has closed, within `milliseconds` without a byte.
  bool IsClosed(int milliseconds) {
    while (true) {
      pollfd ready{fd_, POLLIN, 0};
      if (poll(&ready, 1, milliseconds) <= 0) return false;
      char buffer[4096];
      const ssize_t n = recv(fd_, buffer, sizeof(buffer), 0);
      if (n <= 0) return true;
      received_.append(buffer, static_cast<size_t>(n));
    }
  }
  const std::string& received() const { return received_; }
  // Whether the other side has answered or closed within `milliseconds`.
  bool ReadSome(int milliseconds) {
    pollfd ready{fd_, POLLIN, 0};
    char buffer[4096];
    if (poll(&ready, 1, milliseconds) <= 0) return false;
    const ssize_t n = recv(fd_, buffer, sizeof(buffer), 0);
    if (n > 0) received_.append(buffer, static_cast<size_t>(n));
    return n > 0;
  }

 private:
  const int fd_;
  std::string received_;
};

struct Answer {
  int code = 0;
  std::string head, body;
  nlohmann::json Json() const { return nlohmann::json::parse(body, nullptr, false); }
};

inline std::string Request(const std::string& method, const std::string& path, const std::string& body = "",
                           const std::string& headers = "") {
  return absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: localhost\r\n", headers,
                      body.empty() ? "" : absl::StrCat("Content-Length: ", body.size(), "\r\n"), "\r\n", body);
}

inline Answer Parse(const std::string& text) {
  Answer answer;
  const size_t end = text.find("\r\n\r\n");
  if (end == std::string::npos) return answer;
  answer.head = text.substr(0, end);
  answer.body = text.substr(end + 4);
  answer.code = std::stoi(text.substr(9, 3));
  return answer;
}

}  // namespace legoai::server::http_test

#include "core/objectstore/testing/scripted_store.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/objectstore/testing/versitygw.h"

namespace legoai::objectstore {
namespace {

// Head and body, whose length the head says.
std::string ReadRequest(int fd) {
  std::string text;
  size_t end = std::string::npos;
  size_t body = 0;
  char buffer[4096];
  while (end == std::string::npos || text.size() < end + 4 + body) {
    const ssize_t got = recv(fd, buffer, sizeof(buffer), 0);
    if (got <= 0) break;
    text.append(buffer, static_cast<size_t>(got));
    end = text.find("\r\n\r\n");
    if (end == std::string::npos) continue;
    const std::string head = absl::AsciiStrToLower(text.substr(0, end));
    const size_t length = head.find("\r\ncontent-length: ");
    if (length == std::string::npos) continue;
    const size_t begin = length + 18;
    if (!absl::SimpleAtoi(head.substr(begin, head.find("\r\n", begin) - begin), &body)) body = 0;
  }
  return text;
}

}  // namespace

ScriptedStore::ScriptedStore(std::vector<std::string> answers) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener_, 8) != 0) std::abort();
  getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
  setenv("AWS_ENDPOINT_URL_S3", absl::StrCat("http://127.0.0.1:", ntohs(address.sin_port)).c_str(), 1);
  UseKeys(kTestAccess, kTestSecret);
  requests_.resize(answers.size());
  thread_ = std::thread([this, answers = std::move(answers)] { Serve(answers); });
}

ScriptedStore::~ScriptedStore() {
  shutdown(listener_, SHUT_RDWR);
  thread_.join();
  close(listener_);
}

void ScriptedStore::Serve(const std::vector<std::string>& answers) {
  for (const std::string& answer : answers) {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) break;
    requests_[count_] = ReadRequest(fd);
    ++count_;
    send(fd, answer.data(), answer.size(), MSG_NOSIGNAL);
    close(fd);
  }
  shutdown(listener_, SHUT_RDWR);
}

std::vector<std::string> ScriptedStore::requests() const {
  return {requests_.begin(), requests_.begin() + static_cast<std::ptrdiff_t>(count_.load())};
}

std::string Answer(int status, const std::string& body) {
  return absl::StrCat("HTTP/1.1 ", status, " X\r\nContent-Length: ", body.size(),
                      "\r\nETag: \"tag\"\r\nConnection: close\r\n\r\n", body);
}

std::string Refusal(int status, const std::string& code, const std::string& message) {
  return Answer(status, absl::StrCat("<?xml version=\"1.0\"?><Error><Code>", code, "</Code><Message>", message,
                                     "</Message></Error>"));
}

}  // namespace legoai::objectstore

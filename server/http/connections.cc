#include "server/http/connections.h"

#include <arpa/inet.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace legoai::server {
namespace {

constexpr size_t kLongestPage = 1024;

// evhttp tells nobody of a connection that ends before it has asked something. But it sets callbacks with itself as argument as
// long as it has the connection, and bufferevent_free clears them.
bool IsFreed(bufferevent* connection) {
  void* argument = nullptr;
  bufferevent_getcb(connection, nullptr, nullptr, nullptr, &argument);
  return argument == nullptr;
}

// The status of libevent's own page, head and body of which lie in `output`; 0: it is something else. Answers of the server's own
// have a header that libevent knows nothing of. There is one answer at a time on a connection, so it begins where `output` does.
int StatusOfPage(evbuffer* output) {
  const size_t size = evbuffer_get_length(output);
  if (size > kLongestPage) return 0;
  char text[kLongestPage];
  evbuffer_copyout(output, text, size);
  const std::string_view answer(text, size);
  int code = 0;
  if (!answer.starts_with("HTTP/1.") || !answer.ends_with("</HTML>\n")) return 0;
  const bool is_page = absl::SimpleAtoi(std::string(answer.substr(9, 3)), &code) && code >= 400 &&
                       answer.find("\r\n\r\n<HTML>") != std::string_view::npos &&
                       answer.find("X-Content-Type-Options") == std::string_view::npos;
  return is_page ? code : 0;
}

// "127.0.0.1:4711"
std::string PeerOf(evutil_socket_t fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  char text[INET6_ADDRSTRLEN] = "";
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address);
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address);
  const bool is_v6 = address.ss_family == AF_INET6;
  inet_ntop(address.ss_family, is_v6 ? static_cast<const void*>(&v6->sin6_addr) : &v4->sin_addr, text, sizeof(text));
  return absl::StrCat(text, ":", ntohs(is_v6 ? v6->sin6_port : v4->sin_port));
}

std::string AnswerText(const char* status_line, const std::string& body) {
  return absl::StrCat(status_line, "\r\nContent-Type: application/json\r\nContent-Length: ", body.size(),
                      "\r\nConnection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\r\n", body);
}

}  // namespace

Connections::Connections(evhttp* http, evconnlistener* listener, size_t max_connections, ErrorBody error_body)
    : listener_(listener), max_connections_(max_connections), error_body_(std::move(error_body)) {
  evhttp_set_bevcb(http, &OnConnection, this);
}

Connections::~Connections() {
  for (const auto& connection : open_) bufferevent_decref(connection->io);
}

bufferevent* Connections::OnConnection(event_base* base, void* self) {
  auto* all = static_cast<Connections*>(self);
  bufferevent* io = bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
  if (!io) return nullptr;
  bufferevent_incref(io);
  all->open_.push_back(std::make_unique<Connection>(Connection{all, io}));
  evbuffer_add_cb(bufferevent_get_output(io), &OnOutput, all->open_.back().get());
  if (all->open_.size() >= all->max_connections_) {
    evconnlistener_disable(all->listener_);
    all->resting_ = true;
  }
  return io;
}

void Connections::OnOutput(evbuffer* output, const evbuffer_cb_info* change, void* connection) {
  if (change->n_added == 0) return;
  const int code = StatusOfPage(output);
  if (code == 0) return;
  const auto* of = static_cast<const Connection*>(connection);
  const std::string body = of->all->error_body_(code, PeerOf(bufferevent_getfd(of->io)));
  // A bufferevent freezes the front of what it has not begun to write.
  evbuffer_unfreeze(output, 1);
  char* line = evbuffer_readln(output, nullptr, EVBUFFER_EOL_CRLF_STRICT);
  evbuffer_drain(output, evbuffer_get_length(output));
  evbuffer_freeze(output, 1);
  const std::string answer = AnswerText(line, body);
  free(line);
  evbuffer_add(output, answer.data(), answer.size());
}

void Connections::Sweep() {
  const auto freed = std::partition(open_.begin(), open_.end(), [](const auto& connection) { return !IsFreed(connection->io); });
  std::for_each(freed, open_.end(), [](const auto& connection) { bufferevent_decref(connection->io); });
  open_.erase(freed, open_.end());
  if (resting_ && open_.size() < max_connections_) {
    resting_ = false;
    evconnlistener_enable(listener_);
  }
}

}  // namespace legoai::server

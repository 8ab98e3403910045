// What evhttp leaves to be done about its connections. On the loop's thread.
//
// A bound: there its listener rests, and further clients wait in the system's queue. Without that, clients that connect and say
// nothing would use up the process' file descriptors.
//
// Errors as data: a request that libevent cannot read, or that is too large, it answers itself, with a page of HTML, and asks
// nobody (evhttp_set_errorcb is of libevent 2.2). Such a page is replaced before it leaves.
#pragma once

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/http.h>
#include <event2/listener.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace legoai::server {

class Connections {
 public:
  // What is answered instead of libevent's page: a body of JSON, for an HTTP status and the client's address ("127.0.0.1:4711").
  using ErrorBody = std::function<std::string(int code, const std::string& remote)>;

  // Owns neither. Must be destroyed after `http`, and before its event_base.
  Connections(evhttp* http, evconnlistener* listener, size_t max_connections, ErrorBody error_body);
  ~Connections();
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  // Forgets connections that are closed. To be called now and then.
  void Sweep();
  size_t open() const { return open_.size(); }

 private:
  struct Connection {
    Connections* all;
    bufferevent* io;  // with a reference of ours
  };

  static bufferevent* OnConnection(event_base* base, void* self);
  static void OnOutput(evbuffer* output, const evbuffer_cb_info* change, void* connection);

  evconnlistener* const listener_;
  const size_t max_connections_;
  const ErrorBody error_body_;
  bool resting_ = false;
  std::vector<std::unique_ptr<Connection>> open_;
};

}  // namespace legoai::server

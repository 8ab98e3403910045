// Bounds the connections of an evhttp: at the bound its listener rests, and further clients wait in the system's queue. Without
// that, clients that connect and say nothing would use up the process' file descriptors. On the loop's thread.
#pragma once

#include <event2/bufferevent.h>
#include <event2/http.h>
#include <event2/listener.h>

#include <vector>

namespace legoai::server {

class ConnectionLimit {
 public:
  // Owns neither. Must be destroyed after `http`, and before its event_base.
  ConnectionLimit(evhttp* http, evconnlistener* listener, size_t max_connections);
  ~ConnectionLimit();
  ConnectionLimit(const ConnectionLimit&) = delete;
  ConnectionLimit& operator=(const ConnectionLimit&) = delete;

  // Forgets connections that are closed. To be called now and then.
  void Sweep();
  size_t open() const { return open_.size(); }

 private:
  static bufferevent* OnConnection(event_base* base, void* self);

  evconnlistener* const listener_;
  const size_t max_connections_;
  bool resting_ = false;
  std::vector<bufferevent*> open_;  // each with a reference of ours
};

}  // namespace legoai::server

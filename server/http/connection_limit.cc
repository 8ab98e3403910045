#include "server/http/connection_limit.h"

#include <event2/event.h>

#include <algorithm>

namespace legoai::server {
namespace {

// evhttp tells nobody of a connection that ends before it has asked something. But it sets callbacks with itself as argument as
// long as it has the connection, and bufferevent_free clears them.
bool IsFreed(bufferevent* connection) {
  void* argument = nullptr;
  bufferevent_getcb(connection, nullptr, nullptr, nullptr, &argument);
  return argument == nullptr;
}

}  // namespace

ConnectionLimit::ConnectionLimit(evhttp* http, evconnlistener* listener, size_t max_connections)
    : listener_(listener), max_connections_(max_connections) {
  evhttp_set_bevcb(http, &OnConnection, this);
}

ConnectionLimit::~ConnectionLimit() {
  for (bufferevent* connection : open_) bufferevent_decref(connection);
}

bufferevent* ConnectionLimit::OnConnection(event_base* base, void* self) {
  auto* limit = static_cast<ConnectionLimit*>(self);
  bufferevent* connection = bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
  if (!connection) return nullptr;
  bufferevent_incref(connection);
  limit->open_.push_back(connection);
  if (limit->open_.size() >= limit->max_connections_) {
    evconnlistener_disable(limit->listener_);
    limit->resting_ = true;
  }
  return connection;
}

void ConnectionLimit::Sweep() {
  const auto freed = std::partition(open_.begin(), open_.end(), [](bufferevent* connection) { return !IsFreed(connection); });
  std::for_each(freed, open_.end(), [](bufferevent* connection) { bufferevent_decref(connection); });
  open_.erase(freed, open_.end());
  if (resting_ && open_.size() < max_connections_) {
    resting_ = false;
    evconnlistener_enable(listener_);
  }
}

}  // namespace legoai::server

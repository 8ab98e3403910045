// How many of something (streams, watches) are open, in all and of each client, so that one client cannot take every place.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "core/process/mutex.h"

namespace legoai::server {

// Who is behind a connection: its address without the port, of IPv6 the first 64 bits, which one host has for itself. `peer` is
// as sockets ("127.0.0.1:4711", "2001:db8::1:4711") or as gRPC ("ipv4:127.0.0.1:4711", "ipv6:%5B::1%5D:4711") write it. What is
// no address is given back as it is.
std::string ClientOf(std::string_view peer);

// Thread-safe.
class ClientQuota {
 public:
  enum class Answer { kTaken, kFull, kClientIsFull };

  ClientQuota(size_t most, size_t most_per_client) : most_(most), most_per_client_(most_per_client) {}
  ClientQuota(const ClientQuota&) = delete;
  ClientQuota& operator=(const ClientQuota&) = delete;

  // kTaken: to be given back, once.
  Answer Take(const std::string& client);
  void GiveBack(const std::string& client);

 private:
  const size_t most_, most_per_client_;
  Mutex mutex_;
  size_t taken_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, size_t> of_ ABSL_GUARDED_BY(mutex_);  // clients that have some
};

}  // namespace legoai::server

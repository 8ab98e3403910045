// The one place that every call of a user passes before its handler, over gRPC and over HTTP: who asks, for what, and with which
// request. Free of both. Thread-safe.
#pragma once

#include <google/protobuf/message.h>

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "core/process/mutex.h"

namespace legoai::server {

struct Caller {
  std::string_view way;  // "grpc", "http"
  std::string remote;    // the address it comes from, as that way writes it
};

// OK: the handler of this method of ControlPlane is to be called. Otherwise this is the answer: InvalidArgument for a field or an
// enum value that the server does not know. Of a call that is more than a look (by its google.api.http: no GET) the log says who
// asked for it.
absl::Status AdmitCall(const Caller& caller, const std::string& method, const google::protobuf::Message& request);

// Who is behind a connection: its address without the port, of IPv6 the first 64 bits, which one host has for itself. `peer` is
// as sockets ("127.0.0.1:4711", "2001:db8::1:4711") or as gRPC ("ipv4:127.0.0.1:4711", "ipv6:%5B::1%5D:4711") write it. What is
// no address is given back as it is.
std::string ClientOf(std::string_view peer);

// How many of something are open, in all and of each client, so that one client cannot take every place. Thread-safe.
class ClientQuota {
 public:
  enum class Answer { kTaken, kFull, kClientIsFull };

  // `what`: "watches".
  ClientQuota(size_t most, size_t most_per_client, std::string_view what)
      : most_(most), most_per_client_(most_per_client), what_(what) {}
  ClientQuota(const ClientQuota&) = delete;
  ClientQuota& operator=(const ClientQuota&) = delete;

  // kTaken: to be given back, once.
  Answer Take(const std::string& client);
  void GiveBack(const std::string& client);
  // What `client` is told of an answer other than kTaken.
  std::string Refusal(Answer answer, const std::string& client) const;

 private:
  const size_t most_, most_per_client_;
  const std::string what_;
  Mutex mutex_;
  size_t taken_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, size_t> of_ ABSL_GUARDED_BY(mutex_);  // clients that have some
};

}  // namespace legoai::server

// The one place that every user's call passes before its handler, over gRPC or HTTP: who calls what, with which request.
// Independent of both. Thread-safe.
#pragma once

#include <google/protobuf/message.h>

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "core/process/mutex.h"
#include "server/access/gate.h"

namespace legoai::server {

struct Caller {
  std::string_view way;  // "grpc", "http"
  std::string remote;    // its address, as gRPC or HTTP writes it
  access::Identity who = {};       // may do nothing unless it is said
  const access::Gate* gate = nullptr;  // with the audit log; null: there is none
};

// OK: call the handler of this method of ControlPlane. Otherwise this is the answer: PermissionDenied or NotFound where the
// caller has no right to the call (server/access/rights.h), InvalidArgument for a field or an enum value that the server does not
// know. Calls that do more than read (those whose google.api.http is not GET) are logged with the caller; those that are refused
// for who makes them are in the audit log.
absl::Status AdmitCall(const Caller& caller, const std::string& method, const google::protobuf::Message& request);

// After the handler of a call that was admitted: one that does more than read is in the audit log, with what came of it.
void AuditCall(const Caller& caller, const std::string& method, const google::protobuf::Message& request,
               const absl::Status& outcome);

// The client behind a connection: its address without the port; of IPv6 the first 64 bits, which one host has to itself. `peer`
// is written as sockets ("127.0.0.1:4711", "2001:db8::1:4711") or gRPC ("ipv4:127.0.0.1:4711", "ipv6:%5B::1%5D:4711") do.
// Anything that is not an address is returned as it is.
std::string ClientOf(std::string_view peer);

// Bounds how many of something are open, in total and for each client, so that one client cannot take every place. Thread-safe.
class ClientQuota {
 public:
  enum class Answer { kTaken, kFull, kClientIsFull };

  // `what`: "watches".
  ClientQuota(size_t most, size_t most_per_client, std::string_view what)
      : most_(most), most_per_client_(most_per_client), what_(what) {}
  ClientQuota(const ClientQuota&) = delete;
  ClientQuota& operator=(const ClientQuota&) = delete;

  // After kTaken the caller calls GiveBack() once.
  Answer Take(const std::string& client);
  void GiveBack(const std::string& client);
  // The message for `client` if the answer is not kTaken.
  std::string Refusal(Answer answer, const std::string& client) const;

 private:
  const size_t most_, most_per_client_;
  const std::string what_;
  Mutex mutex_;
  size_t taken_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, size_t> of_ ABSL_GUARDED_BY(mutex_);  // clients that hold any
};

}  // namespace legoai::server

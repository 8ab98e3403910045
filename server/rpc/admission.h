// The one place that every call of a user passes before its handler, over gRPC and over HTTP: who asks, for what, and with which
// request. Free of both. Thread-safe.
#pragma once

#include <google/protobuf/message.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace legoai::server {

struct Caller {
  std::string_view way;  // "grpc", "http"
  std::string remote;    // the address it comes from, as that way writes it
};

// OK: the handler of this method of ControlPlane is to be called. Otherwise this is the answer: InvalidArgument for a field or an
// enum value that the server does not know. Of a call that is more than a look (by its google.api.http: no GET) the log says who
// asked for it.
absl::Status AdmitCall(const Caller& caller, const std::string& method, const google::protobuf::Message& request);

}  // namespace legoai::server

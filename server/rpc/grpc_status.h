// Errors on gRPC, in both directions: a google.rpc.Status in the trailers (proto/rpc.h) with BadRequest and ErrorInfo for
// other clients beside our FieldViolation, and RetryInfo where the server is full. Thread-safety: pure functions.
#pragma once

#include <grpcpp/support/status.h>

#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace legoai::server {

// Long texts are cut: all of it must fit into the 8 KiB that gRPC takes of trailers.
grpc::Status ToGrpcStatus(const absl::Status& status);

// Code, message and payloads again.
absl::Status FromGrpcStatus(const grpc::Status& status);

// ResourceExhausted that asks to call again after `delay`.
absl::Status BusyError(std::string_view message, absl::Duration delay);

// What a status says of when to call again.
std::optional<absl::Duration> RetryDelay(const absl::Status& status);

}  // namespace legoai::server

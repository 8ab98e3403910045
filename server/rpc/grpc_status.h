// Errors over gRPC, in both directions: a google.rpc.Status in the trailers (proto/rpc.h) with our FieldViolation, with
// BadRequest and ErrorInfo for other clients, and with RetryInfo if the server is full. Thread-safety: pure functions.
#pragma once

#include <grpcpp/support/status.h>

#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace legoai::server {

// Long texts are cut: the whole must fit into the 8 KiB of trailers that gRPC accepts.
grpc::Status ToGrpcStatus(const absl::Status& status);

// The inverse: code, message and payloads.
absl::Status FromGrpcStatus(const grpc::Status& status);

// ResourceExhausted that asks the client to retry after `delay`.
absl::Status BusyError(std::string_view message, absl::Duration delay);

// When a status asks the client to retry, if it does.
std::optional<absl::Duration> RetryDelay(const absl::Status& status);

}  // namespace legoai::server

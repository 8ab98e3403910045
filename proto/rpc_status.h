// Errors across processes as google.rpc.Status, with what a Status carries as data in `details`.
// Thread-safety: pure functions.
#pragma once

#include "absl/status/status.h"
#include "google/rpc/status.pb.h"

namespace legoai {

// Code, message and every payload: a FieldError's FieldViolation becomes a packed legoai.v1.FieldViolation. In the message, which
// holds UTF-8 only, question marks stand for other bytes that are not ASCII.
google::rpc::Status ToRpcStatus(const absl::Status& status);

// The way back: details become payloads, so GetFieldViolation() finds the field again. OK has neither message nor details. A code
// that is none of google.rpc's gives Unknown.
absl::Status FromRpcStatus(const google::rpc::Status& status);

}  // namespace legoai

// Checks a submission before it becomes a job. gRPC-free. Thread-safety: pure functions.
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/legoai/v1/control_plane.pb.h"
#include "proto/legoai/v1/job.pb.h"

namespace legoai::server {

// The most slots of a worker, and of a job.
inline constexpr int64_t kMostSlots = 4096;

// The spec of `request` with every default filled in, and the model from its config.json or the catalog. Also checks parent and
// request_id. Reads no file: the agent checks the dataset. Errors: FieldErrors with the path in the request, for the first field
// at fault.
absl::StatusOr<v1::JobSpec> CheckSubmission(const v1::CreateJobRequest& request);

// Empty, or 8 to 64 letters, digits, and "-_.:".
absl::Status CheckRequestId(std::string_view field, std::string_view request_id);

// The same bytes for the same message of one build.
std::string DeterministicBytes(const google::protobuf::Message& message);

// Detects a reused request_id with different content: SHA-256 of what was sent, as hex.
std::string SubmissionDigest(const v1::CreateJobRequest& request);
std::string SubmissionDigest(const v1::RetryJobRequest& request);

}  // namespace legoai::server

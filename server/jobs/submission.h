// What a submission must be before it becomes a job. gRPC-free. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/legoai/v1/control_plane.pb.h"
#include "proto/legoai/v1/job.pb.h"

namespace legoai::server {

// That a worker has at most. All slots of a job are on one, so it cannot want more.
inline constexpr int64_t kMostSlots = 4096;

// The spec of `request` with every default filled in, the model as its config.json or the catalog says. Its parent and request_id
// are checked too. No file is read: the dataset is the agent's to check.
// Errors: FieldErrors with the path in the request, of the first field at fault.
absl::StatusOr<v1::JobSpec> CheckSubmission(const v1::CreateJobRequest& request);

// Empty, or 8 to 64 letters, digits, and "-_.:".
absl::Status CheckRequestId(std::string_view field, std::string_view request_id);

// By which the same request_id with another content is told apart: SHA-256 of what was sent, as hex.
std::string SubmissionDigest(const v1::CreateJobRequest& request);
std::string SubmissionDigest(const v1::RetryJobRequest& request);

}  // namespace legoai::server

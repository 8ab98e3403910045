// Resource names of the service, in the style of Google's API improvement proposals: "projects/P/jobs/J" with J a ULID
// (server/store/ulid.h), ".../attempts/N", ".../checkpoints/STEP",
// ".../stepTraces/ATTEMPT-STEP-RANK", "workers/W". gRPC-free. Thread-safety: pure functions.
//
// Errors of parsing: FieldError of `field`, the path of the name in the request, with the expected form.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace legoai::server {

struct JobName {
  std::string project, id;
};

struct AttemptName {
  std::string job;  // resource name
  int64_t attempt = 0;
};

struct StepTraceName {
  std::string job;  // resource name
  int64_t attempt = 0, step = 0, rank = 0;
};

// "projects/default" -> "default".
absl::StatusOr<std::string> ParseProjectName(std::string_view field, std::string_view name);
absl::StatusOr<JobName> ParseJobName(std::string_view field, std::string_view name);
absl::StatusOr<AttemptName> ParseAttemptName(std::string_view field, std::string_view name);
absl::StatusOr<StepTraceName> ParseStepTraceName(std::string_view field, std::string_view name);
// "workers/node-7" -> "node-7".
absl::StatusOr<std::string> ParseWorkerName(std::string_view field, std::string_view name);

// One segment of at most 63 letters, digits, periods, dashes and underscores that begins with a letter or digit: a valid name of
// a worker or pool.
bool IsSegment(std::string_view text);

std::string FormatProjectName(std::string_view project);
std::string FormatJobName(std::string_view project, std::string_view id);
std::string FormatAttemptName(std::string_view job, int64_t attempt);
std::string FormatCheckpointName(std::string_view job, int64_t step);
std::string FormatStepTraceName(const StepTraceName& name);
std::string FormatWorkerName(std::string_view worker);

}  // namespace legoai::server

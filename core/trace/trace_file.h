// A Trace as a file: the message legoai.v1.Trace, serialized. Pure functions besides reading and writing.
//
// A reader refuses an unknown version and a file whose indices point outside its columns: the result of ReadTrace can be
// simulated and executed without further structural checks. Errors: InvalidArgument with the path and the reason; NotFound or
// Unavailable from the file system.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/trace/trace.h"
#include "proto/legoai/v1/trace.pb.h"

namespace legoai::graph {

inline constexpr uint32_t kTraceVersion = 2;

v1::Trace ToProto(const Trace& trace, const std::string& build_version = "");
absl::StatusOr<Trace> FromProto(const v1::Trace& proto);

// Writes a new file beside `path` and renames it into place.
absl::Status WriteTrace(const Trace& trace, const std::string& path, const std::string& build_version = "");
absl::StatusOr<Trace> ReadTrace(const std::string& path);

}  // namespace legoai::graph

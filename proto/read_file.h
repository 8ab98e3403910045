// Reads files that users name. A path may be a folder, a device, a pipe or a file of terabytes, and a disk may fail during a
// read: these functions never wait for another process, exceed the given memory limit, or throw.
//
// Errors are FieldErrors: NotFound, PermissionDenied, InvalidArgument if it is not a regular file or too large, DataLoss if the
// disk reports lost data, Unavailable if reading fails otherwise. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace legoai {

// Size limit of files that users write: recipes, jobs, clusters, config.json.
inline constexpr int64_t kMostTextBytes = int64_t{4} << 20;
// Size limit of files that programs write: that of a protobuf message.
inline constexpr int64_t kMostFileBytes = (int64_t{2} << 30) - 1;

// The contents of a regular file of at most `most_bytes`. The error's field is the path.
absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t most_bytes = kMostFileBytes);

// The same for a path that is the value of `field`, which the error names; `remedy`: "give the path of a TOML file".
absl::StatusOr<std::string> ReadFileOf(std::string_view field, const std::string& path, int64_t most_bytes,
                                       std::string_view remedy);

// A descriptor of a regular file, open for reading. The caller closes it.
absl::StatusOr<int> OpenRegularFile(const std::string& path);

// The paths of a folder's entries, sorted.
absl::StatusOr<std::vector<std::string>> ReadFolder(const std::string& path);

// The error of the last system call on `path`; `what` is what was tried ("cannot write"). A full disk or quota is
// ResourceExhausted, a limit on the size of a file OutOfRange.
absl::Status FileError(const std::string& path, const char* what, int error_number);

// The same for a read: DataLoss if the disk or the file system's checksums report lost data.
absl::Status ReadError(const std::string& path, const char* what, int error_number);

}  // namespace legoai

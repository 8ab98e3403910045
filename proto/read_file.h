// Reading files that people name. Any path may be a folder, a device, a pipe or a file of terabytes, and a disk may fail in the
// middle: nothing here waits for another process, takes more memory than it was allowed, or throws.
//
// Errors are FieldErrors: NotFound where nothing is there, PermissionDenied, InvalidArgument where it is no regular file or too
// large, DataLoss where the disk says that what was there is lost, Unavailable where reading fails otherwise.
// Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace legoai {

// The most of a file that people write: recipes, jobs, clusters, config.json.
inline constexpr int64_t kMostTextBytes = int64_t{4} << 20;
// The most of a file that programs write; a protobuf message may have no more.
inline constexpr int64_t kMostFileBytes = (int64_t{2} << 30) - 1;

// The whole contents of a regular file of at most so many bytes. The error's field is the path.
absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t most_bytes = kMostFileBytes);

// The same for a path that `field` has as its value, which is what the error names; `remedy` ("give the path of a TOML file").
absl::StatusOr<std::string> ReadFileOf(std::string_view field, const std::string& path, int64_t most_bytes,
                                       std::string_view remedy);

// A descriptor of a regular file, open for reading. The caller closes it.
absl::StatusOr<int> OpenRegularFile(const std::string& path);

// The paths of what is in a folder, sorted.
absl::StatusOr<std::vector<std::string>> ReadFolder(const std::string& path);

// The error of the last system call on `path`; `what` is what was tried ("cannot write"). A full disk or quota is
// ResourceExhausted, a limit on the size of a file OutOfRange.
absl::Status FileError(const std::string& path, const char* what, int error_number);

// The same of a call that reads: DataLoss where the disk, or the file system's own checksums, say that what was there is lost.
absl::Status ReadError(const std::string& path, const char* what, int error_number);

}  // namespace legoai

// Files that hold one secret, such as the token with which a program calls the server. Thread-safety: functions of the file
// system.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace legoai::launch {

// The secret, without the space around it. Errors (FieldError of `field`; no error shows what is in the file): NotFound;
// PermissionDenied if this process may not read it, or every user of the machine may; InvalidArgument if it is empty, not one
// line, or above 17 KiB; FailedPrecondition for all else that the file system says.
absl::StatusOr<std::string> ReadSecretFile(std::string_view field, const std::string& path);

// Creates the file for its owner alone (mode 0600), or replaces it whole, with its rights. Errors (FieldError of `field`):
// NotFound where its folder is missing, PermissionDenied, ResourceExhausted for a full disk, FailedPrecondition for all else;
// never Unavailable, for nothing of that passes by itself.
absl::Status WriteSecretFile(std::string_view field, const std::string& path, std::string_view secret);

}  // namespace legoai::launch

// SHA-256, the digest by which datasets, tokenizers and manifests are known. Thread-safety: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/checkpoint/files.h"

namespace legoai::checkpoint {

// 64 hexadecimal digits, lower case.
std::string Sha256(std::string_view bytes);
// The same of many bytes. Cancelled.
absl::StatusOr<std::string> Sha256(std::string_view bytes, const Cancel& cancel);

// The same of a file's contents. Errors name the path; Cancelled.
absl::StatusOr<std::string> Sha256OfFile(const std::string& path, const Cancel& cancel = nullptr);

}  // namespace legoai::checkpoint

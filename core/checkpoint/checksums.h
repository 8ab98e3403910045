// CRC-32C (Castagnoli), the checksum of checkpoint chunks, and SHA-256, the digest by which datasets, tokenizers and manifests
// are known. Thread-safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/checkpoint/files.h"

namespace legoai::checkpoint {

// The checksum of `bytes` bytes that follow data whose checksum is `crc` (0: nothing precedes them), so that
// Crc32c(b, Crc32c(a)) is the checksum of a and b together.
uint32_t Crc32c(const void* data, size_t bytes, uint32_t crc = 0);

// 64 hexadecimal digits, lower case.
std::string Sha256(std::string_view bytes);
// The same of many bytes. Cancelled.
absl::StatusOr<std::string> Sha256(std::string_view bytes, const Cancel& cancel);

// The same of a file's contents. Errors name the path; Cancelled.
absl::StatusOr<std::string> Sha256OfFile(const std::string& path, const Cancel& cancel = nullptr);

}  // namespace legoai::checkpoint

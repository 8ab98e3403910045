// URLs of an object store's folders: s3://BUCKET/PREFIX, as PyTorch's distributed checkpoints and TorchTitan name them. A URL is
// never a path: whoever takes either asks IsUrl first. Thread-safety: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace legoai::objectstore {

struct S3Url {
  std::string bucket;
  std::string key;  // "runs/llama/step-8"; no slash at either end
};

// Of a place that a user names, so that all names below it stay within S3's 1,024 bytes of a key.
inline constexpr size_t kMostPrefixBytes = 700, kMostKeyBytes = 1024;
inline constexpr size_t kMostJobBytes = 64;  // of "/JOB/epoch-E", which a job of the service adds

// Whether the text has a scheme ("s3://...", "gs://..."), and so names no file.
bool IsUrl(std::string_view text);

// Errors, of `field`: another scheme than s3; a bucket that is none by S3's rules (3 to 63 lower-case letters, digits, dots and
// hyphens, which begins and ends with a letter or a digit); no prefix; a prefix with an empty part, ".", ".." or a character
// that is not printable, or of more than `most_bytes`.
absl::StatusOr<S3Url> ParseS3Url(std::string_view field, std::string_view url, size_t most_bytes = kMostPrefixBytes);

}  // namespace legoai::objectstore

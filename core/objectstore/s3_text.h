// What an object store says, and is told, in XML, and digests of what it is told. Thread-safety: pure functions.
#pragma once

#include <openssl/evp.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace legoai::objectstore {

struct S3Object {
  std::string key;
  int64_t bytes = 0;
  bool operator==(const S3Object&) const = default;
};

// One answer of ListObjectsV2.
struct S3Listing {
  std::vector<S3Object> objects;     // ascending by key
  std::vector<std::string> folders;  // common prefixes, each with the slash at its end
  std::string next;                  // continues the listing; empty: it is complete
};

// A multipart upload that was neither completed nor given up.
struct S3Upload {
  std::string key, id;
};
struct S3Uploads {
  std::vector<S3Upload> uploads;
  std::string next_key, next_id;  // continue the listing; both empty: it is complete
};

struct S3Fault {
  std::string code;     // "NoSuchBucket"
  std::string message;  // for people
};

// Errors: Unavailable, for a reply that is not the expected document may be a broken one, and so may one that lacks a part of it:
// an object's size, whether a listing goes on, what continues it.
absl::StatusOr<S3Listing> ParseListing(std::string_view xml);
absl::StatusOr<S3Uploads> ParseUploads(std::string_view xml);
absl::StatusOr<std::string> ParseUploadId(std::string_view xml);  // of CreateMultipartUpload

// Empty where the text is no <Error>. Both fields are printable.
S3Fault ParseFault(std::string_view xml);

// What a reply with a good status says in place of the document `root`: its <Error>, or only a message that it is none. Both
// fields are empty where it is that document.
S3Fault FaultUnless(std::string_view xml, const char* root);

// The body of DeleteObjects, which is to tell only what it could not do.
std::string DeletionOf(const std::vector<std::string>& keys);
// What it could not do, each with a code.
absl::StatusOr<std::vector<S3Fault>> ParseFaultsOfDeletion(std::string_view xml);

// The body of CompleteMultipartUpload; `etags` of parts 1, 2, ...
std::string CompletionOf(const std::vector<std::string>& etags);

// The digest of `text` by EVP_sha256() or EVP_md5(), in bytes.
std::string DigestOf(std::string_view text, const EVP_MD* kind);

}  // namespace legoai::objectstore

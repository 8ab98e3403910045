// The objects of one bucket of an S3 store: Amazon's, or any that speaks its protocol.
//
// A request that fails on the way, with a 5xx status, with one that asks for patience (429, SlowDown, RequestTimeout), or with
// a reply that no store gives (a 404 without an error of S3, a 200 without what it should bring) is made again after a pause,
// as often as S3Options::max_attempts says; then the error is Unavailable with what was seen last. Errors that trying again
// does not mend are FieldErrors at once: PermissionDenied (403, a token that has expired), FailedPrecondition (there is no
// such bucket, it is in another region, or its lists cannot be right), InvalidArgument (other refusals). ResourceExhausted:
// the store is full. NotFound: the store says that there is no such object (NoSuchKey). No message has a key or a signature in
// it. Thread-safety: one thread at a time; clients are cheap, and a thread's connections outlive them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/objectstore/s3_options.h"
#include "core/objectstore/s3_request.h"
#include "core/objectstore/s3_text.h"

namespace legoai::objectstore {

// Of a multipart upload and of a large download: what is sent or fetched at once, and again where it fails.
inline constexpr int64_t kPartBytes = int64_t{32} << 20;
inline constexpr int64_t kMostParts = 10'000;  // of one object, by the protocol

class S3Client {
 public:
  // Errors: those of OptionsFromEnvironment.
  static absl::StatusOr<S3Client> Create(const std::string& bucket);

  // The object is there whole or not at all, also for who reads meanwhile.
  absl::Status Put(const std::string& key, std::string_view contents);
  // Of at most 64 MiB.
  absl::StatusOr<std::string> Get(const std::string& key);
  // `out` has room for them; at most kPartBytes are asked for at once. OutOfRange: the object ends before.
  absl::Status GetRange(const std::string& key, int64_t offset, int64_t bytes, char* out);
  // Nothing if there is no object of this key.
  absl::StatusOr<std::optional<int64_t>> Bytes(const std::string& key);
  // All objects whose keys begin with `prefix`, ascending.
  absl::StatusOr<std::vector<S3Object>> List(const std::string& prefix);
  // Whether there is any.
  absl::StatusOr<bool> HasAny(const std::string& prefix);
  // What lies directly below `folder`, which ends with a slash: whole keys, those of folders with a slash at the end.
  absl::StatusOr<S3Listing> ListFolder(const std::string& folder);
  // OK if there is none.
  absl::Status Delete(const std::string& key);
  // The same of many, in as few requests as the protocol allows, in their order; the first error. `done`, which may be empty, is
  // called after each request.
  absl::Status DeleteAll(const std::vector<std::string>& keys, const std::function<void()>& done);
  // Within the store; of an object that is larger than `most_within` part by part through this process, since a store takes long
  // for it and says nothing meanwhile. `cancel`, which may be empty, is asked between parts: Cancelled where it says so.
  absl::Status Copy(const S3Object& from, const std::string& to, const std::function<bool()>& cancel = nullptr,
                    int64_t most_within = int64_t{1} << 30);

  // Multipart uploads. Nothing of one is an object before it is completed; until then its parts take room.
  absl::StatusOr<std::string> BeginUpload(const std::string& key);  // its id
  // Parts are numbered from 1; all but the last have at least 5 MiB. Returns the part's tag.
  absl::StatusOr<std::string> UploadPart(const S3Upload& upload, int64_t number, std::string_view part);
  // `bytes` of all parts: should the answer be lost, the object tells that it was completed.
  absl::Status CompleteUpload(const S3Upload& upload, const std::vector<std::string>& etags, int64_t bytes);
  absl::Status AbortUpload(const S3Upload& upload);  // OK if there is none
  // Of all keys that begin with `prefix`.
  absl::StatusOr<std::vector<S3Upload>> ListUploads(const std::string& prefix);

 private:
  S3Client(S3Options options, std::string bucket) : options_(std::move(options)), bucket_(std::move(bucket)) {}
  S3Request RequestFor(std::string method, const std::string& key, std::string query = "") const;
  // What a good reply has besides its status, which whoever stands before the store can say, too.
  struct Proof {
    const char* root = nullptr;  // a document of this name
    bool tag = false;            // an ETag
  };
  // Both fields are empty where the reply is good.
  static S3Fault FaultIn(const S3Reply& reply, const Proof& proof);
  // Until it succeeds, is refused, or has been made often enough; in the last two cases the error, and in `fault`, where it is
  // given, what the store said.
  absl::StatusOr<S3Reply> Make(const S3Request& request, const std::string& what, const Proof& proof, S3Fault* fault = nullptr);
  // Pauses, unless this ends the attempts: then the error.
  absl::Status Again(const S3Reply& reply, const S3Fault& fault, const std::string& what, int attempt) const;
  // Page by page, until `take` returns false. `query` is without the prefix.
  absl::Status ListPages(const std::string& query, const std::string& prefix, const std::function<bool(const S3Listing&)>& take);
  absl::Status Astray(const std::string& prefix, const std::string& how) const;
  absl::Status DeleteAtOnce(const std::vector<std::string>& keys);
  absl::Status Ended(const S3Upload& upload) const;
  absl::Status Refusal(const S3Reply& reply, const S3Fault& fault, const std::string& what) const;
  void Pause(int attempt) const;
  absl::Status CopyThroughHere(const S3Object& from, const std::string& to, const std::function<bool()>& cancel);
  absl::Status CopyParts(const S3Object& from, const S3Upload& upload, const std::function<bool()>& cancel);
  std::string Name(const std::string& key) const { return "s3://" + bucket_ + "/" + key; }

  S3Options options_;
  std::string bucket_;
};

}  // namespace legoai::objectstore

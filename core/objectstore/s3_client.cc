#include "core/objectstore/s3_client.h"

#include <openssl/evp.h>

#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "proto/text.h"

namespace legoai::objectstore {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(500), kLongestPause = absl::Seconds(15);
constexpr absl::Duration kBeat = absl::Milliseconds(100);

// Codes that come with several statuses, or in a good answer.
constexpr std::string_view kPassing[] = {
    "SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable", "Throttling", "ThrottlingException",
    "RequestLimitExceeded", "BandwidthLimitExceeded",
    "OperationAborted",                                           // another request on the same object was under way
    "BadDigest", "IncompleteBody", "XAmzContentSHA256Mismatch"};  // the body has changed on the way
constexpr std::string_view kForbidden[] = {
    "AccessDenied", "AccountProblem", "AllAccessDisabled", "ExpiredToken", "InvalidAccessKeyId", "InvalidToken",
    "RequestTimeTooSkewed", "SignatureDoesNotMatch", "TokenRefreshRequired",
    "XAdminUserNotFound"};  // versitygw's, of a key that nobody has
constexpr std::string_view kFull[] = {"QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded"};
template <size_t count>
bool IsOneOf(const S3Fault& fault, const std::string_view (&codes)[count]) {
  return std::find(codes, codes + count, fault.code) != codes + count;
}

bool IsGood(const S3Reply& reply) { return reply.failure.empty() && reply.status / 100 == 2; }

bool IsFull(const S3Reply& reply, const S3Fault& fault) { return reply.status == 507 || IsOneOf(fault, kFull); }

// Requests that the store asks to make again, and those that no store seems to have answered: while one is away, a proxy before
// it may say 404, or show a page of its own.
bool MayPass(const S3Reply& reply, const S3Fault& fault) {
  if (!reply.failure.empty()) return reply.may_pass;
  if (IsFull(reply, fault)) return false;
  if (IsOneOf(fault, kPassing)) return true;
  if (IsGood(reply) || reply.status == 404) return fault.code.empty();
  return reply.status == 408 || reply.status == 429 || (reply.status >= 500 && reply.status != 501);
}

// "503 SlowDown: Please reduce your request rate", "could not connect".
std::string WhatWasSaid(const S3Reply& reply, const S3Fault& fault) {
  if (!reply.failure.empty()) return reply.failure;
  std::string text = absl::StrCat("status ", reply.status);
  if (!fault.code.empty()) absl::StrAppend(&text, ", ", fault.code);
  if (!fault.message.empty()) absl::StrAppend(&text, ": ", fault.message);
  if (fault.code.empty() && fault.message.empty()) absl::StrAppend(&text, ", without an error of S3");
  return text;
}

// In base 64.
std::string Md5(const std::string& text) { return absl::Base64Escape(DigestOf(text, EVP_md5())); }

std::string PartOf(const S3Upload& upload, int64_t number) {
  return absl::StrCat("partNumber=", number, "&uploadId=", Encode(upload.id, false));
}

}  // namespace

absl::StatusOr<S3Client> S3Client::Create(const std::string& bucket) {
  ASSIGN_OR_RETURN(auto options, OptionsFromEnvironment());
  return S3Client(std::move(options), bucket);
}

S3Request S3Client::RequestFor(std::string method, const std::string& key, std::string query) const {
  S3Request request;
  request.method = std::move(method);
  request.url = BucketAddress(options_, bucket_);
  if (!key.empty()) absl::StrAppend(&request.url, "/", Encode(key, /*keep_slashes=*/true));
  request.query = std::move(query);
  return request;
}

// Clients that were turned away together come back at different times.
void S3Client::Pause(int attempt) const {
  thread_local std::minstd_rand random(std::random_device{}());
  const absl::Duration longest = std::min(kFirstPause * (1 << std::min(attempt, 10)), kLongestPause);
  const absl::Duration pause = longest * std::uniform_real_distribution<double>(0.5, 1)(random);
  for (absl::Duration slept; slept < pause; slept += kBeat) {
    AliveDuring::Tell();
    absl::SleepFor(kBeat);
  }
}

S3Fault S3Client::FaultIn(const S3Reply& reply, const Proof& proof) {
  if (!IsGood(reply)) return ParseFault(reply.body);
  if (proof.tag && reply.etag.empty()) return {"", "the reply has no ETag"};
  return proof.root == nullptr ? S3Fault() : FaultUnless(reply.body, proof.root);
}

absl::StatusOr<S3Reply> S3Client::Make(const S3Request& request, const std::string& what, const Proof& proof, S3Fault* fault) {
  S3Fault own;
  S3Fault& last = fault != nullptr ? *fault : own;
  for (int attempt = 0;; ++attempt) {
    S3Reply reply = Send(options_, request);
    last = FaultIn(reply, proof);
    if (IsGood(reply) && last.code.empty() && last.message.empty()) return reply;
    RETURN_IF_ERROR(Again(reply, last, what, attempt));
  }
}

absl::Status S3Client::Again(const S3Reply& reply, const S3Fault& fault, const std::string& what, int attempt) const {
  if (!MayPass(reply, fault)) return Refusal(reply, fault, what);
  if (attempt + 1 >= options_.max_attempts) {
    return absl::UnavailableError(absl::StrCat(what, " failed ", attempt + 1, attempt == 0 ? " time" : " times", " at ",
                                               BucketAddress(options_, bucket_), ", at last: ", WhatWasSaid(reply, fault)));
  }
  Pause(attempt);
  return absl::OkStatus();
}

absl::Status S3Client::Refusal(const S3Reply& reply, const S3Fault& fault, const std::string& what) const {
  const std::string bucket = absl::StrCat("s3://", bucket_), said = absl::StrCat(what, ": ", WhatWasSaid(reply, fault));
  const std::string place = BucketAddress(options_, bucket_);
  const auto refuse = [&](absl::StatusCode code, const std::string& remedy) {
    return FieldError("checkpoint.folder", bucket, absl::StrCat(said, "; ", remedy), code);
  };
  using absl::StatusCode;
  if (!reply.failure.empty()) {
    return refuse(StatusCode::kFailedPrecondition,
                  absl::StrCat("see whether ", place, " is the store, and its certificate one that AWS_CA_BUNDLE or this machine "
                               "trusts"));
  }
  if (IsFull(reply, fault)) return refuse(StatusCode::kResourceExhausted, "make room in the store");
  if (fault.code == "NoSuchBucket")
    return refuse(StatusCode::kFailedPrecondition, absl::StrCat("make the bucket at ", place, " or name another"));
  if (reply.status == 301 || reply.status == 307 || fault.code == "AuthorizationHeaderMalformed")
    return refuse(StatusCode::kFailedPrecondition,
                  absl::StrCat("set AWS_REGION to the bucket's region (it is ", options_.region, " now)"));
  if (reply.status == 401 || reply.status == 403 || IsOneOf(fault, kForbidden))
    return refuse(StatusCode::kPermissionDenied,
                  absl::StrCat("see that AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are those of ", place,
                               " and may read, write, list and delete there, that AWS_SESSION_TOKEN has not expired, and that "
                               "this machine's clock is right"));
  // Whoever hears of one of these may take a checkpoint for lost, so the store must have said it in as many words.
  if (fault.code == "NoSuchKey" || fault.code == "NoSuchUpload") return absl::NotFoundError(said);
  if (fault.code == "InvalidRange") return absl::OutOfRangeError(said);
  return refuse(StatusCode::kInvalidArgument, absl::StrCat("see whether ", place, " is an S3 store that supports this"));
}

absl::Status S3Client::Put(const std::string& key, std::string_view contents) {
  S3Request request = RequestFor("PUT", key);
  request.body = contents;
  return Make(request, absl::StrCat("writing ", Name(key)), {.tag = true}).status();
}

absl::StatusOr<std::string> S3Client::Get(const std::string& key) {
  ASSIGN_OR_RETURN(S3Reply reply, Make(RequestFor("GET", key), absl::StrCat("reading ", Name(key)), {.tag = true}));
  return std::move(reply.body);
}

absl::Status S3Client::GetRange(const std::string& key, int64_t offset, int64_t bytes, char* out) {
  for (int64_t end = offset + bytes; offset < end;) {
    S3Request request = RequestFor("GET", key);
    request.offset = offset;
    request.bytes = std::min(end - offset, kPartBytes);
    request.out = out;
    ASSIGN_OR_RETURN(const S3Reply reply, Make(request, absl::StrCat("reading ", Name(key)), {.tag = true}));
    // A store that knows no ranges would give the beginning.
    if (reply.status != 206 && offset > 0)
      return absl::UnimplementedError(absl::StrCat("the store gives no ranges of an object: ", Name(key)));
    if (reply.got == 0) return absl::OutOfRangeError(absl::StrCat(Name(key), " ends at byte ", offset));
    offset += reply.got;
    out += reply.got;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<int64_t>> S3Client::Bytes(const std::string& key) {
  // A HEAD could not tell a missing bucket from a missing object, as its reply has no body. With the delimiter there are few
  // others, in whatever order the store lists them.
  std::optional<int64_t> bytes;
  RETURN_IF_ERROR(ListPages("delimiter=%2F&list-type=2", key, [&](const S3Listing& page) {
    for (const S3Object& object : page.objects)
      if (object.key == key) bytes = object.bytes;
    return !bytes;
  }));
  return bytes;
}

absl::StatusOr<bool> S3Client::HasAny(const std::string& prefix) {
  bool any = false;
  // A page may be empty and not the last one.
  RETURN_IF_ERROR(ListPages("list-type=2&max-keys=1", prefix, [&](const S3Listing& page) {
    any = !page.objects.empty();
    return !any;
  }));
  return any;
}

absl::StatusOr<std::vector<S3Object>> S3Client::List(const std::string& prefix) {
  std::vector<S3Object> objects;
  RETURN_IF_ERROR(ListPages("list-type=2", prefix, [&](const S3Listing& page) {
    objects.insert(objects.end(), page.objects.begin(), page.objects.end());
    return true;
  }));
  return objects;
}

absl::StatusOr<S3Listing> S3Client::ListFolder(const std::string& folder) {
  S3Listing all;
  RETURN_IF_ERROR(ListPages("delimiter=%2F&list-type=2", folder, [&](const S3Listing& page) {
    all.objects.insert(all.objects.end(), page.objects.begin(), page.objects.end());
    all.folders.insert(all.folders.end(), page.folders.begin(), page.folders.end());
    return true;
  }));
  return all;
}

absl::Status S3Client::ListPages(const std::string& query, const std::string& prefix,
                                 const std::function<bool(const S3Listing&)>& take) {
  const std::string what = absl::StrCat("listing ", Name(prefix));
  std::set<std::string> tokens;
  for (std::string token;;) {
    // Sorted by name, of which this is the first and that of the prefix the last.
    const std::string from = token.empty() ? "" : absl::StrCat("continuation-token=", Encode(token, false), "&");
    ASSIGN_OR_RETURN(const S3Reply reply,
                     Make(RequestFor("GET", "", absl::StrCat(from, query, "&prefix=", Encode(prefix, false))), what,
                          {.root = "ListBucketResult"}));
    ASSIGN_OR_RETURN(S3Listing page, ParseListing(reply.body));
    for (const S3Object& object : page.objects)
      if (!absl::StartsWith(object.key, prefix)) return Astray(prefix, absl::StrCat("with ", Printable(CutText(object.key))));
    for (const std::string& folder : page.folders)
      if (!absl::StartsWith(folder, prefix)) return Astray(prefix, absl::StrCat("with ", Printable(CutText(folder))));
    if (!take(page) || page.next.empty()) return absl::OkStatus();
    if (!tokens.insert(page.next).second) return Astray(prefix, "without an end");
    token = std::move(page.next);
  }
}

// What is listed is read, moved and removed, so that a list that cannot be right ends all of that.
absl::Status S3Client::Astray(const std::string& prefix, const std::string& how) const {
  return FieldError("checkpoint.folder", absl::StrCat("s3://", bucket_),
                    absl::StrCat("the store lists what begins with ", Name(prefix), " ", how, "; see whether ",
                                 BucketAddress(options_, bucket_), " is an S3 store that supports ListObjectsV2 and prefixes"),
                    absl::StatusCode::kFailedPrecondition);
}

absl::Status S3Client::Delete(const std::string& key) {
  const absl::Status status = Make(RequestFor("DELETE", key), absl::StrCat("removing ", Name(key)), {}).status();
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

absl::Status S3Client::DeleteAll(const std::vector<std::string>& keys, const std::function<void()>& done) {
  constexpr size_t kAtOnce = 1000;
  for (size_t first = 0; first < keys.size(); first += kAtOnce) {
    const auto begin = keys.begin() + static_cast<int64_t>(first);
    RETURN_IF_ERROR(DeleteAtOnce({begin, begin + static_cast<int64_t>(std::min(kAtOnce, keys.size() - first))}));
    if (done) done();
  }
  return absl::OkStatus();
}

absl::Status S3Client::DeleteAtOnce(const std::vector<std::string>& keys) {
  const std::string body = DeletionOf(keys);
  S3Request request = RequestFor("POST", "", "delete=");
  request.body = body;
  request.headers.push_back("content-md5: " + Md5(body));  // which the protocol wants of this request
  const std::string what = absl::StrCat("removing ", Name(keys[0]), " and others");
  for (int attempt = 0;; ++attempt) {
    ASSIGN_OR_RETURN(const S3Reply reply, Make(request, what, {.root = "DeleteResult"}));
    ASSIGN_OR_RETURN(std::vector<S3Fault> faults, ParseFaultsOfDeletion(reply.body));
    std::erase_if(faults, [](const S3Fault& fault) { return fault.code == "NoSuchKey"; });
    if (faults.empty()) return absl::OkStatus();
    // Each key has a fault of its own, and one that stays is worth no second attempt at the others.
    const auto stays = std::find_if(faults.begin(), faults.end(), [&](const S3Fault& fault) { return !MayPass(reply, fault); });
    RETURN_IF_ERROR(Again(reply, stays != faults.end() ? *stays : faults[0], what, attempt));
  }
}

absl::Status S3Client::Copy(const S3Object& from, const std::string& to, const std::function<bool()>& cancel,
                            int64_t most_within) {
  if (from.bytes > most_within) return CopyThroughHere(from, to, cancel);
  S3Request request = RequestFor("PUT", to);
  request.takes_long = true;
  request.headers.push_back(absl::StrCat("x-amz-copy-source: ", Encode(absl::StrCat(bucket_, "/", from.key), true)));
  return Make(request, absl::StrCat("copying ", Name(from.key)), {.root = "CopyObjectResult"}).status();
}

absl::Status S3Client::CopyThroughHere(const S3Object& from, const std::string& to, const std::function<bool()>& cancel) {
  ASSIGN_OR_RETURN(std::string id, BeginUpload(to));
  const S3Upload upload = {to, std::move(id)};
  const absl::Status copied = CopyParts(from, upload, cancel);
  if (!copied.ok()) AbortUpload(upload).IgnoreError();  // the first error counts
  return copied;
}

absl::Status S3Client::CopyParts(const S3Object& from, const S3Upload& upload, const std::function<bool()>& cancel) {
  std::vector<std::string> etags;
  std::string part;
  for (int64_t offset = 0; offset < from.bytes; offset += kPartBytes) {
    if (cancel && cancel()) return absl::CancelledError(absl::StrCat("copying ", Name(from.key), " was cut short, as asked"));
    part.resize(static_cast<size_t>(std::min(from.bytes - offset, kPartBytes)));
    RETURN_IF_ERROR(GetRange(from.key, offset, static_cast<int64_t>(part.size()), part.data()));
    ASSIGN_OR_RETURN(std::string etag, UploadPart(upload, static_cast<int64_t>(etags.size()) + 1, part));
    etags.push_back(std::move(etag));
  }
  return CompleteUpload(upload, etags, from.bytes);
}

absl::StatusOr<std::string> S3Client::BeginUpload(const std::string& key) {
  ASSIGN_OR_RETURN(const S3Reply reply, Make(RequestFor("POST", key, "uploads="), absl::StrCat("writing ", Name(key)),
                                             {.root = "InitiateMultipartUploadResult"}));
  return ParseUploadId(reply.body);
}

absl::StatusOr<std::string> S3Client::UploadPart(const S3Upload& upload, int64_t number, std::string_view part) {
  S3Request request = RequestFor("PUT", upload.key, PartOf(upload, number));
  request.body = part;
  S3Fault fault;
  auto reply = Make(request, absl::StrCat("writing part ", number, " of ", Name(upload.key)), {.tag = true}, &fault);
  if (fault.code == "NoSuchUpload") return Ended(upload);
  if (!reply.ok()) return reply.status();
  return std::move(reply->etag);
}

absl::Status S3Client::Ended(const S3Upload& upload) const {
  return absl::UnavailableError(absl::StrCat("the upload of ", Name(upload.key), " is no longer there (NoSuchUpload): a rule of ",
                                             "the bucket, or another process, has ended it"));
}

absl::Status S3Client::CompleteUpload(const S3Upload& upload, const std::vector<std::string>& etags, int64_t bytes) {
  S3Request request = RequestFor("POST", upload.key, absl::StrCat("uploadId=", Encode(upload.id, false)));
  const std::string body = CompletionOf(etags);
  request.body = body;
  request.takes_long = true;
  S3Fault fault;
  // The store may send 200 before it knows.
  const absl::Status completed =
      Make(request, absl::StrCat("completing ", Name(upload.key)), {.root = "CompleteMultipartUploadResult"}, &fault).status();
  if (completed.ok() || fault.code != "NoSuchUpload") return completed;
  // An earlier attempt was heard, and its answer lost.
  ASSIGN_OR_RETURN(const std::optional<int64_t> there, Bytes(upload.key));
  return there == bytes ? absl::OkStatus() : Ended(upload);
}

absl::Status S3Client::AbortUpload(const S3Upload& upload) {
  const std::string query = absl::StrCat("uploadId=", Encode(upload.id, false));
  const absl::Status status = Make(RequestFor("DELETE", upload.key, query), "giving up " + Name(upload.key), {}).status();
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

absl::StatusOr<std::vector<S3Upload>> S3Client::ListUploads(const std::string& prefix) {
  std::vector<S3Upload> uploads;
  S3Uploads page;
  std::set<std::pair<std::string, std::string>> places;
  do {
    if (!places.emplace(page.next_key, page.next_id).second) return Astray(prefix, "without an end");
    const std::string key = page.next_key.empty() ? "" : absl::StrCat("key-marker=", Encode(page.next_key, false), "&");
    const std::string id = page.next_id.empty() ? "" : absl::StrCat("&upload-id-marker=", Encode(page.next_id, false));
    const std::string query = absl::StrCat(key, "prefix=", Encode(prefix, false), id.empty() ? "&" : id + "&", "uploads=");
    // Sorted by name: key-marker, prefix, upload-id-marker, uploads.
    ASSIGN_OR_RETURN(const S3Reply reply, Make(RequestFor("GET", "", query), absl::StrCat("listing uploads of ", Name(prefix)),
                                               {.root = "ListMultipartUploadsResult"}));
    ASSIGN_OR_RETURN(page, ParseUploads(reply.body));
    // Stores that know no prefix here list all.
    for (const S3Upload& upload : page.uploads)
      if (absl::StartsWith(upload.key, prefix)) uploads.push_back(upload);
  } while (!page.next_key.empty() || !page.next_id.empty());
  return uploads;
}

}  // namespace legoai::objectstore

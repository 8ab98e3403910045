// One request to an object store, signed with AWS's Signature Version 4 by libcurl over all of its body, so that the store
// refuses a body that has changed on the way. TLS certificates are verified, redirections and proxies are not followed.
// Connections are kept for a thread's next request. Thread-safety: may be called from several threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/objectstore/s3_options.h"

namespace legoai::objectstore {

// While it lives, `alive` is called at least once a second during requests of this thread and the pauses between them: a store
// may take long, and whoever watches this process must not take it for hung. May be empty. They nest.
class AliveDuring {
 public:
  explicit AliveDuring(std::function<void()> alive);
  ~AliveDuring();
  AliveDuring(const AliveDuring&) = delete;
  AliveDuring& operator=(const AliveDuring&) = delete;

  // Calls that of this thread.
  static void Tell();

 private:
  const std::function<void()> alive_;
  const AliveDuring* const outer_;
};

struct S3Request {
  std::string method = "GET";
  std::string url;                   // without its query; percent-encoded (Encode)
  std::string query = {};            // sorted by name, percent-encoded, each name with `=`: "prefix=a%2Fb&uploads="
  std::vector<std::string> headers;  // "x-amz-copy-source: /bucket/key"
  std::string_view body = {};        // of PUT and POST; must outlive the request
  // Of a GET: these bytes alone, written to `out`, which has room for them. 0: all of it, to Reply::body.
  int64_t offset = 0, bytes = 0;
  char* out = nullptr;
  bool takes_long = false;  // the store copies or joins gigabytes before it answers
};

struct S3Reply {
  std::string failure;    // what went wrong on the way, where no reply came; empty: one did
  bool may_pass = false;  // of `failure`: the same request may succeed later
  int status = 0;         // of HTTP
  std::string body;       // of an error, also where `out` was given
  std::string etag;       // with its quotes
  int64_t got = 0;        // bytes written to `out`
};

// A reply of more than 64 MiB that does not go to `out` is a failure.
S3Reply Send(const S3Options& options, const S3Request& request);

// `text` percent-encoded as signatures want it; slashes too unless they are kept.
std::string Encode(std::string_view text, bool keep_slashes);

}  // namespace legoai::objectstore

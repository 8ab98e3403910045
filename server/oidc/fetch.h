// Reads a small file over HTTPS. Certificates are verified, redirections and proxies are not followed. Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace legoai::oidc {

struct FetchOptions {
  std::string ca_file = {};  // PEM: whose certificates are trusted; empty: those that this system trusts
  absl::Duration limit = absl::Seconds(10);
  size_t most_bytes = size_t{256} << 10;
};

// Whether `text` is meant as a URL, and not as a path.
bool IsUrl(const std::string& text);

// An https:// URL of a host, or an http:// one of this machine itself (localhost, 127.0.0.0/8, [::1]): what comes in clear from
// elsewhere, somebody on the way can change. No user, no fragment. Errors: FieldError of `field`.
absl::Status CheckUrl(const std::string& field, const std::string& url);

// The body of the answer 200 to GET. `url` passes CheckUrl. Errors: Unavailable: no such answer, larger than may be, later than
// the limit, or `ends` became true, which is looked at once a second.
absl::StatusOr<std::string> Fetch(const std::string& url, const FetchOptions& options, const std::atomic<bool>& ends);

}  // namespace legoai::oidc

// How a token comes with an HTTP request: in `Authorization: Bearer SECRET`, as programs send it, or in a cookie, as the page has
// it from /session.
//
// A cookie and not the page's own storage: no script can read one that is HttpOnly, and a browser sends it with streams of events
// and downloads, which take no header. SameSite=Strict keeps it from requests that other sites cause; besides, the server refuses
// a POST from another origin. Browsers do not keep the ports of a host apart: give the server a host name of its own.
//
// Thread-safety: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/access/gate.h"

namespace legoai::server {

// The secret of a request with these headers; empty: it has none. The header wins over the cookie.
std::string SecretOf(std::string_view authorization, std::string_view cookies);

// Of Set-Cookie: keeps the secret for `seconds`; 0: forgets it. `secure`: only ever sent over TLS.
std::string SessionCookie(std::string_view secret, int64_t seconds, bool secure);

// What browsers keep of one cookie, with its name and attributes (RFC 6265).
inline constexpr size_t kMostCookieBytes = 4096;

// What /session says to who has signed in: {"name": "tokens/01J...", "roles": [{"role", "project"}]}.
std::string IdentityJson(const access::Identity& who);

// The token in {"token": "..."}, the body of a sign-in; empty: sign out. Errors: FieldError.
absl::StatusOr<std::string> ReadSignIn(const std::string& body);

}  // namespace legoai::server

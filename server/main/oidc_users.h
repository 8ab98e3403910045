// Users of an OpenID provider, as the server's flags name it. Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/access/users.h"

namespace legoai::server {

// As they were given; empty: not.
struct OidcFlags {
  std::string issuer = {}, audience = {}, jwks = {}, tls_ca = {}, roles = {};
  std::string groups_claim = "groups", name_claim = "sub";
};

// null: no provider was named. `tokens`: the server asks for tokens (--tokens), without which nobody is asked anything. Begins to
// read the provider's keys. Errors: FieldErrors of the flags.
absl::StatusOr<std::unique_ptr<access::Users>> MakeUsers(const OidcFlags& flags, bool tokens);

}  // namespace legoai::server

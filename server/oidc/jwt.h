// One token of an OpenID provider (a JWT, RFC 7519, signed, in the compact form of RFC 7515): what is checked of it, after the
// advice of RFC 8725. Thread-safety: pure functions.
//
// Errors are Unauthenticated FieldErrors whose field is what is wrong, "token: exp", and never hold any of the token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "server/oidc/key_set.h"

namespace legoai::oidc {

inline constexpr size_t kMostTokenBytes = size_t{16} << 10;

// What a token has to say, and where it says the rest.
struct TokenRules {
  std::string issuer;    // `iss` is equal
  std::string audience;  // `aud` is, or contains, it
  std::string groups_claim = "groups";
  std::string name_claim = "sub";
  absl::Duration leeway = absl::Seconds(60);  // by which the clocks of provider and server may differ
};

// Whom a token is about.
struct User {
  std::string issuer, subject;      // `iss` and `sub`, which together are never anybody else's
  std::string name;                 // the claim of `name_claim` where it is printable text; otherwise `subject`
  std::vector<std::string> groups;  // none where the token has no such claim
  int64_t expire_time_us = 0;       // microseconds since 1970, UTC, with the leeway: from then on it does not count
};

// Whether it is meant for one: it has dots, which tokens of this server's own have not.
bool LooksLikeJwt(std::string_view text);

// A token whose form and header are in order, and of which nothing else is known yet.
class Jwt {
 public:
  static absl::StatusOr<Jwt> Parse(std::string token);

  const std::string& key_id() const { return key_id_; }
  Algorithm algorithm() const { return algorithm_; }

  // Checks signature and claims. `key` is of key_id() and algorithm(); `now_us`: microseconds since 1970, UTC.
  absl::StatusOr<User> Check(const Key& key, const TokenRules& rules, int64_t now_us) const;

 private:
  Jwt(std::string token, std::string payload, std::string key_id, Algorithm algorithm)
      : token_(std::move(token)), payload_(std::move(payload)), key_id_(std::move(key_id)), algorithm_(algorithm) {}

  std::string token_, payload_, key_id_;
  Algorithm algorithm_;
};

// The claims of a token whose signature is in order. Apart from Jwt for those who test it alone.
absl::StatusOr<User> ReadClaims(std::string_view payload, const TokenRules& rules, int64_t now_us);

// "token: WHAT", "": Unauthenticated.
absl::Status RefuseToken(std::string_view what, std::string_view remedy);

}  // namespace legoai::oidc

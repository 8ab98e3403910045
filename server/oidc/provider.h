// An OpenID provider whose word on who somebody is this server takes: its keys, and what its tokens must say. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/oidc/jwt.h"
#include "server/oidc/key_source.h"

namespace legoai::oidc {

class Provider {
 public:
  Provider(std::unique_ptr<KeySource> keys, TokenRules rules) : keys_(std::move(keys)), rules_(std::move(rules)) {}

  // Whom the token is about. Errors: those of Jwt; Unavailable while the keys were not read yet, or are read again since the
  // token names one that is not there: the same call may succeed a moment later.
  absl::StatusOr<User> Check(std::string_view token, int64_t now_us) const;

 private:
  const std::unique_ptr<KeySource> keys_;
  const TokenRules rules_;
};

}  // namespace legoai::oidc

#include "server/oidc/provider.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "proto/status.h"

namespace legoai::oidc {

absl::StatusOr<User> Provider::Check(std::string_view token, int64_t now_us) const {
  ASSIGN_OR_RETURN(const auto jwt, Jwt::Parse(std::string(token)));
  auto keys = keys_->Keys();
  if (keys == nullptr)
    return absl::UnavailableError("this server has not read yet which keys the identity provider signs with: try again");
  if (!keys->Has(jwt.key_id())) {
    if (keys_->ReadAgain())
      return absl::UnavailableError("the identity provider's keys are read again, since the token names a new one: try again");
    keys = keys_->Keys();  // a reading may have ended since they were looked at
  }
  const Key* const key = keys->Find(jwt.key_id(), jwt.algorithm());
  if (key != nullptr) return jwt.Check(*key, rules_, now_us);
  if (keys->Has(jwt.key_id()))
    return RefuseToken("alg", absl::StrCat(std::string(NameOf(jwt.algorithm())), " is not what the key that it names is for"));
  return RefuseToken("kid", absl::StrCat("names no key of ", rules_.issuer, ": is the token of another provider?"));
}

}  // namespace legoai::oidc

// Users whom an OpenID provider vouches for: who they are its tokens say (server/oidc), and the groups in them what they may do.
// Without a grant for any of their groups they may do nothing. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/access/rights.h"
#include "server/oidc/provider.h"

namespace legoai::access {

// What groups may do.
class GroupRoles {
 public:
  // `toml`: a UserRoles (access.proto). Errors: FieldErrors of its keys, all at once; those of ParseToml.
  static absl::StatusOr<GroupRoles> Parse(std::string_view toml);

  // In no order; of none of these groups: none.
  std::vector<Grant> Of(const std::vector<std::string>& groups) const;

 private:
  std::map<std::string, std::vector<Grant>, std::less<>> by_group_;
};

class Users {
 public:
  Users(std::unique_ptr<oidc::Provider> provider, GroupRoles roles) : provider_(std::move(provider)), roles_(std::move(roles)) {}

  // Whom this token is about. Without grants where none of the user's groups has any. Errors: those of Provider::Check.
  absl::StatusOr<Identity> Authenticate(std::string_view token, int64_t now_us) const;

 private:
  const std::unique_ptr<oidc::Provider> provider_;
  const GroupRoles roles_;
};

}  // namespace legoai::access

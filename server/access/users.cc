#include "server/access/users.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/enum_text.h"
#include "proto/errors.h"
#include "proto/legoai/v1/access.pb.h"
#include "proto/status.h"
#include "proto/toml/toml.h"
#include "server/jobs/names.h"

namespace legoai::access {
namespace {

constexpr int kMostGrants = 10'000;
constexpr size_t kMostGroupBytes = 500;

absl::StatusOr<std::string> ProjectFor(const std::string& place, const v1::GroupGrant& grant) {
  const std::string field = place + ".project", &given = grant.project();
  if (grant.role() == v1::OPERATOR) {
    if (given.empty()) return std::string(kAllProjects);
    return FieldError(field, given, "goes without the role operator, which is for no single project");
  }
  if (given.empty())
    return FieldError(field, "", "is needed: the project in which the group has the role; \"-\" for all of them");
  const std::string name = absl::StartsWith(given, "projects/") ? given : "projects/" + given;
  if (name == kAllProjects) return name;
  RETURN_IF_ERROR(server::ParseProjectName(field, name).status());
  return name;
}

absl::StatusOr<Grant> ReadGrant(const std::string& place, const v1::GroupGrant& grant) {
  if (grant.group().empty()) return FieldError(place + ".group", "", "is needed: a group, as the provider's tokens have it");
  RETURN_IF_ERROR(CheckPrintable(place + ".group", grant.group()));
  if (grant.group().size() > kMostGroupBytes)
    return FieldError(place + ".group", "", absl::StrCat("must have at most ", kMostGroupBytes, " bytes"));
  if (grant.role() == v1::ROLE_UNSPECIFIED)
    return FieldError(place + ".role", "", "is needed: viewer, editor, admin or operator");
  if (grant.role() == v1::AGENT)
    return FieldError(place + ".role", "agent", "is for agents, which have tokens of the server: lego token create --role agent");
  ASSIGN_OR_RETURN(auto project, ProjectFor(place, grant));
  return Grant{grant.role(), std::move(project)};
}

}  // namespace

absl::StatusOr<GroupRoles> GroupRoles::Parse(std::string_view toml) {
  v1::UserRoles file;
  RETURN_IF_ERROR(ParseToml(toml, &file));
  if (file.grant_size() == 0)
    return FieldError("grant", "", "is needed: without one nobody may do anything. Write [[grant]] with group, role and project");
  if (file.grant_size() > kMostGrants) return FieldError("grant", "", absl::StrCat("must be at most ", kMostGrants));
  GroupRoles roles;
  std::vector<absl::Status> faults;
  for (int i = 0; i < file.grant_size() && faults.size() < kMostFaults; ++i) {
    auto grant = ReadGrant(absl::StrCat("grant[", i, "]"), file.grant(i));
    if (grant.ok()) {
      roles.by_group_[file.grant(i).group()].push_back(*std::move(grant));
    } else {
      faults.push_back(grant.status());
    }
  }
  if (!faults.empty()) return AllFaults(faults);
  return roles;
}

std::vector<Grant> GroupRoles::Of(const std::vector<std::string>& groups) const {
  std::vector<Grant> grants;
  for (const std::string& group : groups) {
    const auto found = by_group_.find(group);
    if (found != by_group_.end()) grants.insert(grants.end(), found->second.begin(), found->second.end());
  }
  return grants;
}

absl::StatusOr<Identity> Users::Authenticate(std::string_view token, int64_t now_us) const {
  ASSIGN_OR_RETURN(auto user, provider_->Check(token, now_us));
  return Identity{.issuer = std::move(user.issuer),
                  .subject = std::move(user.subject),
                  .user = std::move(user.name),
                  .grants = roles_.Of(user.groups),
                  .expire_time_us = user.expire_time_us};
}

}  // namespace legoai::access

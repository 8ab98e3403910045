#include "server/access/tokens.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/process/secret_file.h"
#include "proto/enum_text.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "server/jobs/names.h"
#include "server/jobs/request_checks.h"
#include "server/metrics/log.h"

namespace legoai::access {
namespace {

constexpr size_t kMostDisplayName = 200;
constexpr int64_t kDay = int64_t{86400} * 1'000'000;
constexpr int64_t kRemembered = 90 * kDay;  // what has ended, so that a list can still say whose it was
constexpr double kFirstLifetimeSeconds = 30 * 86400.0;

int64_t EndOf(const v1::Token& token) {
  return token.revoke_time_us() > 0 ? std::min(token.revoke_time_us(), token.expire_time_us()) : token.expire_time_us();
}

bool HasLivingOperator(const std::vector<v1::StoredToken>& all, int64_t now_us) {
  return std::any_of(all.begin(), all.end(), [now_us](const v1::StoredToken& one) {
    return one.token().role() == v1::OPERATOR && EndOf(one.token()) > now_us;
  });
}

bool IsOperator(const Identity& who) { return HighestRole(who) == v1::OPERATOR; }

bool MayRevoke(const Identity& who, const v1::Token& token) {
  const v1::Role role = RoleIn(who, token.project());
  return IsOperator(who) || (!token.project().empty() && role >= v1::ADMIN && token.role() <= role);
}

bool IsOfNoProject(v1::Role role) { return role == v1::OPERATOR || role == v1::AGENT; }

absl::Status CheckLifetime(double seconds) {
  if (std::isfinite(seconds) && (seconds == 0 || seconds >= 1) && seconds <= kLongestLifetimeSeconds) return absl::OkStatus();
  return FieldError("lifetime_seconds", absl::StrCat(seconds), "must be 1 second to 366 days; 0: 90 days");
}

// The project that the new token is for.
absl::StatusOr<std::string> ProjectFor(const Identity& who, const v1::CreateTokenRequest& request) {
  if (IsOfNoProject(request.role())) {
    if (request.project().empty()) return std::string(request.role() == v1::OPERATOR ? kAllProjects : "");
    return FieldError("project", request.project().substr(0, kMostDisplayName),
                      absl::StrCat("goes without the role ", EnumText(request.role()), ", which is for no single project"));
  }
  if (request.project() == kAllProjects && Sees(who, kAllProjects)) return request.project();
  RETURN_IF_ERROR(server::ParseProjectName("project", request.project()).status());
  if (Sees(who, request.project())) return request.project();
  return FieldError("project", request.project(), "is not there, or not in your hands", absl::StatusCode::kNotFound);
}

absl::Status MoreThan(v1::Role asked, v1::Role own) {
  return FieldError("role", EnumText(asked), absl::StrCat("may do more than ", EnumText(own), ", your own: ask an operator"),
                    absl::StatusCode::kPermissionDenied);
}

// As far as the role alone says.
absl::Status CheckRole(const Identity& who, v1::Role role) {
  if (role == v1::ROLE_UNSPECIFIED) return FieldError("role", "", "is needed: viewer, editor, admin, operator or agent");
  if (IsOperator(who) || (!IsOfNoProject(role) && role <= HighestRole(who))) return absl::OkStatus();
  return MoreThan(role, HighestRole(who));
}

// An admin of one project may be less in another.
absl::Status CheckRoleIn(const Identity& who, const std::string& project, v1::Role role) {
  const v1::Role own = RoleIn(who, project);
  if (IsOperator(who) || (own >= v1::ADMIN && role <= own)) return absl::OkStatus();
  if (own >= v1::ADMIN) return MoreThan(role, own);
  return FieldError("project", project, absl::StrCat("is one where you are ", EnumText(own), ", and admins make its tokens"),
                    absl::StatusCode::kPermissionDenied);
}

}  // namespace

Tokens::Tokens(store::Store* store, Gate* gate, std::function<int64_t()> now_us)
    : store_(store), gate_(gate), now_us_(std::move(now_us)), ids_(now_us_, &store::SystemRandom) {}

v1::StoredToken Tokens::NewToken(const std::string& secret, double lifetime_seconds) {
  v1::StoredToken stored;
  stored.set_secret_sha256(SecretDigest(secret));
  v1::Token& token = *stored.mutable_token();
  token.set_name(absl::StrCat("tokens/", ids_.Next()));
  token.set_create_time_us(now_us_());
  token.set_expire_time_us(token.create_time_us() + static_cast<int64_t>(lifetime_seconds * 1e6));
  return stored;
}

// For one more of `all`: what ended long ago goes.
absl::Status Tokens::MakeRoom(store::Transaction& transaction, const std::vector<v1::StoredToken>& all) {
  size_t kept = 0;
  for (const v1::StoredToken& one : all) {
    const bool over = EndOf(one.token()) < now_us_() - kRemembered;
    kept += !over;
    if (over) RETURN_IF_ERROR(transaction.DeleteToken(one.token().name()));
  }
  if (kept < kMostTokens) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("there are ", kept, " tokens, as many as a server keeps: revoke some, which are forgotten 90 days later"));
}

void Tokens::Tell() {
  if (gate_ == nullptr) return;
  if (const absl::Status status = gate_->Refresh(); !status.ok())
    server::LogWarning(absl::StrCat("tokens could not be read again at once: ", std::string(status.message())));
}

absl::StatusOr<v1::CreateTokenResponse> Tokens::Create(const Identity& who, const v1::CreateTokenRequest& request) {
  RETURN_IF_ERROR(CheckRole(who, request.role()));
  RETURN_IF_ERROR(server::CheckText("display_name", request.display_name(), kMostDisplayName));
  RETURN_IF_ERROR(CheckLifetime(request.lifetime_seconds()));
  ASSIGN_OR_RETURN(const auto project, ProjectFor(who, request));
  RETURN_IF_ERROR(CheckRoleIn(who, project, request.role()));
  v1::CreateTokenResponse response;
  response.set_secret(NewSecret());
  v1::StoredToken stored =
      NewToken(response.secret(), request.lifetime_seconds() > 0 ? request.lifetime_seconds() : kUsualLifetimeSeconds);
  stored.mutable_token()->set_display_name(request.display_name());
  stored.mutable_token()->set_role(request.role());
  stored.mutable_token()->set_project(project);
  stored.mutable_token()->set_creator(NameOf(who));
  RETURN_IF_ERROR(store_->Write([&](store::Transaction& transaction) -> absl::Status {
    ASSIGN_OR_RETURN(const auto all, transaction.ListTokens());
    RETURN_IF_ERROR(MakeRoom(transaction, all));
    return transaction.PutToken(stored);
  }));
  Tell();
  *response.mutable_token() = stored.token();
  return response;
}

absl::StatusOr<std::vector<v1::StoredToken>> Tokens::All() {
  std::vector<v1::StoredToken> all;
  RETURN_IF_ERROR(store_->Read([&](store::ReadTransaction& transaction) -> absl::Status {
    ASSIGN_OR_RETURN(all, transaction.ListTokens());
    return absl::OkStatus();
  }));
  return all;
}

absl::StatusOr<v1::ListTokensResponse> Tokens::List(const Identity& who) {
  ASSIGN_OR_RETURN(const auto all, All());
  v1::ListTokensResponse response;
  for (const v1::StoredToken& one : all) {
    if (MayRevoke(who, one.token()) && EndOf(one.token()) >= now_us_() - kRemembered) *response.add_tokens() = one.token();
  }
  return response;
}

absl::StatusOr<v1::Token> Tokens::Revoke(const Identity& who, const v1::RevokeTokenRequest& request) {
  v1::Token token;
  RETURN_IF_ERROR(store_->Write([&](store::Transaction& transaction) -> absl::Status {
    ASSIGN_OR_RETURN(auto stored, transaction.GetToken(request.name()));
    if (!stored || !MayRevoke(who, stored->token())) {
      return FieldError("name", request.name().substr(0, kMostDisplayName),
                        "is no token of yours to revoke: `lego token list` shows those", absl::StatusCode::kNotFound);
    }
    if (stored->token().revoke_time_us() == 0) {
      stored->mutable_token()->set_revoke_time_us(now_us_());
      RETURN_IF_ERROR(transaction.PutToken(*stored));
    }
    token = stored->token();
    return absl::OkStatus();
  }));
  Tell();
  return token;
}

absl::StatusOr<bool> Tokens::HasOperator() {
  ASSIGN_OR_RETURN(const auto all, All());
  return HasLivingOperator(all, now_us_());
}

absl::StatusOr<bool> Tokens::MakeFirst(const std::string& path) {
  const std::string secret = NewSecret();
  v1::StoredToken stored = NewToken(secret, kFirstLifetimeSeconds);
  stored.mutable_token()->set_display_name("first operator");
  stored.mutable_token()->set_role(v1::OPERATOR);
  stored.mutable_token()->set_project(kAllProjects);
  bool made = false;
  RETURN_IF_ERROR(store_->Write([&](store::Transaction& transaction) -> absl::Status {
    made = false;
    ASSIGN_OR_RETURN(const auto all, transaction.ListTokens());
    if (HasLivingOperator(all, now_us_())) return absl::OkStatus();
    RETURN_IF_ERROR(MakeRoom(transaction, all));
    // The file first: a secret that nobody has would stand in the way of the next start.
    RETURN_IF_ERROR(launch::WriteSecretFile("--first_token_file", path, secret));
    made = true;
    return transaction.PutToken(stored);
  }));
  if (made) Tell();
  return made;
}

}  // namespace legoai::access

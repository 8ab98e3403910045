#include "server/main/oidc_users.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "proto/read_file.h"
#include "proto/status.h"
#include "proto/text.h"
#include "server/oidc/fetch.h"
#include "server/oidc/key_source.h"
#include "server/oidc/provider.h"

namespace legoai::server {
namespace {

constexpr size_t kMostTextBytesOfClaim = 500;
constexpr int64_t kMostPemBytes = 1 << 20;

struct NamedText {
  const char* flag;
  std::string text;
  const char* remedy = "must not be empty";
};

// What goes along with --oidc_issuer.
absl::Status CheckGiven(const OidcFlags& flags) {
  const NamedText needed[] = {
      {"--oidc_audience", flags.audience,
       "is needed with --oidc_issuer: what this server is called there; otherwise tokens for any other service would be taken"},
      {"--oidc_jwks", flags.jwks, "is needed with --oidc_issuer: the https:// URL, or a file, of the provider's keys"},
      {"--oidc_roles", flags.roles, "is needed with --oidc_issuer: the file that says what the provider's groups may do"},
      {"--oidc_groups_claim", flags.groups_claim},
      {"--oidc_name_claim", flags.name_claim},
      {"--oidc_issuer", flags.issuer},
  };
  for (const NamedText& one : needed) {
    if (one.text.empty()) return FieldError(one.flag, "", one.remedy);
    RETURN_IF_ERROR(CheckPrintable(one.flag, one.text));
    if (one.text.size() > kMostTextBytesOfClaim)
      return FieldError(one.flag, CutText(one.text), absl::StrCat("must have at most ", kMostTextBytesOfClaim, " bytes"));
  }
  return absl::OkStatus();
}

// Of flags that say nothing without --oidc_issuer, or without --tokens.
absl::Status CheckAlone(const OidcFlags& flags, bool tokens) {
  const OidcFlags unset;
  const NamedText others[] = {
      {"--oidc_audience", flags.audience},
      {"--oidc_jwks", flags.jwks},
      {"--oidc_tls_ca", flags.tls_ca},
      {"--oidc_roles", flags.roles},
      {"--oidc_groups_claim", flags.groups_claim == unset.groups_claim ? "" : flags.groups_claim},
      {"--oidc_name_claim", flags.name_claim == unset.name_claim ? "" : flags.name_claim},
  };
  for (const NamedText& one : others) {
    if (flags.issuer.empty() && !one.text.empty()) return FieldError(one.flag, one.text, "needs --oidc_issuer");
  }
  if (flags.issuer.empty() || tokens) return absl::OkStatus();
  return FieldError("--oidc_issuer", flags.issuer, "needs --tokens: without it this server asks nobody who they are");
}

absl::Status CheckKeysPlace(const OidcFlags& flags) {
  const bool is_url = oidc::IsUrl(flags.jwks);
  if (is_url) RETURN_IF_ERROR(oidc::CheckUrl("--oidc_jwks", flags.jwks));
  if (flags.tls_ca.empty()) return absl::OkStatus();
  if (!is_url || !absl::StartsWithIgnoreCase(flags.jwks, "https://"))
    return FieldError("--oidc_tls_ca", flags.tls_ca, "is for an https:// URL, and --oidc_jwks is none");
  ASSIGN_OR_RETURN(const auto pem, ReadFileOf("--oidc_tls_ca", flags.tls_ca, kMostPemBytes, "name a file of PEM blocks"));
  if (absl::StrContains(pem, "BEGIN CERTIFICATE")) return absl::OkStatus();
  return FieldError("--oidc_tls_ca", flags.tls_ca, "has no certificate: name a file of PEM blocks");
}

}  // namespace

absl::StatusOr<std::unique_ptr<access::Users>> MakeUsers(const OidcFlags& flags, bool tokens) {
  RETURN_IF_ERROR(CheckAlone(flags, tokens));
  if (flags.issuer.empty()) return std::unique_ptr<access::Users>();
  RETURN_IF_ERROR(CheckGiven(flags));
  RETURN_IF_ERROR(CheckKeysPlace(flags));
  ASSIGN_OR_RETURN(const auto text, ReadFileOf("--oidc_roles", flags.roles, kMostTextBytes, "name a TOML file of grants"));
  auto roles = access::GroupRoles::Parse(text);
  if (!roles.ok()) return Annotate(roles.status(), absl::StrCat("--oidc_roles = ", flags.roles));
  oidc::KeySourceOptions options{.place = flags.jwks};
  options.fetch.ca_file = flags.tls_ca;
  auto keys = oidc::KeySource::Open(options);
  if (!keys.ok()) return FieldError("--oidc_jwks", flags.jwks, std::string(keys.status().message()));
  oidc::TokenRules rules{.issuer = flags.issuer,
                         .audience = flags.audience,
                         .groups_claim = flags.groups_claim,
                         .name_claim = flags.name_claim};
  return std::make_unique<access::Users>(std::make_unique<oidc::Provider>(*std::move(keys), std::move(rules)), *std::move(roles));
}

}  // namespace legoai::server

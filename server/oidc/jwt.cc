#include "server/oidc/jwt.h"

#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "proto/text.h"
#include "server/metrics/log.h"
#include "server/oidc/base64url.h"
#include "server/oidc/strict_json.h"

namespace legoai::oidc {
namespace {

using Json = nlohmann::json;

constexpr int kMostHeaderDepth = 4, kMostDepth = 16;
constexpr size_t kMostNameBytes = 200, kMostSubjectBytes = 255;
constexpr double kMostSeconds = 1e11;  // the year 5138; far below what microseconds of 64 bits hold

// The header says what the token is; of some kinds providers sign that are no proof of who sends them (logout+jwt).
bool IsKind(const Json& header) {
  if (!header.contains("typ")) return true;
  std::string type = absl::AsciiStrToLower(TextOf(header, "typ"));
  if (type.rfind("application/", 0) == 0) type = type.substr(12);
  return type == "jwt" || type == "at+jwt";
}

std::optional<Algorithm> AlgorithmOf(const Json& header) {
  const std::string name = TextOf(header, "alg");
  for (const Algorithm one : {Algorithm::kRs256, Algorithm::kEs256}) {
    if (name == NameOf(one)) return one;
  }
  return std::nullopt;
}

// The claim as a time in seconds since 1970; nothing where it is missing.
absl::StatusOr<std::optional<double>> TimeOf(const Json& claims, const char* name) {
  const auto found = claims.find(name);
  if (found == claims.end()) return std::optional<double>();
  const double seconds = found->is_number() ? found->get<double>() : -1;
  if (seconds >= 0 && seconds <= kMostSeconds) return std::optional<double>(seconds);
  return RefuseToken(name, "must be a number of seconds since 1970");
}

std::string TimeText(double seconds) { return server::LogTime(static_cast<int64_t>(std::floor(seconds)) * 1'000'000); }

// When it expires, without leeway, in seconds.
absl::StatusOr<double> CheckTimes(const Json& claims, double leeway, double now) {
  ASSIGN_OR_RETURN(const auto expires, TimeOf(claims, "exp"));
  ASSIGN_OR_RETURN(const auto begins, TimeOf(claims, "nbf"));
  ASSIGN_OR_RETURN(const auto issued, TimeOf(claims, "iat"));
  if (!expires) return RefuseToken("exp", "is needed: tokens without an end are not taken");
  if (now >= *expires + leeway)
    return RefuseToken("exp", absl::StrCat("was ", TimeText(*expires), ": have the identity provider make another token"));
  if (begins && *begins > now + leeway)
    return RefuseToken("nbf", absl::StrCat("is ", TimeText(*begins), ", later than now: are the clocks of both machines right?"));
  if (issued && *issued > now + leeway)
    return RefuseToken("iat", absl::StrCat("is ", TimeText(*issued), ", later than now: are the clocks of both machines right?"));
  return *expires;
}

// A claim that is text, or a list of texts.
absl::StatusOr<std::vector<std::string>> TextsOf(const Json& claims, const std::string& name) {
  std::vector<std::string> texts;
  const auto found = claims.find(name);
  if (found == claims.end()) return texts;
  if (found->is_string()) return std::vector<std::string>{found->get<std::string>()};
  bool all = found->is_array();
  for (const Json& one : all ? *found : Json::array()) {
    all = all && one.is_string();
    if (all) texts.push_back(one.get<std::string>());
  }
  if (!all) return RefuseToken(CutText(name), "must be text or a list of texts");
  return texts;
}

absl::Status CheckWhere(const Json& claims, const TokenRules& rules) {
  if (TextOf(claims, "iss") != rules.issuer)
    return RefuseToken("iss", absl::StrCat("is another one than ", rules.issuer, ", whose tokens this server takes"));
  ASSIGN_OR_RETURN(const auto audiences, TextsOf(claims, "aud"));
  for (const std::string& one : audiences) {
    if (one == rules.audience) return absl::OkStatus();
  }
  return RefuseToken("aud", absl::StrCat("is without ", rules.audience, ", which is what this server is called at the provider"));
}

}  // namespace

absl::Status RefuseToken(std::string_view what, std::string_view remedy) {
  return FieldError(absl::StrCat("token: ", std::string(what)), "", remedy, absl::StatusCode::kUnauthenticated);
}

bool LooksLikeJwt(std::string_view text) { return text.find('.') != std::string_view::npos; }

absl::StatusOr<Jwt> Jwt::Parse(std::string token) {
  if (token.size() > kMostTokenBytes)
    return RefuseToken("size", absl::StrCat("is above ", kMostTokenBytes >> 10, " KiB: have the identity provider put less in"));
  const std::vector<std::string> parts = absl::StrSplit(token, '.');
  if (parts.size() != 3 || parts[0].empty() || parts[1].empty() || parts[2].empty())
    return RefuseToken("form", "must be three parts with dots between, as a signed JWT has: was it copied whole?");
  auto header = DecodeBase64Url(parts[0]), payload = DecodeBase64Url(parts[1]), signature = DecodeBase64Url(parts[2]);
  if (!header || !payload || !signature) return RefuseToken("form", "must be base64url: was it copied whole?");
  const auto json = ParseObject(*header, kMostHeaderDepth);
  if (!json.ok()) return RefuseToken("header", std::string(json.status().message()));
  const auto algorithm = AlgorithmOf(*json);
  if (!algorithm) return RefuseToken("alg", "must be RS256 or ES256: have the identity provider sign so");
  if (json->contains("crit")) return RefuseToken("crit", "asks for an extension, and this server knows none");
  if (!IsKind(*json)) return RefuseToken("typ", "must be JWT or at+jwt: other kinds are no proof of who sends them");
  std::string key_id = TextOf(*json, "kid");
  if (key_id.empty()) return RefuseToken("kid", "is needed: which of the provider's keys has signed");
  return Jwt(std::move(token), *std::move(payload), std::move(key_id), *algorithm);
}

absl::StatusOr<User> Jwt::Check(const Key& key, const TokenRules& rules, int64_t now_us) const {
  // The signature first: of what nobody has signed nothing is said.
  if (key.id() != key_id_ || key.algorithm() != algorithm_ || !key.HasSigned(token_))
    return RefuseToken("signature", "is not that of the provider's key: was the token changed, or cut?");
  return ReadClaims(payload_, rules, now_us);
}

absl::StatusOr<User> ReadClaims(std::string_view payload, const TokenRules& rules, int64_t now_us) {
  const auto claims = ParseObject(payload, kMostDepth);
  if (!claims.ok()) return RefuseToken("claims", std::string(claims.status().message()));
  RETURN_IF_ERROR(CheckWhere(*claims, rules));
  const double leeway = absl::ToDoubleSeconds(rules.leeway);
  ASSIGN_OR_RETURN(const double expires, CheckTimes(*claims, leeway, static_cast<double>(now_us) / 1e6));
  User user;
  user.issuer = rules.issuer;
  user.subject = TextOf(*claims, "sub");
  if (user.subject.empty() || user.subject.size() > kMostSubjectBytes || !IsPrintable(user.subject))
    return RefuseToken("sub", "is needed: whom the token is about, in at most 255 printable bytes");
  user.name = TextOf(*claims, rules.name_claim.c_str());
  if (user.name.empty() || user.name.size() > kMostNameBytes || !IsPrintable(user.name)) user.name = user.subject;
  ASSIGN_OR_RETURN(user.groups, TextsOf(*claims, rules.groups_claim));
  user.expire_time_us = static_cast<int64_t>((expires + leeway) * 1e6);
  return user;
}

}  // namespace legoai::oidc

#include "server/http/credentials.h"

#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "proto/enum_text.h"
#include "proto/errors.h"

namespace legoai::server {
namespace {

constexpr std::string_view kCookie = "legoai_token";
// A browser takes it only from this host itself, over TLS.
constexpr std::string_view kSecureCookie = "__Host-legoai_token";

// Of several of a name the first, as browsers send the most specific one first.
std::string CookieOf(std::string_view cookies, std::string_view name) {
  for (const std::string& pair : std::vector<std::string>(absl::StrSplit(std::string(cookies), ';'))) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(absl::StripAsciiWhitespace(pair), absl::MaxSplits('=', 1));
    if (parts.first == name) return parts.second;
  }
  return "";
}

}  // namespace

std::string SecretOf(std::string_view authorization, std::string_view cookies) {
  // One that is there and cannot be read is an error, not a reason to look elsewhere.
  if (!authorization.empty()) {
    const std::string secret = access::BearerOf(authorization);
    return secret.empty() ? "none" : secret;
  }
  const std::string secure = CookieOf(cookies, kSecureCookie);
  return secure.empty() ? CookieOf(cookies, kCookie) : secure;
}

std::string SessionCookie(std::string_view secret, int64_t seconds, bool secure) {
  return absl::StrCat(std::string(secure ? kSecureCookie : kCookie), "=", std::string(secret), "; Path=/; Max-Age=", seconds,
                      "; HttpOnly; SameSite=Strict", secure ? "; Secure" : "");
}

std::string IdentityJson(const access::Identity& who) {
  using Json = nlohmann::ordered_json;
  Json roles = Json::array();
  for (const access::Grant& grant : who.grants) roles.push_back({{"role", EnumText(grant.role)}, {"project", grant.project}});
  return Json{{"name", access::NameOf(who)}, {"roles", roles}}.dump();
}

absl::StatusOr<std::string> ReadSignIn(const std::string& body) {
  const auto json = nlohmann::json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (json.is_object() && json.size() == 1 && json.contains("token") && json["token"].is_string())
    return json["token"].get<std::string>();
  return FieldError("token", "", "must be sent as {\"token\": \"...\"}; with an empty one the browser forgets it");
}

}  // namespace legoai::server

// What an identity provider sends, and whoever claims to come from it: sets of keys, tokens, and the claims in them.
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "proto/read_file.h"
#include "server/oidc/jwt.h"
#include "tests/fuzz/fuzz.h"

namespace legoai::fuzz {
namespace {

constexpr int64_t kNowUs = int64_t{1'800'000'000} * 1'000'000;

oidc::TokenRules Rules() { return {.issuer = "https://idp.example/realms/lego", .audience = "legoai", .name_claim = "email"}; }

absl::Status ParseKeys(const std::string& text) {
  const auto set = oidc::KeySet::Parse(text);
  if (!set.ok()) return set.status();
  EXPECT_FALSE(set->keys().empty());
  std::set<std::string> ids;
  for (const oidc::Key& key : set->keys()) {
    EXPECT_EQ(set->Find(key.id(), key.algorithm()), &key);
    EXPECT_TRUE(ids.insert(absl::StrCat(key.id(), std::string(oidc::NameOf(key.algorithm())))).second) << "one id twice";
    EXPECT_FALSE(key.HasSigned("e30.e30.AAAA"));
  }
  return absl::OkStatus();
}

TEST(Fuzz, JwtKeys) {
  const std::string names = "keys|kid|kty|use|alg|n|e|crv|x|y|d|key_ops";
  Fuzz({"jwt_keys", JsonWords(names, "RSA|EC|sig|enc|P-256|AQAB|AQ|RS256|ES256"), ParseKeys});
}

// What was signed, in the files that are whole.
const std::set<std::string>& Signed() {
  static const auto* const texts = [] {
    auto* const found = new std::set<std::string>();
    for (const char* name : {"es256", "rs256"}) {
      const auto token = ReadFile(absl::StrCat("tests/fuzz/corpus/jwt/", name, ".txt"));
      EXPECT_TRUE(token.ok()) << token.status();
      found->insert(token->substr(0, token->rfind('.')));
    }
    return found;
  }();
  return *texts;
}

const oidc::KeySet& Keys() {
  static const auto* const keys = [] {
    const auto text = ReadFile("tests/fuzz/corpus/jwt_keys/two_keys.json");
    auto set = oidc::KeySet::Parse(*text);
    EXPECT_TRUE(set.ok()) << set.status();
    return new oidc::KeySet(*std::move(set));
  }();
  return *keys;
}

// Whatever is accepted was signed as it is.
absl::Status CheckToken(const std::string& token) {
  const auto jwt = oidc::Jwt::Parse(token);
  if (!jwt.ok()) return jwt.status();
  const oidc::Key* const key = Keys().Find(jwt->key_id(), jwt->algorithm());
  if (key == nullptr) return oidc::RefuseToken("kid", "is not in the set");
  const auto user = jwt->Check(*key, Rules(), kNowUs);
  if (!user.ok()) return user.status();
  EXPECT_TRUE(Signed().count(token.substr(0, token.rfind('.')))) << "nobody signed it";
  EXPECT_EQ(user->subject, "f3a1-anna");
  return absl::OkStatus();
}

TEST(Fuzz, Jwt) {
  Fuzz({"jwt", Words(".|..|=|-|_|A|AA|eyJhbGciOiJub25lIn0|eyJhbGciOiJFUzI1NiIsImtpZCI6ImUxIn0|e30|\xff"), CheckToken});
}

absl::Status ReadClaims(const std::string& text) {
  const auto user = oidc::ReadClaims(text, Rules(), kNowUs);
  if (!user.ok()) return user.status();
  EXPECT_EQ(user->issuer, Rules().issuer);
  EXPECT_FALSE(user->subject.empty() || user->name.empty());
  EXPECT_LE(user->subject.size(), 255u);
  EXPECT_GT(user->expire_time_us, kNowUs);
  return absl::OkStatus();
}

TEST(Fuzz, JwtClaims) {
  Fuzz({"jwt_claims",
        JsonWords("iss|aud|sub|exp|nbf|iat|groups|email", "legoai|https://idp.example/realms/lego|1800003600|1e300|-1|1e-5"),
        ReadClaims});
}

}  // namespace
}  // namespace legoai::fuzz

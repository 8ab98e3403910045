#include "server/oidc/key_set.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "proto/testing/assert_ok.h"
#include "server/oidc/base64url.h"
#include "server/oidc/testing/test_key.h"

namespace legoai::oidc {
namespace {

using Json = nlohmann::json;

std::string SetOf(const Json& key) { return Json{{"keys", {key}}}.dump(); }

// That the set is refused, saying so.
void ExpectRefused(const std::string& text, const std::string& part) {
  const auto set = KeySet::Parse(text);
  EXPECT_TRUE(absl::IsInvalidArgument(set.status())) << text << ": " << set.status();
  EXPECT_TRUE(absl::StrContains(set.status().message(), part)) << part << " is not in " << set.status();
}

TEST(KeySetTest, KeysAreFoundByIdAndAlgorithm) {
  const TestKey rsa = TestKey::Rsa("a"), ec = TestKey::Ec("a"), other = TestKey::Ec("b");
  ASSERT_OK_AND_ASSIGN(const KeySet set, KeySet::Parse(KeySetText({rsa, ec, other})));
  EXPECT_EQ(set.keys().size(), 3u);
  EXPECT_TRUE(set.others().empty());
  ASSERT_NE(set.Find("a", Algorithm::kRs256), nullptr);
  EXPECT_TRUE(set.Find("a", Algorithm::kRs256)->HasSigned(rsa.Sign(TestClaims(0))));
  EXPECT_TRUE(set.Find("a", Algorithm::kEs256)->HasSigned(ec.Sign(TestClaims(0))));
  EXPECT_TRUE(set.Find("b", Algorithm::kEs256)->HasSigned(other.Sign(TestClaims(0))));
  EXPECT_FALSE(set.Find("b", Algorithm::kEs256)->HasSigned(ec.Sign(TestClaims(0))));
  EXPECT_EQ(set.Find("b", Algorithm::kRs256), nullptr);
  EXPECT_EQ(set.Find("", Algorithm::kEs256), nullptr);
  EXPECT_TRUE(set.Has("b"));
  EXPECT_FALSE(set.Has("c"));
}

// Providers publish keys for other ends beside those for signatures.
TEST(KeySetTest, KeysForOtherEndsAreLeftOutWithTheReason) {
  const Json good = TestKey::Ec("good").Jwk(), rsa = TestKey::Rsa("other").Jwk(), ec = TestKey::Ec("other").Jwk();
  const auto change = [](Json key, const char* name, const Json& value) {
    key[name] = value;
    return key;
  };
  Json without = ec;
  without.erase("kid");
  const std::vector<std::pair<Json, std::string>> cases = {
      {change(rsa, "use", "enc"), "is for enc and not for signatures"},
      {change(rsa, "alg", "RSA-OAEP"), "is for RSA-OAEP"},
      {change(rsa, "alg", "RS512"), "is for RS512"},
      {change(ec, "alg", "RS256"), "is for RS256"},
      {change(ec, "key_ops", {"sign"}), "key_ops"},
      {change(ec, "key_ops", "verify"), "key_ops"},
      {change(ec, "kty", "oct"), "another kty"},
      {change(ec, "kty", "OKP"), "another kty"},
      {change(ec, "kty", 7), "another kty"},
      {change(ec, "kid", ""), "no kid"},
      {change(ec, "kid", std::string(201, 'k')), "no kid"},
      {without, "no kid"},
      {change(ec, "d", "AAAA"), "private key"},
      {change(rsa, "d", "AAAA"), "private key"},
      {TestKey::Ec("other", "P-384").Jwk(), "another curve"},
      {change(ec, "crv", "P-521"), "another curve"},
      {change(ec, "x", EncodeBase64Url(std::string(31, 'x'))), "32 bytes"},
      {change(ec, "x", EncodeBase64Url(std::string(33, 'x'))), "32 bytes"},
      {change(ec, "y", "not base64url!"), "32 bytes"},
      {change(ec, "y", 7), "32 bytes"},
      {change(ec, "y", EncodeBase64Url(std::string(32, 'y'))), "no point of its curve"},
      {change(ec, "x", EncodeBase64Url(std::string(32, '\0'))), "no point of its curve"},
      {TestKey::Rsa("other", 1024).Jwk(), "fewer than 2048 bits"},
      {change(rsa, "n", EncodeBase64Url(std::string(256, '\x7f'))), "fewer than 2048 bits"},
      {change(rsa, "n", EncodeBase64Url(std::string(1000, '\0') + "\x80")), "fewer than 2048 bits"},
      {change(rsa, "n", EncodeBase64Url(std::string(1025, '\xff'))), "more than 8192 bits"},
      {change(rsa, "n", ""), "no n and e"},
      {change(rsa, "e", nullptr), "no n and e"},
      {change(rsa, "e", "AQ"), "exponent"},
      {change(rsa, "e", "AA"), "exponent"},
      {change(rsa, "e", "AAAB"), "exponent"},
      {change(rsa, "e", EncodeBase64Url("\x01\x00\x02")), "exponent"},
      {change(rsa, "e", EncodeBase64Url(std::string(5, '\x01'))), "exponent"},
  };
  for (const auto& [key, part] : cases) {
    ExpectRefused(SetOf(key), part);
    ASSERT_OK_AND_ASSIGN(const KeySet set, KeySet::Parse(Json{{"keys", {key, good}}}.dump()));
    EXPECT_EQ(set.keys().size(), 1u) << key;
    ASSERT_EQ(set.others().size(), 1u) << key;
    EXPECT_TRUE(absl::StrContains(set.others()[0], part)) << part << " is not in " << set.others()[0];
  }
  ASSERT_OK_AND_ASSIGN(const KeySet set, KeySet::Parse(SetOf(change(ec, "key_ops", {"verify"}))));
  EXPECT_EQ(set.keys().size(), 1u);
}

TEST(KeySetTest, WhatIsNoSetIsRefused) {
  const std::string key = TestKey::Ec("a").Jwk().dump();
  for (const char* text : {"", "<html><body>Sign in</body></html>", "[", "{\"keys\": [", "\xff", "null null"})
    ExpectRefused(text, "is no JSON in UTF-8");
  for (const char* text : {"[]", "null", "\"keys\""}) ExpectRefused(text, "is no JSON object");
  for (const char* text : {"{}", "{\"keys\": {}}", "{\"keys\": null}", "{\"error\": \"not found\"}"})
    ExpectRefused(text, "is no set of keys");
  ExpectRefused("{\"keys\": []}", "has no key");
  ExpectRefused("{\"keys\": [7]}", "is no object");
  ExpectRefused(absl::StrCat("{\"keys\": [", key, ", ", key, "]}"), "two keys with the kid a");
  ExpectRefused(absl::StrCat("{\"keys\": [], \"keys\": [", key, "]}"), "twice");
  ExpectRefused(absl::StrCat("{\"keys\": [", std::string(20, '['), std::string(20, ']'), "]}"), "deeper");
  ExpectRefused(absl::StrCat("{\"keys\": [", absl::StrJoin(std::vector<std::string>(101, key), ","), "]}"), "more than 100 keys");
  ExpectRefused(std::string(300 << 10, ' '), "more than 256 KiB");
}

TEST(Base64Url, IsWhatTheStandardSaysAndNothingMore) {
  for (const std::string& text : std::vector<std::string>{"", "f", "fo", "foo", {"\0\xff\xfe", 3}})
    EXPECT_EQ(DecodeBase64Url(EncodeBase64Url(text)), text);
  EXPECT_EQ(EncodeBase64Url("\xfb\xff"), "-_8");
  for (const char* bad : {"Zg==", "Z g", "Zg\n", "Zg.", "+/8", "Z"}) EXPECT_FALSE(DecodeBase64Url(bad)) << bad;
}

}  // namespace
}  // namespace legoai::oidc

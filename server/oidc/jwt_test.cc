// Tokens as a provider makes them, and every way in which one may be wrong. Keys, signatures and tokens are OpenSSL's and this
// test's own; the first test takes those of the standard.
#include "server/oidc/jwt.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "proto/errors.h"
#include "proto/testing/assert_ok.h"
#include "server/oidc/base64url.h"
#include "server/oidc/testing/test_key.h"

namespace legoai::oidc {
namespace {

using Json = nlohmann::json;

constexpr int64_t kNow = 1'800'000'000;  // seconds since 1970

class JwtTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    rsa_ = new TestKey(TestKey::Rsa("r1"));
    ec_ = new TestKey(TestKey::Ec("e1"));
  }
  static void TearDownTestSuite() {
    delete rsa_;
    delete ec_;
  }

  static TokenRules Rules() { return {.issuer = kTestIssuer, .audience = kTestAudience}; }

  // As Provider does, with the keys of `keys`.
  static absl::StatusOr<User> Check(const std::string& token, const std::vector<TestKey>& keys, const TokenRules& rules = Rules(),
                                    int64_t now = kNow) {
    ASSIGN_OR_RETURN(const KeySet set, KeySet::Parse(KeySetText(keys)));
    ASSIGN_OR_RETURN(const Jwt jwt, Jwt::Parse(token));
    const Key* const key = set.Find(jwt.key_id(), jwt.algorithm());
    if (key == nullptr) return RefuseToken("kid", "is not in the set");
    return jwt.Check(*key, rules, now * 1'000'000);
  }
  static absl::StatusOr<User> Check(const std::string& token) { return Check(token, {*rsa_, *ec_}); }

  // That the token is refused for this part of it, in words, and without a piece of it.
  static void ExpectRefused(const std::string& token, const std::string& what, const absl::Status& status) {
    EXPECT_TRUE(absl::IsUnauthenticated(status)) << what << ": " << status;
    const auto violation = GetFieldViolation(status);
    ASSERT_TRUE(violation) << what << ": " << status;
    EXPECT_EQ(violation->field(), "token: " + what) << status;
    EXPECT_FALSE(violation->remedy().empty());
    for (size_t at = 0; at + 12 <= token.size(); at += 12)
      EXPECT_FALSE(absl::StrContains(status.ToString(), token.substr(at, 12))) << "the token is in the error: " << status;
  }
  static void ExpectRefused(const std::string& token, const std::string& what) {
    ExpectRefused(token, what, Check(token).status());
  }

  static TestKey *rsa_, *ec_;
};

TestKey *JwtTest::rsa_ = nullptr, *JwtTest::ec_ = nullptr;

// RFC 7515, appendices A.2 and A.3: keys, texts and signatures as they are printed there.
constexpr char kRfcPayload[] = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
constexpr char kRfcRsa[] =
    "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr"
    "7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--x"
    "i12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_Ioy"
    "pGlUPQGe77Rw";
constexpr char kRfcRsaModulus[] =
    "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRP"
    "EwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qC"
    "o5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ";
constexpr char kRfcEc[] = "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";

TEST_F(JwtTest, TheSignaturesOfTheStandardHold) {
  const Json keys = {{"keys",
                      {{{"kid", "a2"}, {"kty", "RSA"}, {"n", kRfcRsaModulus}, {"e", "AQAB"}},
                       {{"kid", "a3"}, {"kty", "EC"}, {"crv", "P-256"}, {"x", "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU"},
                        {"y", "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}}}}};
  ASSERT_OK_AND_ASSIGN(const KeySet set, KeySet::Parse(keys.dump()));
  const std::string rsa = absl::StrCat("eyJhbGciOiJSUzI1NiJ9.", kRfcPayload, ".", kRfcRsa);
  const std::string ec = absl::StrCat("eyJhbGciOiJFUzI1NiJ9.", kRfcPayload, ".", kRfcEc);
  const Key &a2 = *set.Find("a2", Algorithm::kRs256), &a3 = *set.Find("a3", Algorithm::kEs256);
  EXPECT_TRUE(a2.HasSigned(rsa));
  EXPECT_TRUE(a3.HasSigned(ec));
  EXPECT_FALSE(a2.HasSigned(ec));
  EXPECT_FALSE(a3.HasSigned(rsa));
  for (const size_t at : {size_t{25}, rsa.size() - 40}) {
    std::string changed = rsa;
    changed[at] = changed[at] == 'A' ? 'B' : 'A';
    EXPECT_FALSE(a2.HasSigned(changed)) << at;
  }
}

TEST_F(JwtTest, WhoIsVouchedForIsKnown) {
  for (const TestKey* key : {rsa_, ec_}) {
    ASSERT_OK_AND_ASSIGN(const User user, Check(key->Sign(TestClaims(kNow, {"/ml", "staff"}))));
    EXPECT_EQ(user.issuer, kTestIssuer);
    EXPECT_EQ(user.subject, "f3a1-anna");
    EXPECT_EQ(user.name, "f3a1-anna");
    EXPECT_EQ(user.groups, (std::vector<std::string>{"/ml", "staff"}));
    EXPECT_EQ(user.expire_time_us, (kNow + 3660) * 1'000'000);
  }
}

TEST_F(JwtTest, ClaimsMayHaveTheOtherFormsThatProvidersGiveThem) {
  TokenRules rules = Rules();
  rules.name_claim = "email";
  rules.groups_claim = "https://example.org/roles";
  Json claims = TestClaims(kNow);
  claims["aud"] = {"account", kTestAudience};
  claims["https://example.org/roles"] = "one";
  claims["exp"] = kNow + 0.5;
  claims.erase("nbf");
  claims.erase("iat");
  claims["realm_access"] = {{"roles", {"offline_access"}}};
  ASSERT_OK_AND_ASSIGN(const User user, Check(rsa_->Sign(claims), {*rsa_}, rules));
  EXPECT_EQ(user.name, "anna@example.org");
  EXPECT_EQ(user.groups, std::vector<std::string>{"one"});
  // A name that cannot be shown is not; who it is stays known.
  for (const Json& name : {Json("anna\n"), Json(""), Json(7), Json(std::string(201, 'a'))}) {
    claims["email"] = name;
    EXPECT_EQ(Check(rsa_->Sign(claims), {*rsa_}, rules)->name, "f3a1-anna") << name;
  }
  for (const char* type : {"jwt", "at+jwt", "application/at+JWT"}) {
    Json header = rsa_->Header();
    header["typ"] = type;
    EXPECT_TRUE(Check(rsa_->Sign(header, TestClaims(kNow).dump())).ok()) << type;
    header.erase("typ");
    EXPECT_TRUE(Check(rsa_->Sign(header, TestClaims(kNow).dump())).ok());
  }
}

TEST_F(JwtTest, ClocksMayDifferByAMinute) {
  const auto at = [](const char* claim, double seconds) {
    Json claims = TestClaims(kNow);
    claims[claim] = static_cast<double>(kNow) + seconds;
    return Check(rsa_->Sign(claims)).status();
  };
  EXPECT_TRUE(at("exp", -59).ok());
  ExpectRefused("", "exp", at("exp", -60));
  EXPECT_TRUE(at("nbf", 60).ok());
  ExpectRefused("", "nbf", at("nbf", 60.5));
  EXPECT_TRUE(at("iat", 60).ok());
  ExpectRefused("", "iat", at("iat", 61));
}

// Every claim, put to what it must not be.
TEST_F(JwtTest, ClaimsThatAreWrongAreNamed) {
  struct Wrong {
    const char* claim;
    Json value;  // discarded: the claim is missing
  };
  const Json missing(Json::value_t::discarded);
  const std::vector<Wrong> all = {
      {"iss", missing},
      {"iss", "https://idp.example/realms/other"},
      {"iss", "https://idp.example/realms/lego/"},
      {"iss", 1},
      {"iss", Json::array({kTestIssuer})},
      {"aud", missing},
      {"aud", "other"},
      {"aud", nullptr},
      {"aud", Json::array()},
      {"aud", Json::array({"other", "legoai2"})},
      {"aud", Json::array({kTestAudience, 7})},
      {"aud", Json::object({{"legoai", true}})},
      {"exp", missing},
      {"exp", kNow - 3600},
      {"exp", "1900000000"},
      {"exp", -1},
      {"exp", 1e300},
      {"exp", true},
      {"exp", nullptr},
      {"nbf", kNow + 3600},
      {"nbf", "now"},
      {"nbf", nullptr},
      {"iat", kNow + 3600},
      {"iat", Json::object()},
      {"sub", missing},
      {"sub", ""},
      {"sub", 7},
      {"sub", "a\nb"},
      {"sub", std::string(256, 'a')},
      {"groups", 7},
      {"groups", nullptr},
      {"groups", Json::object({{"a", 1}})},
      {"groups", Json::array({"a", 7})},
      {"groups", Json::array({Json::array({"a"})})},
  };
  for (const Wrong& wrong : all) {
    Json claims = TestClaims(kNow);
    claims.erase(wrong.claim);
    if (!wrong.value.is_discarded()) claims[wrong.claim] = wrong.value;
    for (const TestKey* key : {rsa_, ec_}) ExpectRefused(key->Sign(claims), wrong.claim);
  }
}

TEST_F(JwtTest, HeadersThatAreWrongAreNamed) {
  const std::string payload = TestClaims(kNow).dump();
  const auto with = [&](const char* name, const Json& value) {
    Json header = rsa_->Header();
    header[name] = value;
    return rsa_->Sign(header, payload);
  };
  for (const char* algorithm : {"none", "None", "", "HS256", "RS384", "PS256", "ES384", "ES256K", "EdDSA", "rs256"})
    ExpectRefused(with("alg", algorithm), "alg");
  for (const Json& value : std::vector<Json>{nullptr, 256, Json::array({"RS256"})}) ExpectRefused(with("alg", value), "alg");
  ExpectRefused(with("kid", ""), "kid");
  ExpectRefused(with("kid", 1), "kid");
  ExpectRefused(with("crit", {"b64"}), "crit");
  ExpectRefused(with("typ", "logout+jwt"), "typ");
  ExpectRefused(with("typ", 7), "typ");
  // What the header says of keys is passed over: the key is the provider's.
  EXPECT_TRUE(Check(with("jku", "https://evil.example/keys")).ok());
  const TestKey other = TestKey::Rsa("r1");
  Json header = other.Header();
  header["jwk"] = other.Jwk();
  ExpectRefused(other.Sign(header, payload), "signature");
  Json without = rsa_->Header();
  without.erase("kid");
  ExpectRefused(rsa_->Sign(without, payload), "kid");
}

TEST_F(JwtTest, NobodyElseSigns) {
  const std::string payload = TestClaims(kNow, {"admins"}).dump();
  // Without a signature.
  const Json none = {{"alg", "none"}, {"kid", "r1"}, {"typ", "JWT"}};
  ExpectRefused(Compact(none.dump(), payload, "x"), "alg");
  ExpectRefused(absl::StrCat(EncodeBase64Url(none.dump()), ".", EncodeBase64Url(payload), "."), "form");
  // With the public key, which everybody has, as the secret of HS256; and the same under the name of RS256.
  for (const std::string& secret : {rsa_->PublicPem(), rsa_->Jwk().dump(), rsa_->Jwk()["n"].get<std::string>()}) {
    for (const char* algorithm : {"HS256", "RS256"}) {
      const Json header = {{"alg", algorithm}, {"kid", "r1"}};
      const std::string text = absl::StrCat(EncodeBase64Url(header.dump()), ".", EncodeBase64Url(payload));
      ExpectRefused(absl::StrCat(text, ".", EncodeBase64Url(Hmac(secret, text))),
                    std::string(algorithm) == "HS256" ? "alg" : "signature");
    }
  }
  // By another's key under this one's name, of either kind.
  ExpectRefused(TestKey::Rsa("r1").Sign(TestClaims(kNow)), "signature");
  ExpectRefused(TestKey::Ec("e1").Sign(TestClaims(kNow)), "signature");
  ExpectRefused(TestKey::Rsa("r2").Sign(TestClaims(kNow)), "kid");
  // The signature of one key under the name of the other.
  ExpectRefused(rsa_->Sign({{"alg", "ES256"}, {"kid", "e1"}}, payload), "signature");
  ExpectRefused(ec_->Sign({{"alg", "RS256"}, {"kid", "r1"}}, payload), "signature");
  ExpectRefused(ec_->Sign({{"alg", "ES256"}, {"kid", "r1"}}, payload), "kid");
}

TEST_F(JwtTest, ASignatureOfEs256IsTwoNumbersAndNothingElse) {
  const std::string header = ec_->Header().dump(), payload = TestClaims(kNow).dump();
  const std::string text = absl::StrCat(EncodeBase64Url(header), ".", EncodeBase64Url(payload));
  ExpectRefused(Compact(header, payload, ec_->Signature(text, /*der=*/true)), "signature");
  const std::string raw = ec_->Signature(text);
  ASSERT_EQ(raw.size(), 64u);
  EXPECT_TRUE(Check(Compact(header, payload, raw)).ok());
  // The same numbers with more zeros before them, which are none the less another signature.
  const std::string zero(1, '\0');
  ExpectRefused(Compact(header, payload, zero + raw.substr(0, 32) + zero + raw.substr(32)), "signature");
  for (const std::string& bad : {std::string(64, '\0'), raw.substr(0, 63), raw + "x", raw.substr(32) + raw.substr(0, 32)})
    ExpectRefused(Compact(header, payload, bad), "signature");
}

TEST_F(JwtTest, WhatIsCutOrChangedAnywhereIsRefused) {
  std::random_device device;
  const unsigned seed = device();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  for (const TestKey* key : {rsa_, ec_}) {
    const std::string token = key->Sign(TestClaims(kNow, {"a"}));
    ASSERT_TRUE(Check(token).ok());
    for (size_t size = 0; size < token.size(); ++size) EXPECT_FALSE(Check(token.substr(0, size)).ok()) << size;
    for (int i = 0; i < 500; ++i) {
      std::string changed = token;
      // The last letters of a part may have bits that say nothing.
      const size_t at = random() % (token.rfind('.') - 2);
      changed[at] = "ABCDEFGHabcdefgh0123456789-_.=+/ \n"[random() % 34];
      EXPECT_EQ(Check(changed).ok(), changed == token) << changed;
    }
  }
  const std::string token = rsa_->Sign(TestClaims(kNow));
  const std::vector<std::string> others = {"a.b", "...", token + ".", token + ".x", token + "=", token + "\n", " " + token,
                                           "." + token, absl::StrReplaceAll(token, {{".", ".."}}), "\xff\xfe.\xff.x"};
  for (const std::string& bad : others) ExpectRefused(bad, "form");
}

TEST_F(JwtTest, LargeAndDeepOnesAreRefused) {
  Json claims = TestClaims(kNow);
  claims["more"] = std::string(11'000, 'x');
  EXPECT_TRUE(Check(rsa_->Sign(claims)).ok());
  claims["more"] = std::string(17 << 10, 'x');
  ExpectRefused(rsa_->Sign(claims), "size");
  const auto nested = [](int depth) { return absl::StrCat(std::string(depth, '['), std::string(depth, ']')); };
  const auto with = [&](int depth) {
    std::string text = TestClaims(kNow).dump();
    text.back() = ',';
    return absl::StrCat(text, "\"deep\": ", nested(depth), "}");
  };
  EXPECT_TRUE(Check(rsa_->Sign(rsa_->Header(), with(15))).ok());
  ExpectRefused(rsa_->Sign(rsa_->Header(), with(16)), "claims");
  ExpectRefused(rsa_->Sign(rsa_->Header(), with(5'000)), "claims");
  const std::string header = absl::StrCat("{\"alg\": \"RS256\", \"kid\": \"r1\", \"deep\": ", nested(4), "}");
  ExpectRefused(Compact(header, with(1), "x"), "header");
}

// Two readers would take either, so neither is.
TEST_F(JwtTest, NamesThatAreThereTwiceAreRefused) {
  std::string text = TestClaims(kNow).dump();
  text.back() = ',';
  for (const char* more : {"\"sub\": \"root\"}", "\"groups\": [\"admins\"]}", "\"su\\u0062\": \"root\"}",
                           "\"x\": {\"a\": {\"b\": 1, \"b\": 2}}}"})
    ExpectRefused(rsa_->Sign(rsa_->Header(), absl::StrCat(text, more)), "claims");
  // The same name in several objects is one in each.
  EXPECT_TRUE(Check(rsa_->Sign(rsa_->Header(), absl::StrCat(text, "\"x\": {\"sub\": {\"sub\": 1}}, \"y\": {\"sub\": 1}}"))).ok());
  ExpectRefused(Compact("{\"alg\": \"none\", \"alg\": \"RS256\", \"kid\": \"r1\"}", TestClaims(kNow).dump(), "x"), "header");
}

TEST_F(JwtTest, WhatIsNoJsonInUtf8IsRefused) {
  const std::string good = TestClaims(kNow).dump();
  const auto with = [&](const char* old_text, const char* text) { return absl::StrReplaceAll(good, {{old_text, text}}); };
  const std::vector<std::string> bad_ones = {
      "\xff\xfe", with("anna", "ann\xff"), with("anna", "\xed\xa0\x80"), "[]", "7", "null", "", good.substr(1), good + "x",
      good + good, with("\"", "'"), with("}", ", \"a\": NaN}")};
  for (const std::string& bad : bad_ones) {
    const std::string token = rsa_->Sign(rsa_->Header(), bad);
    ExpectRefused(token, bad.empty() ? "form" : "claims");
  }
  for (const char* bad : {"[]", "{}", "RS256", "{\"alg\": \"RS256\", \"kid\": \"\xff\"}"})
    EXPECT_FALSE(Check(Compact(bad, good, "x")).ok()) << bad;
}

TEST(LooksLikeJwt, OwnTokensDoNot) {
  EXPECT_TRUE(LooksLikeJwt("a.b.c"));
  EXPECT_TRUE(LooksLikeJwt("."));
  EXPECT_FALSE(LooksLikeJwt("lego_0123456789-_abcdefghijklmnopqrstuvwxyzABCDE"));
  EXPECT_FALSE(LooksLikeJwt(""));
}

}  // namespace
}  // namespace legoai::oidc

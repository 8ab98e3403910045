// What the server's flags may say of an OpenID provider: every combination that cannot be is refused by its flag.
#include "server/main/oidc_users.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/errors.h"
#include "proto/testing/assert_ok.h"
#include "server/oidc/testing/test_key.h"

namespace legoai::server {
namespace {

class OidcUsers : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = absl::StrCat(::testing::TempDir(), "/oidc-", getpid());
    std::filesystem::create_directories(folder_);
    flags_ = {.issuer = oidc::kTestIssuer,
              .audience = oidc::kTestAudience,
              .jwks = Put("keys.json", oidc::KeySetText({key_})),
              .roles = Put("roles.toml", "[[grant]]\ngroup = 'ml'\nrole = 'editor'\nproject = 'vision'\n")};
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Put(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name) << text;
    return folder_ + "/" + name;
  }
  // The flag that the refusal is about, with flags changed so.
  std::string Refused(const std::function<void(OidcFlags*)>& change, const std::string& part = "", bool tokens = true) const {
    OidcFlags flags = flags_;
    change(&flags);
    const absl::Status status = MakeUsers(flags, tokens).status();
    if (status.ok()) return "nothing";
    EXPECT_TRUE(absl::StrContains(status.message(), part)) << part << " is not in " << status;
    const auto violation = GetFieldViolation(status);
    return violation ? violation->field() : status.ToString();
  }

  const oidc::TestKey key_ = oidc::TestKey::Ec("e1");
  std::string folder_;
  OidcFlags flags_;
};

TEST_F(OidcUsers, AreMadeAsTheFlagsSay) {
  flags_.name_claim = "email";
  ASSERT_OK_AND_ASSIGN(const auto users, MakeUsers(flags_, true));
  ASSERT_NE(users, nullptr);
  const absl::Time now = absl::Now();
  ASSERT_OK_AND_ASSIGN(const auto who, users->Authenticate(key_.Sign(oidc::TestClaims(absl::ToUnixSeconds(now), {"ml"})),
                                                           absl::ToUnixMicros(now)));
  EXPECT_EQ(who.user, "anna@example.org");
  EXPECT_EQ(access::RoleIn(who, "projects/vision"), v1::EDITOR);
}

TEST_F(OidcUsers, WithoutAProviderThereAreNone) {
  for (const bool tokens : {false, true}) {
    ASSERT_OK_AND_ASSIGN(const auto none, MakeUsers({}, tokens));
    EXPECT_EQ(none, nullptr);
  }
}

TEST_F(OidcUsers, FlagsThatDoNotGoTogetherAreRefused) {
  EXPECT_EQ(Refused([](OidcFlags*) {}, "needs --tokens", false), "--oidc_issuer");
  EXPECT_EQ(Refused([](OidcFlags* flags) { flags->audience.clear(); }, "is needed"), "--oidc_audience");
  EXPECT_EQ(Refused([](OidcFlags* flags) { flags->jwks.clear(); }, "is needed"), "--oidc_jwks");
  EXPECT_EQ(Refused([](OidcFlags* flags) { flags->roles.clear(); }, "is needed"), "--oidc_roles");
  EXPECT_EQ(Refused([](OidcFlags* flags) { flags->groups_claim.clear(); }), "--oidc_groups_claim");
  EXPECT_EQ(Refused([](OidcFlags* flags) { flags->name_claim.clear(); }), "--oidc_name_claim");
  EXPECT_EQ(Refused([](OidcFlags* flags) { flags->issuer = "a\nb"; }), "--oidc_issuer");
  EXPECT_EQ(Refused([](OidcFlags* flags) { flags->audience = std::string(501, 'a'); }, "at most 500"), "--oidc_audience");
  // Each of them alone.
  const std::vector<std::pair<std::string, std::function<void(OidcFlags*)>>> alone = {
      {"--oidc_audience", [](OidcFlags* flags) { *flags = {.audience = "a"}; }},
      {"--oidc_jwks", [](OidcFlags* flags) { *flags = {.jwks = "a"}; }},
      {"--oidc_tls_ca", [](OidcFlags* flags) { *flags = {.tls_ca = "a"}; }},
      {"--oidc_roles", [](OidcFlags* flags) { *flags = {.roles = "a"}; }},
      {"--oidc_groups_claim", [](OidcFlags* flags) { *flags = {.groups_claim = "a"}; }},
      {"--oidc_name_claim", [](OidcFlags* flags) { *flags = {.name_claim = "a"}; }}};
  for (const auto& [flag, change] : alone) EXPECT_EQ(Refused(change, "needs --oidc_issuer"), flag);
}

TEST_F(OidcUsers, FilesAndUrlsAreLookedAt) {
  const auto jwks = [&](const std::string& value, const std::string& part) {
    return Refused([&](OidcFlags* flags) { flags->jwks = value; }, part);
  };
  EXPECT_EQ(jwks(folder_ + "/none", "none"), "--oidc_jwks");
  EXPECT_EQ(jwks(folder_, ""), "--oidc_jwks");
  EXPECT_EQ(jwks(Put("bad.json", "<html>"), "is no JSON"), "--oidc_jwks");
  EXPECT_EQ(jwks(Put("empty.json", "{\"keys\": []}"), "has no key"), "--oidc_jwks");
  EXPECT_EQ(jwks("http://idp.example/certs", "in clear"), "--oidc_jwks");
  EXPECT_EQ(jwks("ftp://idp.example/certs", "https://"), "--oidc_jwks");
  EXPECT_EQ(jwks("https://user:word@idp.example/certs", "no password"), "--oidc_jwks");
  const auto ca = [&](const std::string& place, const std::string& value) {
    return Refused([&](OidcFlags* flags) { flags->jwks = place, flags->tls_ca = value; });
  };
  EXPECT_EQ(ca(flags_.jwks, Put("ca.pem", "-----BEGIN CERTIFICATE-----")), "--oidc_tls_ca");
  EXPECT_EQ(ca("http://localhost:1/", folder_ + "/ca.pem"), "--oidc_tls_ca");
  EXPECT_EQ(ca("https://localhost:1/", folder_ + "/none"), "--oidc_tls_ca");
  EXPECT_EQ(ca("https://localhost:1/", flags_.jwks), "--oidc_tls_ca");
  const auto roles = [&](const std::string& value, const std::string& part) {
    return Refused([&](OidcFlags* flags) { flags->roles = value; }, part);
  };
  EXPECT_EQ(roles(folder_ + "/none", ""), "--oidc_roles");
  EXPECT_EQ(roles(Put("bad.toml", "[[grant]]\ngroup = 'a'\n"), "bad.toml"), "grant[0].role");
  // A provider that is away keeps no server from its start.
  EXPECT_EQ(jwks("http://127.0.0.1:1/certs", ""), "nothing");
}

}  // namespace
}  // namespace legoai::server

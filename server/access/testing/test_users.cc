#include "server/access/testing/test_users.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace legoai::access {

TestUsers::TestUsers(const std::string& roles) {
  static std::atomic<int> count = 0;
  const std::string path = absl::StrCat(::testing::TempDir(), "/oidc-keys-", getpid(), "-", ++count);
  std::ofstream(path) << oidc::KeySetText({key_});
  auto keys = oidc::KeySource::Open({.place = path});
  std::filesystem::remove(path);
  auto read = GroupRoles::Parse(roles);
  EXPECT_TRUE(keys.ok() && read.ok()) << keys.status() << " " << read.status();
  oidc::TokenRules rules{.issuer = oidc::kTestIssuer, .audience = oidc::kTestAudience, .name_claim = "email"};
  users_ = std::make_unique<Users>(std::make_unique<oidc::Provider>(*std::move(keys), std::move(rules)), *std::move(read));
}

nlohmann::json TestUsers::Claims(const std::vector<std::string>& groups) {
  return oidc::TestClaims(absl::ToUnixSeconds(absl::Now()), groups);
}

std::string GrantText(const std::string& group, const std::string& role, const std::string& project) {
  const auto line = [](const char* key, const std::string& value) {
    return value.empty() ? "" : absl::StrCat(key, " = '", value, "'\n");
  };
  return absl::StrCat("[[grant]]\n", line("group", group), line("role", role), line("project", project));
}

}  // namespace legoai::access

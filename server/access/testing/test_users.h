// Users of an OpenID provider that is played by the test: a key, and what groups may do.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "server/access/users.h"
#include "server/oidc/testing/test_key.h"

namespace legoai::access {

class TestUsers {
 public:
  // `roles`: as GroupRoles takes it. Users are shown by their e-mail address.
  explicit TestUsers(const std::string& roles);

  const Users& users() const { return *users_; }

  // Of anna, made now, for an hour.
  std::string Token(const std::vector<std::string>& groups) const { return key_.Sign(Claims(groups)); }
  static nlohmann::json Claims(const std::vector<std::string>& groups);
  const oidc::TestKey& key() const { return key_; }

 private:
  const oidc::TestKey key_ = oidc::TestKey::Ec("e1");
  std::unique_ptr<Users> users_;
};

// "[[grant]]" with these keys; without those that are empty.
std::string GrantText(const std::string& group, const std::string& role, const std::string& project = "");

}  // namespace legoai::access

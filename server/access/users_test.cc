// Users of an OpenID provider at the gate: what the file of their groups may say, and who is let in, refused and written down.
#include "server/access/users.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/errors.h"
#include "proto/testing/assert_ok.h"
#include "server/access/gate.h"
#include "server/access/testing/test_users.h"
#include "server/access/tokens.h"
#include "server/store/open_store.h"
#include "server/store/testing/test_store.h"

namespace legoai::access {
namespace {

namespace fs = std::filesystem;

std::string FieldOf(const std::string& toml) {
  const auto roles = GroupRoles::Parse(toml);
  if (roles.ok()) return "accepted";
  const auto violation = GetFieldViolation(roles.status());
  return violation ? violation->field() : roles.status().ToString();
}

TEST(GroupRolesTest, AGroupMayHaveSeveralRolesAndAUserSeveralGroups) {
  ASSERT_OK_AND_ASSIGN(const GroupRoles roles,
                       GroupRoles::Parse(absl::StrCat(GrantText("/ml", "editor", "vision"), GrantText("/ml", "viewer", "-"),
                                                      GrantText("ops", "operator"), GrantText("/ml/x", "admin", "projects/x"))));
  const auto role = [&](const std::vector<std::string>& groups, const char* project) {
    return RoleIn(Identity{.grants = roles.Of(groups)}, project);
  };
  EXPECT_EQ(role({"/ml"}, "projects/vision"), v1::EDITOR);
  EXPECT_EQ(role({"/ml"}, "projects/x"), v1::VIEWER);
  EXPECT_EQ(role({"/ml", "/ml/x"}, "projects/x"), v1::ADMIN);
  EXPECT_EQ(role({"ops"}, "projects/vision"), v1::OPERATOR);
  // Nothing is given that is not written.
  for (const std::vector<std::string>& groups :
       {std::vector<std::string>(), {"ml"}, {"/ML"}, {"/ml/"}, {"/ml/x/y"}, {" /ml"}, {""}, {"*"}, {"viewer"}})
    EXPECT_TRUE(roles.Of(groups).empty());
}

TEST(GroupRolesTest, WhatIsWrongInTheFileIsNamed) {
  EXPECT_EQ(FieldOf(GrantText("a", "editor", "vision")), "accepted");
  EXPECT_EQ(FieldOf(GrantText("a", "operator")), "accepted");
  EXPECT_EQ(FieldOf(""), "grant");
  EXPECT_EQ(FieldOf("grant = []"), "grant");
  EXPECT_EQ(FieldOf(GrantText("", "editor", "vision")), "grant[0].group");
  EXPECT_EQ(FieldOf("[[grant]]\ngroup = \"a\\nb\"\nrole = 'viewer'\nproject = 'a'\n"), "grant[0].group");
  EXPECT_EQ(FieldOf(GrantText(std::string(501, 'g'), "viewer", "a")), "grant[0].group");
  EXPECT_EQ(FieldOf(GrantText("a", "", "vision")), "grant[0].role");
  EXPECT_EQ(FieldOf(GrantText("a", "owner", "vision")), "grant[0].role");
  EXPECT_EQ(FieldOf(GrantText("a", "agent")), "grant[0].role");
  EXPECT_EQ(FieldOf(GrantText("a", "viewer")), "grant[0].project");
  EXPECT_EQ(FieldOf(GrantText("a", "viewer", "No/Project")), "grant[0].project");
  EXPECT_EQ(FieldOf(GrantText("a", "operator", "vision")), "grant[0].project");
  EXPECT_EQ(FieldOf(GrantText("a", "viewer", "a") + GrantText("b", "viewer")), "grant[1].project");
  EXPECT_EQ(FieldOf("[[grant]]\ngroups = 'a'\n"), "grant[0].groups");
  EXPECT_EQ(FieldOf("[[grants]]\ngroup = 'a'\n"), "grants");
  EXPECT_TRUE(absl::StrContains(FieldOf("[[grant\n"), "line 1"));
  // All that is wrong at once.
  const absl::Status both = GroupRoles::Parse(GrantText("", "viewer", "a") + GrantText("b", "agent")).status();
  EXPECT_TRUE(absl::StrContains(both.message(), "grant[0].group") && absl::StrContains(both.message(), "grant[1].role")) << both;
}

class UsersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = absl::StrCat(::testing::TempDir(), "/users-", getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    ASSERT_OK_AND_ASSIGN(store_, store::OpenStore(store::TestStoreUrl(folder_), {}, {}));
    ASSERT_OK_AND_ASSIGN(audit_, AuditLog::Open(folder_ + "/audit.jsonl"));
    gate_ = MakeGate(&users_.users());
    ASSERT_TRUE(gate_->Begin().ok());
  }
  void TearDown() override {
    gate_.reset();
    store_.reset();
    fs::remove_all(folder_);
  }

  std::unique_ptr<Gate> MakeGate(const Users* users) {
    const GateOptions options = {.refresh = absl::Milliseconds(20),
                                 .calls_per_second = 0.001,
                                 .calls_at_once = 3,
                                 .strangers_per_second = 0.001,
                                 .strangers_at_once = 3,
                                 .audit = audit_.get(),
                                 .users = users};
    return std::make_unique<Gate>(store_.get(), [this] { return now_us_.load(); }, options);
  }
  std::vector<v1::AuditRecord> Records() {
    auto records = audit_->Latest(100, "");
    EXPECT_TRUE(records.ok()) << records.status();
    return records.value_or(std::vector<v1::AuditRecord>());
  }

  const TestUsers users_{GrantText("ml", "editor", "vision") + GrantText("ml", "viewer", "text") + GrantText("ops", "operator")};
  std::atomic<int64_t> now_us_ = absl::ToUnixMicros(absl::Now());
  std::string folder_;
  std::unique_ptr<store::Store> store_;
  std::unique_ptr<AuditLog> audit_;
  std::unique_ptr<Gate> gate_;
};

TEST_F(UsersTest, AreLetInWithWhatTheirGroupsMay) {
  ASSERT_OK_AND_ASSIGN(const Identity who, gate_->Enter(users_.Token({"x", "ml"}), "somewhere", "a call"));
  EXPECT_EQ(who.token, "");
  EXPECT_EQ(who.issuer, oidc::kTestIssuer);
  EXPECT_EQ(who.subject, "f3a1-anna");
  EXPECT_EQ(NameOf(who), "users/anna@example.org");
  EXPECT_EQ(RoleIn(who, "projects/vision"), v1::EDITOR);
  EXPECT_EQ(RoleIn(who, "projects/text"), v1::VIEWER);
  EXPECT_FALSE(Sees(who, "projects/default"));
  // For what stays open, until the token ends.
  EXPECT_TRUE(gate_->Holds(who));
  now_us_ = who.expire_time_us - 1;
  EXPECT_TRUE(gate_->Holds(who));
  now_us_ = who.expire_time_us;
  EXPECT_FALSE(gate_->Holds(who));
  EXPECT_TRUE(Records().empty()) << "who is let in is written down by the call";
}

TEST_F(UsersTest, WhoHasNoRoleIsRefusedAndWrittenDownByName) {
  const absl::Status status = gate_->Enter(users_.Token({"x"}), "somewhere", "legoai.v1.ControlPlane/GetJob").status();
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "users/anna@example.org")) << status;
  ASSERT_EQ(Records().size(), 1u);
  const v1::AuditRecord record = Records()[0];
  EXPECT_EQ(record.issuer(), oidc::kTestIssuer);
  EXPECT_EQ(record.subject(), "f3a1-anna");
  EXPECT_EQ(record.user(), "anna@example.org");
  EXPECT_EQ(record.token(), "");
  EXPECT_EQ(record.role(), v1::ROLE_UNSPECIFIED);
  EXPECT_EQ(record.outcome(), "PERMISSION_DENIED");
  EXPECT_EQ(record.remote(), "somewhere");
}

TEST_F(UsersTest, TheRoleOfARecordIsThatOfItsProject) {
  ASSERT_OK_AND_ASSIGN(const Identity who, gate_->Authenticate(users_.Token({"ml"})));
  const std::vector<std::pair<std::string, v1::Role>> cases = {
      {"projects/text/jobs/x", v1::VIEWER}, {"projects/vision", v1::EDITOR}, {"projects/other", v1::EDITOR}, {"", v1::EDITOR}};
  for (const auto& [resource, role] : cases) {
    gate_->Record(who, "somewhere", "a call", resource, absl::OkStatus());
    EXPECT_EQ(Records()[0].role(), role) << resource;
    EXPECT_EQ(Records()[0].subject(), "f3a1-anna");
  }
}

TEST_F(UsersTest, StrangersAreLimitedAndWrittenDownWithoutAName) {
  const std::string wrong = oidc::TestKey::Ec("e1").Sign(TestUsers::Claims({"ops"}));
  for (int i = 0; i < 5; ++i) {
    const absl::Status status = gate_->Enter(wrong, "somewhere", "a call").status();
    EXPECT_EQ(absl::IsUnauthenticated(status), i < 3) << status;
    EXPECT_EQ(absl::IsResourceExhausted(status), i >= 3) << status;
  }
  ASSERT_EQ(Records().size(), 3u);
  for (const v1::AuditRecord& record : Records()) {
    EXPECT_EQ(record.outcome(), "UNAUTHENTICATED");
    EXPECT_EQ(absl::StrCat(record.subject(), record.user(), record.issuer(), record.token()), "") << "nobody has proved it";
  }
}

TEST_F(UsersTest, AUserIsLimitedWhateverTheToken) {
  for (int i = 0; i < 5; ++i) {
    const std::string token = users_.Token({"ops", absl::StrCat(i)});  // each time another one
    const absl::Status status = gate_->Enter(token, "somewhere", "a call").status();
    EXPECT_EQ(status.ok(), i < 3) << status;
    EXPECT_TRUE(status.ok() || absl::StrContains(status.message(), "users/anna@example.org")) << status;
  }
}

TEST_F(UsersTest, TokensOfTheServerCountBesideThem) {
  Tokens tokens(store_.get(), gate_.get(), [this] { return now_us_.load(); });
  v1::CreateTokenRequest request;
  request.set_role(v1::OPERATOR);
  ASSERT_OK_AND_ASSIGN(const auto made, tokens.Create(Anybody(), request));
  ASSERT_OK_AND_ASSIGN(const Identity who, gate_->Authenticate(made.secret()));
  EXPECT_EQ(NameOf(who), made.token().name());
  EXPECT_TRUE(who.subject.empty());
  EXPECT_FALSE(gate_->Authenticate(made.secret() + ".a.b").ok());
}

TEST_F(UsersTest, AServerThatTakesNoneSaysSo) {
  const auto gate = MakeGate(nullptr);
  ASSERT_TRUE(gate->Begin().ok());
  const absl::Status status = gate->Authenticate(users_.Token({"ops"})).status();
  EXPECT_TRUE(absl::IsUnauthenticated(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "--oidc_issuer")) << status;
}

}  // namespace
}  // namespace legoai::access

// Tokens from their making to their end, and who is let in with them meanwhile.
#include "server/access/tokens.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/process/secret_file.h"
#include "proto/errors.h"
#include "proto/testing/assert_ok.h"
#include "server/store/open_store.h"
#include "server/store/testing/test_store.h"

namespace legoai::access {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kDay = int64_t{86400} * 1'000'000;

class TokensTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = absl::StrCat(::testing::TempDir(), "/tokens-", getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    ASSERT_OK_AND_ASSIGN(store_, store::OpenStore(store::TestStoreUrl(folder_), {}, {}));
    const GateOptions options = {.refresh = absl::Milliseconds(20)};
    gate_ = std::make_unique<Gate>(store_.get(), [this] { return now_us_.load(); }, options);
    ASSERT_TRUE(gate_->Begin().ok());
    tokens_ = std::make_unique<Tokens>(store_.get(), gate_.get(), [this] { return now_us_.load(); });
  }
  void TearDown() override {
    tokens_.reset();
    gate_.reset();
    store_.reset();
    fs::remove_all(folder_);
  }

  static v1::CreateTokenRequest Asked(v1::Role role, const std::string& project = "", double seconds = 0) {
    v1::CreateTokenRequest request;
    request.set_role(role);
    request.set_project(project);
    request.set_lifetime_seconds(seconds);
    return request;
  }
  absl::StatusOr<v1::CreateTokenResponse> Create(const Identity& who, v1::Role role, const std::string& project = "",
                                                 double seconds = 0) {
    return tokens_->Create(who, Asked(role, project, seconds));
  }
  // A token that an operator makes.
  v1::CreateTokenResponse Made(v1::Role role, const std::string& project = "", double seconds = 0) {
    auto made = Create(Anybody(), role, project, seconds);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.value_or(v1::CreateTokenResponse());
  }
  Identity Holder(v1::Role role, const std::string& project = "") {
    auto who = gate_->Authenticate(Made(role, project).secret());
    EXPECT_TRUE(who.ok()) << who.status();
    return who.value_or(Identity());
  }
  absl::StatusOr<v1::Token> Revoke(const Identity& who, const std::string& name) {
    v1::RevokeTokenRequest request;
    request.set_name(name);
    return tokens_->Revoke(who, request);
  }
  std::set<std::string> Listed(const Identity& who) {
    std::set<std::string> names;
    const auto list = tokens_->List(who);
    EXPECT_TRUE(list.ok()) << list.status();
    if (!list.ok()) return names;
    for (const v1::Token& token : list->tokens()) names.insert(token.name());
    return names;
  }
  void ExpectShut(const std::string& secret, const std::string& part) {
    const absl::Status status = gate_->Authenticate(secret).status();
    EXPECT_TRUE(absl::IsUnauthenticated(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), part)) << part << " in " << status;
    EXPECT_TRUE(secret.empty() || !absl::StrContains(status.ToString(), secret)) << "the secret is in the error";
  }

  std::atomic<int64_t> now_us_ = 1000 * kDay;
  std::string folder_;
  std::unique_ptr<store::Store> store_;
  std::unique_ptr<Gate> gate_;
  std::unique_ptr<Tokens> tokens_;
};

TEST(Secrets, AreLongRandomAndOfOneForm) {
  std::set<std::string> secrets;
  std::set<char> letters;
  for (int i = 0; i < 1000; ++i) {
    const std::string secret = NewSecret();
    EXPECT_TRUE(IsSecret(secret)) << secret;
    EXPECT_EQ(secret.size(), 48u);
    secrets.insert(secret);
    letters.insert(secret.begin() + 5, secret.end());
  }
  EXPECT_EQ(secrets.size(), 1000u);
  EXPECT_EQ(letters.size(), 64u);
  // Of the standard (FIPS 180-2), for "abc".
  EXPECT_EQ(SecretDigest("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const std::string secret = NewSecret();
  for (const std::string& text : {std::string(), secret.substr(1), secret + "x", "LEGO" + secret.substr(4),
                                  secret.substr(0, 47) + "\n", secret.substr(0, 47) + "+"})
    EXPECT_FALSE(IsSecret(text)) << text;
}

TEST_F(TokensTest, WhoHasTheSecretIsLetInWithItsRole) {
  const auto made = Made(v1::EDITOR, "projects/mine");
  EXPECT_EQ(made.token().create_time_us(), 1000 * kDay);
  EXPECT_EQ(made.token().expire_time_us(), 1090 * kDay);
  ASSERT_OK_AND_ASSIGN(const Identity who, gate_->Authenticate(made.secret()));
  EXPECT_EQ(who.token, made.token().name());
  EXPECT_EQ(NameOf(who), made.token().name());
  EXPECT_EQ(RoleIn(who, "projects/mine"), v1::EDITOR);
  EXPECT_FALSE(Sees(who, "projects/theirs"));
  EXPECT_TRUE(gate_->Holds(who));
  ExpectShut("", "--token-file");
  ExpectShut("lego_", "not known");
  ExpectShut(NewSecret(), "not known");
  ExpectShut(made.secret() + " ", "not known");
  ExpectShut(SecretDigest(made.secret()), "not known");
}

TEST_F(TokensTest, TheStoreHasNoSecret) {
  const auto made = Made(v1::OPERATOR);
  ASSERT_TRUE(store_->Read([&](store::ReadTransaction& transaction) {
    const auto all = transaction.ListTokens();
    EXPECT_EQ(all->size(), 1u);
    for (const v1::StoredToken& one : *all) {
      EXPECT_EQ(one.ShortDebugString().find(made.secret().substr(5)), std::string::npos);
      EXPECT_EQ(one.secret_sha256(), SecretDigest(made.secret()));
    }
    return absl::OkStatus();
  }).ok());
}

TEST_F(TokensTest, TheyExpireToTheMicrosecond) {
  const auto made = Made(v1::VIEWER, "projects/mine", 60);
  const Identity who = *gate_->Authenticate(made.secret());
  now_us_ += 59'999'999;
  EXPECT_TRUE(gate_->Authenticate(made.secret()).ok());
  EXPECT_TRUE(gate_->Holds(who));
  now_us_ += 1;
  ExpectShut(made.secret(), "expired");
  EXPECT_FALSE(gate_->Holds(who));
}

TEST_F(TokensTest, ARevokedOneIsShutOutAtOnceAndStaysSo) {
  const auto made = Made(v1::AGENT);
  const Identity who = *gate_->Authenticate(made.secret());
  ASSERT_OK_AND_ASSIGN(const v1::Token revoked, Revoke(Anybody(), made.token().name()));
  EXPECT_EQ(revoked.revoke_time_us(), now_us_);
  ExpectShut(made.secret(), "revoked");
  EXPECT_FALSE(gate_->Holds(who));
  now_us_ += kDay;
  EXPECT_EQ(Revoke(Anybody(), made.token().name())->revoke_time_us(), revoked.revoke_time_us());
}

TEST_F(TokensTest, WhatAnotherServerDoesCountsSoon) {
  Tokens elsewhere(store_.get(), nullptr, [this] { return now_us_.load(); });
  const auto made = elsewhere.Create(Anybody(), Asked(v1::EDITOR, "projects/mine"));
  ASSERT_TRUE(made.ok());
  while (!gate_->Authenticate(made->secret()).ok()) absl::SleepFor(absl::Milliseconds(1));
  std::atomic<int> looks = 0;
  std::atomic<bool> held = true;
  const Identity who = *gate_->Authenticate(made->secret());
  auto look = gate_->AfterRefresh([&] {
    held = gate_->Holds(who);
    ++looks;
  });
  v1::RevokeTokenRequest request;
  request.set_name(made->token().name());
  ASSERT_TRUE(elsewhere.Revoke(Anybody(), request).ok());
  while (held) absl::SleepFor(absl::Milliseconds(1));
  look.reset();
  const int before = looks;
  ASSERT_TRUE(gate_->Refresh().ok());
  absl::SleepFor(absl::Milliseconds(100));
  EXPECT_EQ(looks, before) << "it is called after it was destroyed";
}

TEST_F(TokensTest, NobodyMakesWhatMayDoMoreThanTheirOwn) {
  const Identity admin = Holder(v1::ADMIN, "projects/mine");
  for (const v1::Role role : {v1::VIEWER, v1::EDITOR, v1::ADMIN}) EXPECT_TRUE(Create(admin, role, "projects/mine").ok());
  for (const v1::Role role : {v1::OPERATOR, v1::AGENT}) EXPECT_TRUE(absl::IsPermissionDenied(Create(admin, role).status()));
  EXPECT_TRUE(absl::IsNotFound(Create(admin, v1::VIEWER, "projects/theirs").status()));
  EXPECT_FALSE(Create(admin, v1::VIEWER, kAllProjects).ok());
  EXPECT_FALSE(Create(admin, v1::VIEWER, "").ok());
  const Identity all = Holder(v1::ADMIN, kAllProjects);
  EXPECT_TRUE(Create(all, v1::EDITOR, "projects/theirs").ok());
  EXPECT_TRUE(absl::IsPermissionDenied(Create(all, v1::OPERATOR).status()));
  EXPECT_TRUE(Create(Holder(v1::OPERATOR), v1::OPERATOR).ok());
}

TEST_F(TokensTest, WhatIsAskedForIsChecked) {
  const auto field = [&](const v1::CreateTokenRequest& request) {
    const auto made = tokens_->Create(Anybody(), request);
    const auto violation = GetFieldViolation(made.status());
    return violation ? violation->field() : made.status().ToString();
  };
  EXPECT_EQ(field(Asked(v1::ROLE_UNSPECIFIED, "projects/mine")), "role");
  EXPECT_EQ(field(Asked(v1::EDITOR)), "project");
  EXPECT_EQ(field(Asked(v1::EDITOR, "projects/")), "project");
  EXPECT_EQ(field(Asked(v1::EDITOR, "projects/Mine")), "project");
  EXPECT_EQ(field(Asked(v1::AGENT, "projects/mine")), "project");
  EXPECT_EQ(field(Asked(v1::OPERATOR, kAllProjects)), "project");
  for (const double seconds : {-1.0, 0.5, 367 * 86400.0, 1e300, std::numeric_limits<double>::infinity(),
                               std::numeric_limits<double>::quiet_NaN()})
    EXPECT_EQ(field(Asked(v1::EDITOR, "projects/mine", seconds)), "lifetime_seconds") << seconds;
  v1::CreateTokenRequest named = Asked(v1::EDITOR, "projects/mine");
  named.set_display_name(std::string(201, 'x'));
  EXPECT_EQ(field(named), "display_name");
  EXPECT_TRUE(Listed(Anybody()).empty());
}

TEST_F(TokensTest, AnAdminSeesAndRevokesThoseOfTheirProjectAlone) {
  const auto mine = Made(v1::EDITOR, "projects/mine"), theirs = Made(v1::EDITOR, "projects/theirs");
  const auto agent = Made(v1::AGENT), everywhere = Made(v1::VIEWER, kAllProjects);
  const Identity admin = Holder(v1::ADMIN, "projects/mine");
  EXPECT_EQ(Listed(admin), (std::set<std::string>{mine.token().name(), admin.token}));
  EXPECT_EQ(Listed(Anybody()).size(), 5u);
  for (const auto* other : {&theirs, &agent, &everywhere}) {
    EXPECT_TRUE(absl::IsNotFound(Revoke(admin, other->token().name()).status()));
    EXPECT_TRUE(gate_->Authenticate(other->secret()).ok());
  }
  // The answer is the same for what is not there at all.
  const std::string remedy = GetFieldViolation(Revoke(admin, theirs.token().name()).status())->remedy();
  EXPECT_EQ(GetFieldViolation(Revoke(admin, "tokens/none").status())->remedy(), remedy);
  EXPECT_TRUE(Revoke(admin, mine.token().name()).ok());
  ExpectShut(mine.secret(), "revoked");
}

TEST_F(TokensTest, AnAdminOfAllProjectsSeesAndRevokesThoseOfEachAndNoOperatorsOrAgents) {
  const auto editor = Made(v1::EDITOR, "projects/mine"), agent = Made(v1::AGENT), boss = Made(v1::OPERATOR);
  const auto everywhere = Made(v1::VIEWER, kAllProjects);
  const Identity admin = Holder(v1::ADMIN, kAllProjects);
  EXPECT_EQ(Listed(admin), (std::set<std::string>{editor.token().name(), everywhere.token().name(), admin.token}));
  for (const auto* other : {&agent, &boss}) EXPECT_TRUE(absl::IsNotFound(Revoke(admin, other->token().name()).status()));
  EXPECT_TRUE(Revoke(admin, editor.token().name()).ok());
  ExpectShut(editor.secret(), "revoked");
}

// As a user of several groups may be.
TEST_F(TokensTest, AnAdminHereIsNoneElsewhere) {
  const Identity user = {.issuer = "https://idp.example",
                         .subject = "f3a1",
                         .user = "anna@example.org",
                         .grants = {{v1::VIEWER, "projects/theirs"}, {v1::ADMIN, "projects/mine"}}};
  const auto theirs = Made(v1::VIEWER, "projects/theirs"), mine = Made(v1::EDITOR, "projects/mine");
  Made(v1::VIEWER, kAllProjects);
  EXPECT_EQ(Listed(user), std::set<std::string>{mine.token().name()});
  EXPECT_TRUE(absl::IsNotFound(Revoke(user, theirs.token().name()).status()));
  for (const v1::Role role : {v1::VIEWER, v1::ADMIN}) {
    const absl::Status status = Create(user, role, "projects/theirs").status();
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
    EXPECT_EQ(GetFieldViolation(status)->field(), "project");
    EXPECT_FALSE(Create(user, role, kAllProjects).ok());
    EXPECT_TRUE(absl::IsNotFound(Create(user, role, "projects/others").status()));
  }
  ASSERT_OK_AND_ASSIGN(const auto made, Create(user, v1::ADMIN, "projects/mine"));
  EXPECT_EQ(made.token().creator(), "users/anna@example.org");
  EXPECT_TRUE(Revoke(user, made.token().name()).ok());
  // An admin of all projects, and less in one of them, is an admin there, too.
  const Identity everywhere = {.subject = "f3a2", .grants = {{v1::ADMIN, kAllProjects}, {v1::VIEWER, "projects/mine"}}};
  EXPECT_TRUE(Create(everywhere, v1::ADMIN, "projects/mine").ok());
  EXPECT_TRUE(absl::IsPermissionDenied(Create(everywhere, v1::OPERATOR).status()));
}

TEST_F(TokensTest, NobodyIsAStrangerBeforeTheTokensWereRead) {
  const auto made = Made(v1::VIEWER, "projects/mine");
  const auto now = [this] { return now_us_.load(); };
  Gate unread(store_.get(), now, {.refresh = absl::Milliseconds(20), .strangers_per_second = 1, .strangers_at_once = 1});
  for (int i = 0; i < 10; ++i) {
    const absl::Status status = unread.Enter(made.secret(), "somewhere", "a call").status();
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  }
  unread.BeginLater();
  while (absl::IsUnavailable(unread.Authenticate(made.secret()).status())) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_TRUE(unread.Enter(made.secret(), "somewhere", "a call").ok());
}

TEST_F(TokensTest, WhatEndedLongAgoIsForgotten) {
  const auto old = Made(v1::VIEWER, "projects/mine", 10);
  now_us_ += 89 * kDay;
  EXPECT_EQ(Listed(Anybody()).size(), 1u);
  now_us_ += 2 * kDay;
  EXPECT_TRUE(Listed(Anybody()).empty());
  const auto fresh = Made(v1::VIEWER, "projects/mine");
  EXPECT_EQ(Listed(Anybody()), (std::set<std::string>{fresh.token().name()}));
  ExpectShut(old.secret(), "not known");
}

TEST_F(TokensTest, TheFirstOperatorFindsTheirsInAFile) {
  const std::string path = folder_ + "/first.token";
  ASSERT_OK_AND_ASSIGN(const bool made, tokens_->MakeFirst(path));
  EXPECT_TRUE(made);
  struct stat facts {};
  ASSERT_EQ(stat(path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0600u);
  ASSERT_OK_AND_ASSIGN(const std::string secret, launch::ReadSecretFile("", path));
  ASSERT_OK_AND_ASSIGN(const Identity who, gate_->Authenticate(secret));
  EXPECT_EQ(HighestRole(who), v1::OPERATOR);
  // Not another one, while an operator can come in.
  EXPECT_FALSE(*tokens_->MakeFirst(path));
  EXPECT_EQ(*launch::ReadSecretFile("", path), secret);
  ASSERT_TRUE(Revoke(who, who.token).ok());
  EXPECT_TRUE(*tokens_->MakeFirst(path));
  EXPECT_NE(*launch::ReadSecretFile("", path), secret);
  now_us_ += 31 * kDay;
  EXPECT_TRUE(*tokens_->MakeFirst(path));
  // Where the file cannot be written there is no token either.
  now_us_ += 31 * kDay;
  const size_t before = Listed(Anybody()).size();
  EXPECT_EQ(GetFieldViolation(tokens_->MakeFirst(folder_ + "/no/such/place").status())->field(), "--first_token_file");
  EXPECT_EQ(Listed(Anybody()).size(), before);
}

// Another server's token comes in between, whatever is read before the write.
TEST_F(TokensTest, TheFirstOperatorIsMadeByOneOfSeveral) {
  class Overtaken : public store::Store {
   public:
    Overtaken(store::Store* store, std::function<void()> before) : store_(store), before_(std::move(before)) {}
    absl::Status Write(const std::function<absl::Status(store::Transaction&)>& work) override {
      before_();
      return store_->Write(work);
    }
    absl::Status Read(const std::function<absl::Status(store::ReadTransaction&)>& work) override { return store_->Read(work); }
    std::string Backend() const override { return store_->Backend(); }
    int64_t SchemaVersion() const override { return store_->SchemaVersion(); }

   private:
    store::Store* const store_;
    const std::function<void()> before_;
  };
  const std::string first = folder_ + "/first.token", second = folder_ + "/second.token";
  Overtaken overtaken(store_.get(), [&] { EXPECT_TRUE(*tokens_->MakeFirst(first)); });
  ASSERT_OK_AND_ASSIGN(const bool made, Tokens(&overtaken, nullptr, [this] { return now_us_.load(); }).MakeFirst(second));
  EXPECT_FALSE(made);
  EXPECT_TRUE(fs::exists(first));
  EXPECT_FALSE(fs::exists(second)) << "a secret that is good for nothing";
  EXPECT_EQ(Listed(Anybody()).size(), 1u);
}

TEST_F(TokensTest, AnOperatorIsThereWhileOneHasATokenThatCounts) {
  EXPECT_FALSE(*tokens_->HasOperator());
  Made(v1::ADMIN, kAllProjects);
  Made(v1::AGENT);
  EXPECT_FALSE(*tokens_->HasOperator()) << "they cannot let others in";
  const v1::CreateTokenResponse revoked = Made(v1::OPERATOR);
  EXPECT_TRUE(*tokens_->HasOperator());
  ASSERT_TRUE(Revoke(Anybody(), revoked.token().name()).ok());
  EXPECT_FALSE(*tokens_->HasOperator());
  Made(v1::OPERATOR, "", 60);
  EXPECT_TRUE(*tokens_->HasOperator());
  now_us_ += 61'000'000;
  EXPECT_FALSE(*tokens_->HasOperator());
}

TEST(Bearer, HasOneForm) {
  EXPECT_EQ(BearerOf("Bearer lego_x"), "lego_x");
  EXPECT_EQ(BearerOf("bearer  lego_x "), "lego_x");
  for (const char* text : {"", "Bearer", "Bearer ", "Basic lego_x", "lego_x", "Bearerlego_x", " Bearer lego_x"})
    EXPECT_EQ(BearerOf(text), "") << text;
}

TEST(Bearer, AServerWithoutAGateAsksNobody) {
  EXPECT_EQ(HighestRole(*Enter(nullptr, "", "", "")), v1::OPERATOR);
  EXPECT_EQ(HighestRole(*Enter(nullptr, "nonsense", "", "")), v1::OPERATOR);
}

}  // namespace
}  // namespace legoai::access

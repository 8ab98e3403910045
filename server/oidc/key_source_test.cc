// A provider's keys over real HTTP: changed, away, slow, or something else than keys. What is tested by the side is Provider.
#include "server/oidc/key_source.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/errors.h"
#include "proto/testing/assert_ok.h"
#include "server/metrics/log.h"
#include "server/oidc/provider.h"
#include "server/oidc/testing/key_server.h"
#include "server/oidc/testing/test_key.h"

namespace legoai::oidc {
namespace {

constexpr int64_t kNow = 1'800'000'000;

class KeySourceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SetSink();
    path_ = absl::StrCat(::testing::TempDir(), "/keys-", getpid());
  }
  void TearDown() override {
    server::SetLogSink(nullptr);
    std::filesystem::remove(path_);
  }
  void SetSink() {
    server::SetLogSink([this](std::string_view line) {
      const MutexLock lock(mutex_);
      log_.emplace_back(line);
    });
  }
  // How many lines of the log have this.
  int Logged(const std::string& part) {
    const MutexLock lock(mutex_);
    int count = 0;
    for (const std::string& line : log_) count += absl::StrContains(line, part);
    return count;
  }

  static std::unique_ptr<KeySource> Open(const std::string& place, absl::Duration every = absl::Hours(1),
                                         absl::Duration pause = absl::Milliseconds(20),
                                         absl::Duration limit = absl::Seconds(10)) {
    KeySourceOptions options{.place = place, .every = every, .pause = pause};
    options.fetch.limit = limit;
    auto source = KeySource::Open(options);
    EXPECT_TRUE(source.ok()) << source.status();
    return *std::move(source);
  }
  static Provider MakeProvider(std::unique_ptr<KeySource> source) {
    return {std::move(source), {.issuer = kTestIssuer, .audience = kTestAudience}};
  }
  static absl::Status Check(const Provider& provider, const TestKey& key) {
    return provider.Check(key.Sign(TestClaims(kNow)), kNow * 1'000'000).status();
  }
  // A hanging test has a limit of its own.
  static void Await(const std::function<bool()>& condition) {
    while (!condition()) absl::SleepFor(absl::Milliseconds(5));
  }

  std::string path_;
  Mutex mutex_;
  std::vector<std::string> log_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(KeySourceTest, ANewKeyIsReadWhenATokenNamesIt) {
  const TestKey old_key = TestKey::Ec("old"), new_key = TestKey::Rsa("new");
  KeyServer server(KeySetText({old_key}));
  const Provider provider = MakeProvider(Open(server.url(), absl::Hours(1), /*pause=*/absl::ZeroDuration()));
  Await([&] { return Check(provider, old_key).ok(); });
  EXPECT_EQ(server.requests(), 1);
  server.Answer(KeySetText({old_key, new_key}));
  Await([&] {
    const absl::Status status = Check(provider, new_key);
    EXPECT_TRUE(status.ok() || absl::IsUnavailable(status)) << "who comes with a new key is not refused: " << status;
    return status.ok();
  });
  EXPECT_TRUE(Check(provider, old_key).ok());
  // A key that is withdrawn counts no more as soon as the rest is read.
  server.Answer(KeySetText({new_key}));
  const TestKey none = TestKey::Ec("none");
  // It is asked for until then: the first time may be taken for one that is under way.
  Await([&] { return absl::IsUnavailable(Check(provider, none)) && !Check(provider, old_key).ok(); });
  EXPECT_TRUE(Check(provider, new_key).ok());
}

TEST_F(KeySourceTest, TokensThatNameNoKeyCauseFewReadings) {
  const TestKey key = TestKey::Ec("a"), none = TestKey::Ec("none");
  KeyServer server(KeySetText({key}));
  const Provider provider = MakeProvider(Open(server.url(), absl::Hours(1), absl::Hours(1)));
  Await([&] { return Check(provider, key).ok(); });
  Await([&] { return absl::IsUnauthenticated(Check(provider, none)); });  // the first reading is quite over
  for (int i = 0; i < 100; ++i) {
    const absl::Status status = Check(provider, none);
    ASSERT_TRUE(absl::IsUnauthenticated(status)) << status;
    EXPECT_EQ(GetFieldViolation(status)->field(), "token: kid");
  }
  EXPECT_EQ(server.requests(), 1) << "within the pause they are read once";
}

TEST_F(KeySourceTest, KeysAreReadAgainAndAgain) {
  KeyServer server(KeySetText({TestKey::Ec("a")}));
  const auto source = Open(server.url(), absl::Milliseconds(20));
  Await([&] { return server.requests() > 5; });
  server.Answer(KeySetText({TestKey::Ec("b"), TestKey::Rsa("small", 1024)}));
  Await([&] { return source->Keys()->Has("b"); });
  const int requests = server.requests();
  Await([&] { return server.requests() > requests + 3; });
  EXPECT_EQ(Logged("key small: has fewer than 2048 bits"), 1) << "why it is not taken is said once";
}

// Each of them, after keys were there: they count on, the log has one line, and what comes better is taken.
TEST_F(KeySourceTest, WhatIsWrongMeanwhileLeavesTheKeysAsTheyAre) {
  const TestKey key = TestKey::Ec("a");
  struct Trouble {
    std::function<void(KeyServer&)> make;
    const char* part;
    absl::Duration limit = absl::Minutes(1);  // of one reading
  };
  const std::vector<Trouble> troubles = {
      {[](KeyServer& server) { server.HangUp(); }, ""},
      {[](KeyServer& server) { server.Hang(); }, "imed out", absl::Seconds(1)},
      {[](KeyServer& server) { server.Answer("<html>Maintenance</html>", 200, "Content-Type: text/html\r\n"); }, "is no JSON"},
      {[](KeyServer& server) { server.Answer("{\"keys\": []}"); }, "has no key"},
      {[&](KeyServer& server) { server.Answer(KeySetText({key}), 503); }, "status 503"},
      {[&](KeyServer& server) { server.Answer(KeySetText({key}), 404); }, "status 404"},
      {[&](KeyServer& server) { server.Answer("", 302, "Location: " + server.url() + "\r\n"); }, "status 302"},
      {[](KeyServer& server) { server.Answer(std::string(300 << 10, ' ')); }, "more than 256 KiB"},
  };
  for (const Trouble& trouble : troubles) {
    KeyServer server(KeySetText({key}));
    const auto milliseconds = absl::Milliseconds(20);
    const Provider provider = MakeProvider(Open(server.url(), milliseconds, milliseconds, trouble.limit));
    Await([&] { return Check(provider, key).ok(); });
    const std::string line = "keys cannot be read: ";
    const int before = Logged(line), ends = Logged("are read again");
    trouble.make(server);
    const int requests = server.requests();
    Await([&] { return server.requests() >= requests + 4; });
    EXPECT_TRUE(Check(provider, key).ok()) << trouble.part;
    EXPECT_EQ(Logged(line), before + 1) << trouble.part;
    EXPECT_GT(Logged(trouble.part), 0) << trouble.part;
    server.Answer(KeySetText({key, TestKey::Ec("later")}));
    Await([&] { return Logged("are read again") > ends; });
    EXPECT_TRUE(Check(provider, key).ok());
  }
}

TEST_F(KeySourceTest, AProviderThatIsAwayAtTheStartIsWaitedFor) {
  const TestKey key = TestKey::Ec("a");
  KeyServer server("");
  server.HangUp();
  const Provider provider = MakeProvider(Open(server.url()));
  Await([&] { return server.requests() > 3; });
  const absl::Status status = Check(provider, key);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(Logged("its users cannot come in"), 1);
  server.Answer(KeySetText({key}));
  Await([&] { return Check(provider, key).ok(); });
}

TEST_F(KeySourceTest, ItsEndDoesNotWaitForAServerThatHangs) {
  KeyServer server("");
  server.Hang();
  auto source = Open(server.url(), absl::Hours(1), absl::Hours(1), absl::Hours(1));
  Await([&] { return server.requests() == 1; });
  source.reset();  // with the limit of an hour the test would not end
}

TEST_F(KeySourceTest, AFileIsReadAtOnceAndAgain) {
  const TestKey first = TestKey::Ec("first"), second = TestKey::Rsa("second");
  std::ofstream(path_) << KeySetText({first});
  const Provider provider = MakeProvider(Open(path_));
  EXPECT_TRUE(Check(provider, first).ok());
  std::ofstream(path_) << KeySetText({second});
  Await([&] { return Check(provider, second).ok(); });
  EXPECT_FALSE(Check(provider, first).ok());
  // What cannot be read is an error at the start, and leaves the keys as they are later.
  std::ofstream(path_) << "<html>";
  Await([&] { return !Check(provider, first).ok() && Logged("is no JSON") == 1; });
  EXPECT_TRUE(Check(provider, second).ok());
  EXPECT_FALSE(KeySource::Open({.place = path_}).ok());
  EXPECT_FALSE(KeySource::Open({.place = path_ + "-missing"}).ok());
}

TEST_F(KeySourceTest, AKeyOfAnotherKindThanTheHeaderSaysIsNotReadAgain) {
  const TestKey rsa = TestKey::Rsa("a");
  std::ofstream(path_) << KeySetText({rsa});
  const Provider provider = MakeProvider(Open(path_, absl::Hours(1), absl::Hours(1)));
  for (int i = 0; i < 3; ++i) {
    const absl::Status status = Check(provider, TestKey::Ec("a"));
    ASSERT_TRUE(absl::IsUnauthenticated(status)) << status;
    EXPECT_EQ(GetFieldViolation(status)->field(), "token: alg");
  }
}

TEST(CheckUrl, OnlyWhatNobodyOnTheWayCanChange) {
  for (const char* good : {"https://idp.example/realms/lego/protocol/openid-connect/certs", "https://idp.example:8443/a?b=c",
                           "HTTPS://idp.example/", "http://localhost:8080/certs", "http://127.0.0.1/certs", "http://[::1]:80/c"})
    EXPECT_TRUE(CheckUrl("--oidc_jwks", good).ok()) << good << ": " << CheckUrl("--oidc_jwks", good);
  for (const char* bad : {"http://idp.example/certs", "http://10.0.0.1/", "http://127.0.0.1.example/",
                          "http://localhost.example/", "ftp://idp.example/", "file:///etc/keys", "https://", "://x",
                          "https://user:secret@idp.example/",
                          "https://idp.example/#x", "https://idp.example/\x1b[2J", "http://127.0.0.1@idp.example/"}) {
    const absl::Status status = CheckUrl("--oidc_jwks", bad);
    ASSERT_TRUE(GetFieldViolation(status)) << bad << ": " << status;
    EXPECT_EQ(GetFieldViolation(status)->field(), "--oidc_jwks");
    EXPECT_FALSE(absl::StrContains(status.ToString(), "secret")) << status;
  }
}

}  // namespace
}  // namespace legoai::oidc

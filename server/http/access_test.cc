// Tokens over HTTP: every method's path, the page's cookie, and what stays open when a token ends.
#include <gtest/gtest.h>

#include <memory>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/api/annotations.pb.h"
#include "server/access/testing/test_users.h"
#include "server/http/credentials.h"
#include "server/http/handlers.h"
#include "server/http/http_server.h"
#include "server/http/testing/test_client.h"
#include "server/metrics/log.h"
#include "server/rpc/testing/test_service.h"

namespace legoai::server {
namespace {

using http_test::Answer;
using http_test::Client;
using http_test::Parse;
using http_test::Request;

constexpr char kJson[] = "Content-Type: application/json\r\n";

class HttpAccess : public ::testing::Test {
 protected:
  void SetUp() override { Start(nullptr); }
  void Start(const access::Users* users) {
    SetLogSink([](std::string_view) {});
    service_.AskForTokens(users);
    HttpOptions options;
    options.gate = &service_.gate();
    auto started = HttpServer::Start(options, ControlPlaneHandlers(&service_.control(), nullptr), &service_.pool(),
                                     &service_.notifier(), &service_.metrics());
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
  }
  void TearDown() override {
    server_.reset();
    SetLogSink(nullptr);
  }

  static std::string Bearer(const v1::CreateTokenResponse& made) {
    return absl::StrCat("Authorization: Bearer ", made.secret(), "\r\n");
  }
  Answer Ask(const std::string& method, const std::string& path, const std::string& headers = "", const std::string& body = "") {
    Client client(server_->port());
    client.Send(Request(method, path, body, absl::StrCat(headers, "Connection: close\r\n")));
    return Parse(client.ReadAll());
  }

  testing::TestService service_;
  std::unique_ptr<HttpServer> server_;
};

// A path that fits the pattern of google.api.http.
std::string PathOf(const std::string& pattern) {
  std::string path = std::regex_replace(pattern, std::regex("\\{\\w+=([^}]*)\\}"), "$1");
  path = std::regex_replace(path, std::regex("projects/\\*"), "projects/default");
  return std::regex_replace(path, std::regex("\\*"), "01ARZ3NDEKTSV4RRFFQ69G5FAV");
}

TEST_F(HttpAccess, NoMethodAnswersAStrangerOrAnAgent) {
  const std::string agent = Bearer(service_.MakeToken(v1::AGENT));
  const auto* service = v1::GetJobRequest::descriptor()->file()->FindServiceByName("ControlPlane");
  for (int i = 0; i < service->method_count(); ++i) {
    const auto& rule = service->method(i)->options().GetExtension(google::api::http);
    const bool reads = rule.has_get();
    const std::string path = PathOf(reads ? rule.get() : rule.post()), method = reads ? "GET" : "POST";
    const std::string body = reads ? "" : "{}", type = reads ? "" : kJson;
    const Answer stranger = Ask(method, path, type, body);
    EXPECT_EQ(stranger.code, 401) << path << ": " << stranger.body;
    EXPECT_TRUE(absl::StrContains(stranger.head, "WWW-Authenticate: Bearer")) << stranger.head;
    EXPECT_EQ(Ask(method, path, type + agent, body).code, 403) << path;
    EXPECT_EQ(Ask(method, path, type + "Authorization: Bearer lego_x\r\n", body).code, 401) << path;
  }
  for (const char* path : {"/v1/events", "/metrics"}) {
    EXPECT_EQ(Ask("GET", path).code, 401) << path;
    EXPECT_EQ(Ask("GET", path, agent).code, 403) << path;
  }
  for (const char* path : {"/healthz", "/catalog.json"}) EXPECT_EQ(Ask("GET", path).code, 200) << path;
}

TEST_F(HttpAccess, AViewerSeesItsProjectAndSubmitsNothing) {
  const v1::Job job = service_.Create("seen");
  const std::string viewer = Bearer(service_.MakeToken(v1::VIEWER, "projects/default"));
  const std::string other = Bearer(service_.MakeToken(v1::ADMIN, "projects/other"));
  EXPECT_EQ(Ask("GET", "/v1/" + job.name(), viewer).Json()["spec"]["display_name"], "seen");
  EXPECT_EQ(Ask("GET", "/v1/" + job.name(), other).code, 404);
  EXPECT_EQ(Ask("POST", "/v1/projects/default/jobs", kJson + viewer, "{}").code, 403);
  EXPECT_EQ(Ask("POST", "/v1/" + job.name() + ":cancel", kJson + other, "{}").code, 404);
  EXPECT_EQ(Ask("GET", "/v1/projects/default/jobs", viewer).Json()["total_size"], 1);
  const auto projects = [this](const std::string& who) { return Ask("GET", "/v1/projects", who).Json()["projects"].dump(); };
  EXPECT_EQ(projects(viewer), R"([{"name":"projects/default"}])");
  EXPECT_EQ(projects(other), R"([{"name":"projects/other"}])") << "it has no jobs yet";
  EXPECT_EQ(projects(Bearer(service_.MakeToken(v1::OPERATOR))), R"([{"name":"projects/default"}])");
}

TEST_F(HttpAccess, ThePageSignsInByACookieWhichOthersCannotUse) {
  const auto made = service_.MakeToken(v1::VIEWER, "projects/default");
  EXPECT_EQ(Ask("POST", "/session", kJson, "{\"token\": \"lego_wrong\"}").code, 401);
  const std::string body = absl::StrCat("{\"token\": \"", made.secret(), "\"}");
  const Answer in = Ask("POST", "/session", kJson, body);
  ASSERT_EQ(in.code, 200) << in.body;
  EXPECT_EQ(in.Json()["roles"], nlohmann::json::parse(R"([{"role": "viewer", "project": "projects/default"}])"));
  EXPECT_FALSE(absl::StrContains(in.body, made.secret()));
  std::smatch cookie;
  ASSERT_TRUE(std::regex_search(in.head, cookie, std::regex("Set-Cookie: (legoai_token=[^;]*)(.*)")));
  for (const char* part : {"HttpOnly", "SameSite=Strict", "Path=/"}) EXPECT_TRUE(absl::StrContains(cookie[2].str(), part));
  const std::string with = absl::StrCat("Cookie: theme=dark; ", cookie[1].str(), "\r\n");
  EXPECT_EQ(Ask("GET", "/session", with).Json()["name"], made.token().name());
  EXPECT_EQ(Ask("GET", "/v1/server", with).code, 200);
  // With the cookie, too, a page of another site may neither sign somebody in nor change anything.
  const std::string evil = "Origin: http://evil.example\r\n";
  EXPECT_EQ(Ask("POST", "/session", kJson + evil, body).code, 403);
  EXPECT_EQ(Ask("POST", "/v1/plan", kJson + evil + with, "{}").code, 403);
  EXPECT_EQ(Ask("POST", "/v1/plan", "Content-Type: text/plain\r\n" + with, "{}").code, 415);
  const Answer out = Ask("POST", "/session", kJson + with, "{\"token\": \"\"}");
  EXPECT_TRUE(absl::StrContains(out.head, "legoai_token=; Path=/; Max-Age=0")) << out.head;
  for (const char* bad : {"", "[]", "{}", "{\"token\": 1}", "{\"token\": \"x\", \"more\": 1}", "lego"})
    EXPECT_EQ(Ask("POST", "/session", kJson, bad).code, 400) << bad;
  EXPECT_EQ(Ask("PUT", "/session", kJson, "{}").code, 405);
}

TEST_F(HttpAccess, AStreamTellsOfItsOwnProjectAndEndsWithItsToken) {
  const v1::Job job = service_.Create();
  const auto mine = service_.MakeToken(v1::VIEWER, "projects/default"), other = service_.MakeToken(v1::VIEWER, "projects/other");
  Client own(server_->port()), others(server_->port()), watch(server_->port());
  own.Send(Request("GET", "/v1/events", "", Bearer(mine)));
  others.Send(Request("GET", "/v1/events", "", Bearer(other)));
  watch.Send(Request("GET", absl::StrCat("/v1/", job.name(), ":watch"), "", Bearer(mine)));
  own.ReadUntil("keep-alive");
  others.ReadUntil("keep-alive");
  watch.ReadUntil("event: job");
  service_.Touch(job.name(), [](v1::Job*) {});
  service_.notifier().WorkersChanged();
  EXPECT_TRUE(absl::StrContains(own.ReadUntil("event: workers"), job.name())) << own.received();
  EXPECT_FALSE(absl::StrContains(others.ReadUntil("event: workers"), job.name())) << others.received();
  // What a server that follows knows of changes.
  service_.notifier().AllChanged();
  for (Client* told : {&own, &others}) EXPECT_TRUE(absl::StrContains(told->ReadUntil("\"all\":true"), "\"all\":true"));
  service_.Revoke(mine);
  for (Client* ended : {&own, &watch}) EXPECT_TRUE(absl::StrContains(ended->ReadUntil("event: failure"), "UNAUTHENTICATED"));
  EXPECT_FALSE(others.IsClosed(500));
}

TEST_F(HttpAccess, StrangersAreAnsweredSoOftenAndNoMore) {
  int refused = 0, busy = 0;
  while (busy == 0 && refused < 100'000) {
    const Answer answer = Ask("GET", "/v1/server");
    ASSERT_TRUE(answer.code == 401 || answer.code == 429) << answer.head;
    ++(answer.code == 401 ? refused : busy);
  }
  EXPECT_EQ(busy, 1);
  EXPECT_GE(refused, 100);
  // Who is known is answered all the same.
  EXPECT_EQ(Ask("GET", "/v1/server", Bearer(service_.MakeToken(v1::VIEWER, "projects/default"))).code, 200);
}

// The same door for users whom an OpenID provider vouches for.
class HttpUsers : public HttpAccess {
 protected:
  void SetUp() override { Start(&users_.users()); }
  std::string BearerOf(const std::vector<std::string>& groups) const {
    return absl::StrCat("Authorization: Bearer ", users_.Token(groups), "\r\n");
  }

  const access::TestUsers users_{access::GrantText("lookers", "viewer", "default")};
};

TEST_F(HttpUsers, NoMethodAnswersWhoHasNoRoleOrIsNotVouchedFor) {
  const std::string nobody = BearerOf({"others"});
  const std::string forged =
      absl::StrCat("Authorization: Bearer ", oidc::TestKey::Ec("e1").Sign(users_.Claims({"lookers"})), "\r\n");
  const auto* service = v1::GetJobRequest::descriptor()->file()->FindServiceByName("ControlPlane");
  for (int i = 0; i < service->method_count(); ++i) {
    const auto& rule = service->method(i)->options().GetExtension(google::api::http);
    const bool reads = rule.has_get();
    const std::string path = PathOf(reads ? rule.get() : rule.post()), method = reads ? "GET" : "POST";
    const std::string body = reads ? "" : "{}", type = reads ? "" : kJson;
    EXPECT_EQ(Ask(method, path, type + nobody, body).code, 403) << path;
    EXPECT_EQ(Ask(method, path, type + forged, body).code, 401) << path;
  }
  for (const char* path : {"/v1/events", "/metrics", "/session"}) {
    EXPECT_EQ(Ask("GET", path, nobody).code, 403) << path;
    EXPECT_EQ(Ask("GET", path, forged).code, 401) << path;
  }
  for (const char* path : {"/v1/server", "/metrics", "/session"})
    EXPECT_EQ(Ask("GET", path, BearerOf({"lookers"})).code, 200) << path;
}

TEST_F(HttpUsers, ThePageSignsInWithAProvidersToken) {
  const v1::Job job = service_.Create("seen");
  const auto sign_in = [&](const std::string& token) {
    return Ask("POST", "/session", kJson, absl::StrCat("{\"token\": \"", token, "\"}"));
  };
  const std::string token = users_.Token({"lookers"});
  const Answer in = sign_in(token);
  ASSERT_EQ(in.code, 200) << in.body;
  EXPECT_EQ(in.Json()["name"], "users/anna@example.org");
  EXPECT_EQ(in.Json()["roles"], nlohmann::json::parse(R"([{"role": "viewer", "project": "projects/default"}])"));
  EXPECT_FALSE(absl::StrContains(in.body, token));
  std::smatch cookie;
  ASSERT_TRUE(std::regex_search(in.head, cookie, std::regex("Set-Cookie: (legoai_token=[^;]*)(.*Max-Age=(\\d+).*)")));
  // As long as the token counts: an hour and the leeway, less what has passed since it was made.
  EXPECT_LE(std::stoi(cookie[3]), 3660);
  EXPECT_GT(std::stoi(cookie[3]), 1800);
  const std::string with = absl::StrCat("Cookie: ", cookie[1].str(), "\r\n");
  EXPECT_EQ(Ask("GET", "/v1/" + job.name(), with).Json()["spec"]["display_name"], "seen");
  EXPECT_EQ(Ask("POST", "/v1/projects/default/jobs", kJson + with, "{}").code, 403);
  EXPECT_EQ(sign_in(users_.Token({"others"})).code, 403);
  EXPECT_EQ(sign_in(token.substr(0, token.size() - 6)).code, 401);
}

// A browser would drop such a cookie without a word.
TEST_F(HttpUsers, ATokenThatNoBrowserKeepsIsRefusedAtSignInAlone) {
  nlohmann::json claims = users_.Claims({"lookers"});
  claims["more"] = std::string(11'500, 'x');
  const std::string token = users_.key().Sign(claims);
  const Answer in = Ask("POST", "/session", kJson, absl::StrCat("{\"token\": \"", token, "\"}"));
  EXPECT_EQ(in.code, 400) << in.body;
  EXPECT_TRUE(absl::StrContains(in.body, "longer than a browser keeps")) << in.body;
  EXPECT_FALSE(absl::StrContains(in.head, "Set-Cookie"));
  EXPECT_EQ(Ask("GET", "/v1/server", absl::StrCat("Authorization: Bearer ", token, "\r\n")).code, 200);
}

TEST(Credentials, TheHeaderWinsAndWhatCannotBeReadIsNotPassedOver) {
  EXPECT_EQ(SecretOf("", ""), "");
  EXPECT_EQ(SecretOf("Bearer lego_a", "legoai_token=lego_b"), "lego_a");
  EXPECT_EQ(SecretOf("", "a=b; legoai_token=lego_b"), "lego_b");
  EXPECT_EQ(SecretOf("", "legoai_token=lego_b; __Host-legoai_token=lego_c"), "lego_c");
  EXPECT_EQ(SecretOf("", "xlegoai_token=lego_b;legoai_tokenx=lego_c; legoai_token"), "");
  for (const char* header : {"Basic lego_a", "Bearer ", "lego_a"})
    EXPECT_EQ(SecretOf(header, "legoai_token=lego_b"), "none") << header;
}

TEST(Credentials, OverTlsTheCookieNeverLeavesIt) {
  EXPECT_EQ(SessionCookie("lego_a", 60, false), "legoai_token=lego_a; Path=/; Max-Age=60; HttpOnly; SameSite=Strict");
  EXPECT_EQ(SessionCookie("lego_a", 60, true),
            "__Host-legoai_token=lego_a; Path=/; Max-Age=60; HttpOnly; SameSite=Strict; Secure");
}

}  // namespace
}  // namespace legoai::server

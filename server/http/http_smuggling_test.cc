// Requests that can be read in two ways: each is refused with 400, closes its connection, and nothing of it is done; what stands
// behind it, which another reading takes for a request of its own, is not done either.
#include <atomic>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/http/testing/http_test.h"

namespace legoai::server {
namespace {

using http_test::Answer;
using http_test::Client;
using http_test::Parse;
using http_test::Request;

constexpr char kCancel[] = "/v1/projects/default/jobs/01J:cancel";
constexpr char kJson[] = "Content-Type: application/json\r\n";

class HttpSmugglingTest : public http_test::HttpTest {
 protected:
  void SetUp() override {
    HttpTest::SetUp();
    Start();
  }
  Handlers MakeHandlers() override {
    Handlers handlers = HttpTest::MakeHandlers();
    handlers.unary["CancelJob"] = [this](const auto&, const auto&, auto*) {
      ++cancelled_;
      return absl::OkStatus();
    };
    return handlers;
  }
  void ExpectRefused(const std::string& text, const std::string& field) {
    const std::string all = Ask(text);
    const Answer answer = Parse(all);
    EXPECT_EQ(answer.code, 400) << text << all;
    EXPECT_NE(answer.head.find("Connection: close"), std::string::npos) << all;
    const auto json = answer.Json();
    ASSERT_FALSE(json.is_discarded()) << text << all;  // one answer, and no second one behind it
    EXPECT_EQ(json["error"]["details"][0]["field"], field) << text << all;
    EXPECT_EQ(cancelled_, 0) << text;
  }
  static std::string Post(const std::string& headers, const std::string& body) {
    return absl::StrCat("POST ", kCancel, " HTTP/1.1\r\nHost: localhost\r\n", kJson, headers, "\r\n", body);
  }

  std::atomic<int> cancelled_{0};
};

TEST_F(HttpSmugglingTest, LengthsThatContradictEachOther) {
  const std::string hidden = Request("POST", kCancel, "{}", kJson);
  ExpectRefused(Post("Content-Length: 2\r\nContent-Length: 3\r\n", "{}"), "Content-Length");
  ExpectRefused(Post("Content-Length: 3\r\nContent-Length: 2\r\n", "{}"), "Content-Length");  // the body is never complete
  ExpectRefused(Post("Content-Length: 2\r\nContent-Length: 900\r\n", "{}" + hidden), "Content-Length");
  ExpectRefused(Post("Content-Length: 2, 2\r\n", "{}"), "Content-Length");
  ExpectRefused(Post("Content-Length: +2\r\n", "{}"), "Content-Length");
  ExpectRefused(Post("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\n\r\n" + hidden), "Content-Length");
  ExpectRefused(Post("Transfer-Encoding: chunked\r\nContent-Length: 2\r\n", "{}"), "Content-Length");
}

TEST_F(HttpSmugglingTest, EncodingsOtherThanChunked) {
  const std::string chunks = "2\r\n{}\r\n0\r\n\r\n", hidden = Request("POST", kCancel, "{}", kJson);
  for (const char* encoding : {"identity", "gzip, chunked", "chunked, identity", "xchunked", "chunked\x0b"}) {
    const std::string header = absl::StrCat("Transfer-Encoding: ", encoding, "\r\n");
    ExpectRefused(Post(header, chunks), "Transfer-Encoding");
    ExpectRefused(Post(header, chunks + hidden), "Transfer-Encoding");
  }
  ExpectRefused(Post("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", chunks), "Transfer-Encoding");
  ExpectRefused(Post("Transfer-Encoding : chunked\r\n", chunks), "request");
  ExpectRefused(Post("Transfer-Encoding:\r\n chunked\r\n", chunks), "request");
}

TEST_F(HttpSmugglingTest, ABodyThatMayNotBeOne) {
  const std::string hidden = Request("POST", kCancel, "{}", kJson);
  for (const char* method : {"GET", "DELETE", "BREW"}) {
    ExpectRefused(
        absl::StrCat(method, " /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: ", hidden.size(), "\r\n\r\n", hidden),
        "Content-Length");
  }
}

TEST_F(HttpSmugglingTest, HostsThatAreNone) {
  const auto get = [](const std::string& hosts) { return absl::StrCat("GET /healthz HTTP/1.1\r\n", hosts, "\r\n"); };
  ExpectRefused(get(""), "Host");
  ExpectRefused(get("Host: localhost\r\nHost: localhost\r\n"), "Host");
  ExpectRefused(get("Host: localhost\r\nHost: evil.example\r\n"), "Host");
  for (const char* host : {"", "localhost:", "localhost:0", "localhost:99999", "localhost:80x", "local host", "user@localhost",
                           "localhost@evil.example", "localhost/", "localhost#", "localhost?", "localhost,evil.example", "[::1",
                           "::1", "[::1]x", "localhost:80:80", "http://localhost", "localhost\x01"}) {
    const std::string all = Ask(get(absl::StrCat("Host: ", host, "\r\n")));
    EXPECT_EQ(Parse(all).code, 400) << host << all;
  }
  // libevent takes it for a proxy's request, and closes without saying so.
  const std::string elsewhere = Ask("GET http://evil.example/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(Parse(elsewhere).Json()["error"]["details"][0]["field"], "Host") << elsewhere;
  for (const char* host : {"localhost", "LOCALHOST:80", "127.0.0.1:7421", "[::1]", "[::1]:7421"})
    EXPECT_EQ(Parse(Ask(get(absl::StrCat("Host: ", host, "\r\nConnection: close\r\n")))).code, 200) << host;
  EXPECT_EQ(Parse(Ask(get("Host: evil.example\r\nConnection: close\r\n"))).code, 403);
}

// Requests one behind the other, in any pieces, are read as they were sent: each is answered once and in order.
TEST_F(HttpSmugglingTest, WhatIsRightGoesThroughInAnyPieces) {
  const std::string chunked = absl::StrCat("POST ", kCancel, " HTTP/1.1\r\nHost: localhost\r\n", kJson,
                                           "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n");
  const std::string all = Request("GET", "/healthz") + Request("POST", kCancel, "{}", kJson) + chunked +
                          Request("GET", "/healthz", "", "Connection: close\r\n");
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{100}, all.size()}) {
    cancelled_ = 0;
    Client client(server_->port());
    for (size_t at = 0; at < all.size(); at += piece) client.Send(all.substr(at, piece));
    const std::string answers = client.ReadAll();
    int good = 0;
    for (size_t at = answers.find("HTTP/1.1 200"); at != std::string::npos; at = answers.find("HTTP/1.1 200", at + 1)) ++good;
    EXPECT_EQ(good, 4) << "pieces of " << piece << ": " << answers;
    EXPECT_EQ(cancelled_, 2);
  }
  // The one that is wrong ends it, behind those that were right.
  cancelled_ = 0;
  const std::string answers = Ask(Request("GET", "/healthz") + Post("Content-Length: 3\r\nContent-Length: 2\r\n", "{}") + all);
  EXPECT_TRUE(answers.starts_with("HTTP/1.1 200")) << answers;
  EXPECT_NE(answers.find("HTTP/1.1 400"), std::string::npos) << answers;
  EXPECT_EQ(cancelled_, 0);
}

}  // namespace
}  // namespace legoai::server

#include "server/http/request_head.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "proto/errors.h"

namespace legoai::server {
namespace {

std::string Head(const std::string& line, const std::string& headers) { return absl::StrCat(line, "\r\n", headers, "\r\n"); }

// The field that is refused; empty: nothing is.
std::string Refused(const std::string& head) {
  const absl::Status status = CheckRequestHead(head);
  if (status.ok()) return "";
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  const auto violation = GetFieldViolation(status);
  return violation ? violation->field() : "no field";
}
std::string RefusedGet(const std::string& headers) { return Refused(Head("GET / HTTP/1.1", headers)); }
std::string RefusedPost(const std::string& headers) { return Refused(Head("POST / HTTP/1.1", "Host: a\r\n" + headers)); }

TEST(RequestHead, EndsAtTheFirstEmptyLine) {
  EXPECT_EQ(EndOfHead("GET / HTTP/1.1\r\nHost: a\r\n\r\nbody\r\n\r\n"), 27u);
  EXPECT_EQ(EndOfHead("GET / HTTP/1.1\nHost: a\n\nbody"), 24u);
  EXPECT_EQ(EndOfHead("a\n\r\n"), 4u);
  for (const char* text : {"", "GET / HTTP/1.1\r\nHost: a\r\n", "a\r\n\r", "a\r\r\n"}) {
    EXPECT_EQ(EndOfHead(text), std::string_view::npos) << text;
  }
}

TEST(RequestHead, WhatClientsSendIsTaken) {
  for (const char* headers :
       {"Host: localhost\r\n", "hOST:\t127.0.0.1:7421 \r\nAccept: */*\r\nX-Empty:\r\n", "Host: [::1]:80\r\n"})
    EXPECT_EQ(RefusedGet(headers), "") << headers;
  for (const char* headers : {"Content-Length: 12\r\n", "content-length: 12\r\nContent-Length: 12\r\n",
                              "Transfer-Encoding: chunked\r\n", "transfer-encoding: CHUNKED\r\n", "Content-Length: 0\r\n", ""})
    EXPECT_EQ(RefusedPost(headers), "") << headers;
  EXPECT_EQ(RefusedGet("Host: a\r\nContent-Length: 0\r\n"), "");
  EXPECT_EQ(Refused(Head("GET / HTTP/1.0", "")), "");
  EXPECT_EQ(Refused(Head("GET http://a:80/b?c HTTP/1.1", "Host: a:80\r\n")), "");
  EXPECT_EQ(Refused(Head("GET /?at=http://b HTTP/1.1", "Host: a\r\n")), "");
  EXPECT_EQ(Refused(Head("CONNECT localhost:80 HTTP/1.1", "Host: localhost\r\n")), "");
}

TEST(RequestHead, OneHostIsNeededAndMustBeOne) {
  EXPECT_EQ(RefusedGet(""), "Host");
  EXPECT_EQ(RefusedGet("Host: a\r\nhost: a\r\n"), "Host");
  EXPECT_EQ(RefusedGet("Host:\r\n"), "Host");
  for (const char* host : {"a b", "user@a", "a:0", "a:65536", "a:", "::1", "[::1", "a,b", "a/b", "http://a"})
    EXPECT_EQ(RefusedGet(absl::StrCat("Host: ", host, "\r\n")), "Host") << host;
  EXPECT_EQ(Refused(Head("GET / HTTP/1.0", "Host: a\r\nHost: b\r\n")), "Host");
  EXPECT_EQ(Refused(Head("GET http://b/ HTTP/1.1", "Host: a\r\n")), "Host");
}

TEST(RequestHead, TheLengthOfABodyIsSaidInOneWay) {
  for (const char* length : {"-5", "+5", "", "5 5", "5,5", "0x5", "5;", "99999999999999999999"})
    EXPECT_EQ(RefusedPost(absl::StrCat("Content-Length: ", length, "\r\n")), "Content-Length") << length;
  EXPECT_EQ(RefusedPost("Content-Length: 5\r\nContent-Length: 6\r\n"), "Content-Length");
  EXPECT_EQ(RefusedPost("Content-Length: 6\r\nX: y\r\nCONTENT-LENGTH: 5\r\n"), "Content-Length");
  for (const char* encoding : {"identity", "gzip, chunked", "chunked, chunked", "xchunked", "chunked;q=1", "\"chunked\"", ""})
    EXPECT_EQ(RefusedPost(absl::StrCat("Transfer-Encoding: ", encoding, "\r\n")), "Transfer-Encoding") << encoding;
  EXPECT_EQ(RefusedPost("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"), "Transfer-Encoding");
  EXPECT_EQ(RefusedPost("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), "Transfer-Encoding");
  EXPECT_EQ(RefusedPost("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"), "Content-Length");
  EXPECT_EQ(RefusedPost("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), "Content-Length");
  EXPECT_EQ(Refused(Head("POST / HTTP/1.0", "Transfer-Encoding: chunked\r\n")), "Transfer-Encoding");
  // libevent would take the body of these for the next request.
  for (const char* method : {"GET", "HEAD", "DELETE", "OPTIONS", "BREW"}) {
    EXPECT_EQ(Refused(Head(absl::StrCat(method, " / HTTP/1.1"), "Host: a\r\nContent-Length: 5\r\n")), "Content-Length") << method;
    EXPECT_EQ(Refused(Head(absl::StrCat(method, " / HTTP/1.1"), "Host: a\r\nTransfer-Encoding: chunked\r\n")),
              "Transfer-Encoding");
  }
}

TEST(RequestHead, LinesAreHeaders) {
  for (const std::string headers : {"Content-Length : 5\r\n", "Transfer-Encoding\t: chunked\r\n", " X: y\r\n", "X: y\r\n z\r\n",
                                    "X: y\r\n\tz\r\n", "no colon\r\n", ": y\r\n", "X\x01: y\r\n", "X y: z\r\n"})
    EXPECT_EQ(RefusedGet("Host: a\r\n" + headers), "request") << headers;
  EXPECT_EQ(RefusedGet("Host: a\r\nX: y\rz\r\n"), "X");
  EXPECT_EQ(RefusedGet(std::string("Host: a\r\nX: y\0z\r\n", 17)), "X");
  for (const char* line : {"GET", "GET /", "GET  / HTTP/1.1", "GET / HTTP/9.9", "GET / x HTTP/1.1", "G(T / HTTP/1.1",
                           "GET / http/1.1", "PRI * HTTP/2.0", "", "GET\t/\tHTTP/1.1"})
    EXPECT_EQ(Refused(Head(line, "Host: a\r\n")), "request") << line;
}

// What a client wrote is never given back raw.
TEST(RequestHead, WhatIsQuotedIsEscapedAndCut) {
  const absl::Status status =
      CheckRequestHead(Head("GET / HTTP/1.1", absl::StrCat("Host: \x1b[31m", std::string(5000, 'a'), "\r\n")));
  EXPECT_EQ(status.message().find('\x1b'), absl::string_view::npos) << status;
  EXPECT_LT(status.message().size(), 1000u);
}

TEST(RequestGuard, AnswersToItsOwnNamesOnly) {
  const RequestGuard guard("192.0.2.7", {"Train.Example"});
  for (const char* host :
       {"localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]", "[::1]:8080", "192.0.2.7", "train.example:443"}) {
    EXPECT_TRUE(guard.CheckHost(host).ok()) << host;
  }
  for (const char* host :
       {"", ":80", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8080", "[", "[]", "127.0.0.2"}) {
    EXPECT_EQ(guard.CheckHost(host).code(), absl::StatusCode::kPermissionDenied) << host;
  }
}

TEST(RequestGuard, AHostIsANameAndPerhapsAPort) {
  for (const auto& [host, name] : std::vector<std::pair<std::string, std::string>>{{"LocalHost", "localhost"},
                                                                                   {"a.example:1", "a.example"},
                                                                                   {"a_b-c:65535", "a_b-c"},
                                                                                   {"127.0.0.1:7421", "127.0.0.1"},
                                                                                   {"[::1]", "::1"},
                                                                                   {"[2001:DB8::7]:80", "2001:db8::7"}}) {
    EXPECT_EQ(HostName(host), name) << host;
  }
  for (const std::string host : {"",
                                 ":",
                                 ":80",
                                 "localhost:",
                                 "localhost:0",
                                 "localhost:65536",
                                 "localhost:99999999999",
                                 "localhost:+80",
                                 "localhost:8a",
                                 "localhost: 80",
                                 "localhost :80",
                                 " localhost",
                                 "local host",
                                 "localhost,evil",
                                 "user@localhost",
                                 "localhost/path",
                                 "http://localhost",
                                 "localhost:80:80",
                                 "::1",
                                 "[::1",
                                 "[]",
                                 "[::1]80",
                                 "[::1]:",
                                 "[::1]x:80",
                                 "[localhost]",
                                 "[127.0.0.1]",
                                 "a%20b",
                                 "localhost\t",
                                 "b\xc3\xbc"}) {
    EXPECT_FALSE(HostName(host)) << host;
  }
  EXPECT_FALSE(HostName(std::string("localhost\0", 10)));
  EXPECT_FALSE(HostName(std::string(256, 'a')));
}

TEST(RequestGuard, ChangesComeFromItsOwnPage) {
  const RequestGuard guard("127.0.0.1", {});
  EXPECT_TRUE(guard.CheckOrigin("", "localhost:8080").ok());
  EXPECT_TRUE(guard.CheckOrigin("http://localhost:8080", "localhost:8080").ok());
  EXPECT_TRUE(guard.CheckOrigin("https://localhost:8080", "localhost:8080").ok());
  for (const char* origin :
       {"null", "http://evil.example", "http://localhost:8081", "http://localhost:80800", "ftp://localhost:8080"}) {
    EXPECT_FALSE(guard.CheckOrigin(origin, "localhost:8080").ok()) << origin;
  }
}

TEST(RequestGuard, TakesJsonOnly) {
  const RequestGuard guard("127.0.0.1", {});
  EXPECT_TRUE(guard.CheckContentType("application/json").ok());
  EXPECT_TRUE(guard.CheckContentType("Application/JSON ; charset=utf-8").ok());
  for (const char* type : {"", "text/plain", "application/x-www-form-urlencoded", "text/plain; application/json"}) {
    EXPECT_FALSE(guard.CheckContentType(type).ok()) << type;
  }
}

}  // namespace
}  // namespace legoai::server

#include "server/http/request_guard.h"

#include "gtest/gtest.h"

namespace legoai::server {
namespace {

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

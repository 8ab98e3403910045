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

#include "server/main/listen_address.h"

#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "proto/errors.h"

namespace legoai::server {
namespace {

TEST(ListenAddress, IsAHostAndAPort) {
  for (const auto& [text, host, port] :
       std::vector<std::tuple<std::string, std::string, int>>{{"127.0.0.1:7420", "127.0.0.1", 7420},
                                                              {"localhost:0", "localhost", 0},
                                                              {"[::1]:65535", "::1", 65535},
                                                              {"[::]:1", "::", 1},
                                                              {"0.0.0.0:80", "0.0.0.0", 80}}) {
    const auto address = ParseListenAddress("--listen", text);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_EQ(address->host, host);
    EXPECT_EQ(address->port, port);
    EXPECT_EQ(ToText(*address), text);
  }
}

// Also what gRPC would take for more than an address: a socket's path, a scheme, a percent sign.
TEST(ListenAddress, AllElseIsRefused) {
  for (const char* text : {"",
                           ":",
                           ":7420",
                           "127.0.0.1",
                           "127.0.0.1:",
                           "127.0.0.1:x",
                           "127.0.0.1:-1",
                           "127.0.0.1:+1",
                           "127.0.0.1:65536",
                           "127.0.0.1: 80",
                           "::1:7420",
                           "[::1]",
                           "[]:80",
                           "[127.0.0.1]:80",
                           "[[::1]]:80",
                           "unix:/tmp/socket:80",
                           "ipv4:0.0.0.0:80",
                           "dns:///host:80",
                           "127.0.0.1%2f:80",
                           "user@host:80"}) {
    const auto address = ParseListenAddress("--listen", text);
    const auto violation = GetFieldViolation(address.status());
    ASSERT_TRUE(violation) << text;
    EXPECT_EQ(violation->field(), "--listen");
    EXPECT_EQ(violation->value(), text);
  }
}

TEST(ListenAddress, LoopbackIsAllOf127AndTheOneOfIPv6) {
  for (const char* number : {"127.0.0.1", "127.0.0.0", "127.255.255.255", "::1", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(IsLoopback(number)) << number;
  }
  for (const char* number : {"0.0.0.0", "::", "126.255.255.255", "128.0.0.0", "10.0.0.1", "192.168.1.1", "169.254.0.1", "fe80::1",
                             "::2", "::127.0.0.1", "::ffff:10.0.0.1", "::ffff:0.0.0.0", "2001:db8::1", "localhost", ""}) {
    EXPECT_FALSE(IsLoopback(number)) << number;
  }
}

TEST(ListenAddress, OthersReachItOnlyWhereThatIsAskedFor) {
  using Numbers = std::vector<std::string>;
  const auto verdict = [](const std::string& host, const Numbers& numbers, bool insecure) {
    return CheckReachable("--http", {host, 7421}, numbers, {.insecure = insecure});
  };
  EXPECT_TRUE(verdict("127.0.0.1", {"127.0.0.1"}, false).ok());
  EXPECT_TRUE(verdict("localhost", {"127.0.0.1", "::1"}, false).ok());
  for (const auto& [host, numbers] : std::vector<std::pair<std::string, Numbers>>{{"0.0.0.0", {"0.0.0.0"}},
                                                                                  {"::", {"::"}},
                                                                                  {"192.0.2.7", {"192.0.2.7"}},
                                                                                  {"node-7", {"127.0.1.1", "192.0.2.7"}},
                                                                                  {"train.example", {"192.0.2.7"}},
                                                                                  {"nothing", {}}}) {
    const absl::Status refused = verdict(host, numbers, false);
    const auto violation = GetFieldViolation(refused);
    ASSERT_TRUE(violation) << host;
    EXPECT_EQ(violation->field(), "--http");
    EXPECT_EQ(violation->value(), ToText({host, 7421}));
    for (const char* part : {"can be reached", "whoever reaches it can do everything", "127.0.0.1",
                             "--tokens, --tls_cert and --tls_key", "--insecure"})
      EXPECT_TRUE(absl::StrContains(violation->remedy(), part)) << part << " in " << refused;
    EXPECT_TRUE(verdict(host, numbers, true).ok());
  }
  // A name says which of its addresses it is.
  EXPECT_TRUE(absl::StrContains(verdict("node-7", {"127.0.1.1", "192.0.2.7"}, false).message(), "(as 192.0.2.7)"));
}

TEST(ListenAddress, OthersReachItWithTokensAndTlsTogether) {
  const auto verdict = [](bool tokens, bool tls) {
    return CheckReachable("--listen", {"192.0.2.7", 1}, {"192.0.2.7"}, {.tokens = tokens, .tls = tls});
  };
  EXPECT_TRUE(verdict(true, true).ok());
  const std::string in_clear(verdict(true, false).message()), open(verdict(false, true).message());
  EXPECT_TRUE(absl::StrContains(in_clear, "without TLS whoever listens on the way")) << in_clear;
  EXPECT_TRUE(absl::StrContains(in_clear, "--tls_cert and --tls_key")) << in_clear;
  EXPECT_FALSE(absl::StrContains(in_clear, "--tokens")) << in_clear;
  EXPECT_TRUE(absl::StrContains(open, "without tokens whoever reaches it can do everything")) << open;
  EXPECT_FALSE(absl::StrContains(open, "--tls")) << open;
}

TEST(ListenAddress, OthersAreToldOneThatTheyCanCall) {
  EXPECT_EQ(AdvertisedAddress("", {"10.0.0.1", 7420}).value(), "10.0.0.1:7420");
  EXPECT_EQ(AdvertisedAddress("", {"::1", 7420}).value(), "[::1]:7420");
  EXPECT_EQ(AdvertisedAddress("", {"10.0.0.1", 0}).value(), "") << "the port is not known before it listens";
  EXPECT_EQ(AdvertisedAddress("node-7:1", {"0.0.0.0", 7420}).value(), "node-7:1");
  char name[256] = "";
  ASSERT_EQ(gethostname(name, sizeof(name)), 0);
  for (const char* every : {"0.0.0.0", "::"})
    EXPECT_EQ(AdvertisedAddress("", {every, 7420}).value(), std::string(name) + ":7420");
  for (const char* bad : {"0.0.0.0:7420", "[::]:7420", "[0:0:0:0:0:0:0:0]:7420", "0:7420", "node-7:0", "node-7"}) {
    const absl::Status status = AdvertisedAddress(bad, {"10.0.0.1", 7420}).status();
    ASSERT_TRUE(GetFieldViolation(status)) << bad << ": " << status;
    EXPECT_EQ(GetFieldViolation(status)->field(), "--advertise_address");
  }
}

TEST(ListenAddress, NumbersAreResolvedToThemselves) {
  using Numbers = std::vector<std::string>;
  EXPECT_EQ(ResolveHost("--listen", "127.0.0.1").value(), (Numbers{"127.0.0.1"}));
  EXPECT_EQ(ResolveHost("--listen", "::1").value(), (Numbers{"::1"}));
  EXPECT_EQ(ResolveHost("--listen", "0").value(), (Numbers{"0.0.0.0"}));  // short for all addresses
  const absl::Status none = ResolveHost("--listen", "no host").status();
  EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(GetFieldViolation(none)->field(), "--listen");
}

}  // namespace
}  // namespace legoai::server

#include "server/rpc/client_quota.h"

#include "gtest/gtest.h"

namespace legoai::server {
namespace {

TEST(ClientQuota, AClientIsAnAddressHoweverItIsWritten) {
  for (const char* peer : {"127.0.0.1:4711", "ipv4:127.0.0.1:4712", "::ffff:127.0.0.1:80", "ipv6:%5B::ffff:127.0.0.1%5D:80"})
    EXPECT_EQ(ClientOf(peer), "127.0.0.1") << peer;
  for (const char* peer : {"::1:4711", "[::1]:4711", "ipv6:[::1]:4711", "ipv6:%5B::1%5D:4711"}) EXPECT_EQ(ClientOf(peer), "::1");
  EXPECT_NE(ClientOf("127.0.0.2:4711"), ClientOf("127.0.0.1:4711"));
  EXPECT_EQ(ClientOf("ipv6:%5B2001:db8:1:2:aaaa::1%5D:80"), "2001:db8:1:2::/64");
  EXPECT_EQ(ClientOf("2001:db8:1:2:bbbb::2:4711"), "2001:db8:1:2::/64");  // a host may use any of its 2^64 addresses
  EXPECT_NE(ClientOf("2001:db8:1:3::1:80"), ClientOf("2001:db8:1:2::1:80"));
  EXPECT_EQ(ClientOf("unix:/tmp/socket"), "unix:/tmp/socket");
  EXPECT_EQ(ClientOf(""), "");
}

TEST(ClientQuota, BoundsAllAndEach) {
  using Answer = ClientQuota::Answer;
  ClientQuota quota(3, 2);
  EXPECT_EQ(quota.Take("a"), Answer::kTaken);
  EXPECT_EQ(quota.Take("a"), Answer::kTaken);
  EXPECT_EQ(quota.Take("a"), Answer::kClientIsFull);
  EXPECT_EQ(quota.Take("b"), Answer::kTaken);
  EXPECT_EQ(quota.Take("c"), Answer::kFull);
  quota.GiveBack("a");
  EXPECT_EQ(quota.Take("c"), Answer::kTaken);
  EXPECT_EQ(quota.Take("a"), Answer::kFull);
  quota.GiveBack("c");
  EXPECT_EQ(quota.Take("a"), Answer::kTaken);
}

}  // namespace
}  // namespace legoai::server

#include "proto/server_list.h"

#include <gtest/gtest.h>

#include "proto/errors.h"
#include "proto/not_leader.h"
#include "proto/testing/assert_ok.h"

namespace legoai {
namespace {

TEST(ServerList, GoesRound) {
  ASSERT_OK_AND_ASSIGN(auto servers, ServerList::Parse("--server", "a:1,b:2"));
  EXPECT_EQ(servers.current(), "a:1");
  EXPECT_FALSE(servers.MoveOn(absl::UnavailableError("gone")));
  EXPECT_EQ(servers.current(), "b:2");
  EXPECT_FALSE(servers.MoveOn(NotLeaderError("", 0))) << "nobody leads";
  EXPECT_EQ(servers.current(), "a:1");
}

TEST(ServerList, FollowsTheLeaderThatIsNamed) {
  ASSERT_OK_AND_ASSIGN(auto servers, ServerList::Parse("--server", "a:1,b:2"));
  EXPECT_TRUE(servers.MoveOn(NotLeaderError("c:3", 4)));
  EXPECT_EQ(servers.current(), "c:3") << "also one that is not of the list";
  EXPECT_FALSE(servers.MoveOn(absl::UnavailableError("gone")));
  EXPECT_EQ(servers.current(), "a:1") << "who named it is asked who leads now";
  EXPECT_FALSE(servers.MoveOn(NotLeaderError("c:3", 4)));
  EXPECT_EQ(servers.current(), "a:1") << "which has just not answered";
  EXPECT_TRUE(servers.MoveOn(NotLeaderError("c:3", 4)));
  EXPECT_EQ(servers.current(), "c:3") << "as it may again";
  EXPECT_FALSE(servers.MoveOn(absl::UnavailableError("gone")));
  EXPECT_EQ(servers.current(), "b:2") << "a may know nothing new";
}

TEST(ServerList, DoesNotWaitTwiceForALeaderThatStandsStill) {
  ASSERT_OK_AND_ASSIGN(auto servers, ServerList::Parse("--server", "a:1,b:2"));
  EXPECT_FALSE(servers.MoveOn(absl::DeadlineExceededError("the server does not answer")));
  EXPECT_EQ(servers.current(), "b:2");
  EXPECT_FALSE(servers.MoveOn(NotLeaderError("a:1", 4)));
  EXPECT_EQ(servers.current(), "b:2") << "which leads soon, where a is gone";
}

TEST(ServerList, TwoThatNameEachOtherAreNotAskedWithoutEnd) {
  ASSERT_OK_AND_ASSIGN(auto servers, ServerList::Parse("--server", "a:1,b:2"));
  EXPECT_TRUE(servers.MoveOn(NotLeaderError("b:2", 4)));
  EXPECT_FALSE(servers.MoveOn(NotLeaderError("a:1", 3))) << "after a wait";
}

TEST(ServerList, OneServerMayNameItself) {
  ASSERT_OK_AND_ASSIGN(auto servers, ServerList::Parse("--server", "a:1"));
  EXPECT_FALSE(servers.has_others());
  EXPECT_FALSE(servers.MoveOn(NotLeaderError("a:1", 4)));
  EXPECT_EQ(servers.current(), "a:1");
}

TEST(ServerList, RefusesWhatIsNoAddress) {
  for (const char* text : {"", "a", "a:", ":1", "a:0", "a:65536", "a:x", "a:1,", ",a:1", "a:1, b:2", "http://a:1", "unix:"}) {
    const auto servers = ServerList::Parse("--server", text);
    ASSERT_FALSE(servers.ok()) << text;
    EXPECT_EQ(GetFieldViolation(servers.status())->field(), "--server");
  }
  EXPECT_NE(ServerList::Parse("--server", "a:1,b:2,a:1").status().message().find("a:1 twice"), std::string::npos);
  EXPECT_TRUE(ServerList::Parse("--server", "[::1]:7420,unix:/tmp/s").ok());
}

}  // namespace
}  // namespace legoai

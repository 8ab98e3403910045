#include "server/http/connections.h"

#include "gtest/gtest.h"

namespace legoai::server {
namespace {

// What tasks hold - exchanges, streams, places - refers to the server, which is gone before its loop is.
TEST(EventLoop, HoldsNothingAfterItHasStopped) {
  const auto held = std::make_shared<int>();
  EventLoop loop;
  loop.Post([&loop, held] {
    loop.Post([held] {});
    event_base_loopbreak(loop.base());  // before it comes to the task just posted
  });
  loop.Start();
  loop.Stop();
  EXPECT_EQ(held.use_count(), 1);
  loop.Post([held] {});
  EXPECT_EQ(held.use_count(), 1) << "after the end nothing is kept for it";
}

TEST(EventLoop, RunsTasksInTheirOrder) {
  std::string order;
  EventLoop loop;
  for (const char letter : {'a', 'b', 'c'}) loop.Post([&order, letter] { order += letter; });
  loop.Start();
  loop.Stop();
  EXPECT_EQ(order, "abc");
}

}  // namespace
}  // namespace legoai::server

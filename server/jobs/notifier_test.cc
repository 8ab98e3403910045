#include "server/jobs/notifier.h"

#include <gtest/gtest.h>

namespace legoai::server {
namespace {

using Names = std::vector<std::string>;

TEST(NotifierTest, WhoWaitsForAJobHearsOfItAloneAndWhoWaitsForAllOfAll) {
  Notifier notifier;
  int one = 0, also_one = 0, all = 0;
  Names names;
  const auto first = notifier.Subscribe("a", [&] { ++one; });
  const auto second = notifier.Subscribe("a", [&] { ++also_one; });
  const auto every = notifier.Subscribe("", [&] { ++all; });
  const auto by_name = notifier.SubscribeToNames([&](const std::string& job) { names.push_back(job); });
  notifier.JobChanged("a");
  notifier.JobChanged("b");
  notifier.JobsChanged({"c", "a"});
  notifier.WorkersChanged();
  EXPECT_EQ(one, 2);
  EXPECT_EQ(also_one, 2);
  EXPECT_EQ(all, 5);
  EXPECT_EQ(names, (Names{"a", "b", "c", "a", ""}));
}

TEST(NotifierTest, WhereAnythingMayHaveChangedAllAreWoken) {
  Notifier notifier;
  int one = 0, all = 0;
  Names names;
  const auto first = notifier.Subscribe("a", [&] { ++one; });
  const auto every = notifier.Subscribe("", [&] { ++all; });
  const auto by_name = notifier.SubscribeToNames([&](const std::string& job) { names.push_back(job); });
  notifier.AllChanged();
  EXPECT_EQ(one, 1);
  EXPECT_GE(all, 1);
  EXPECT_EQ(names, (Names{"", Notifier::kAnyJob}));
}

TEST(NotifierTest, AnEndedSubscriptionHearsNothing) {
  Notifier notifier;
  int ended = 0, stays = 0;
  auto first = notifier.Subscribe("a", [&] { ++ended; });
  const auto second = notifier.Subscribe("a", [&] { ++stays; });
  first.reset();
  notifier.JobChanged("a");
  EXPECT_EQ(ended, 0);
  EXPECT_EQ(stays, 1);
}

TEST(NotifierTest, PlanningsProgressIsKeptUntilItIsCleared) {
  Notifier notifier;
  int woken = 0;
  const auto subscription = notifier.Subscribe("a", [&] { ++woken; });
  v1::PlanningProgress progress;
  progress.set_captured(3);
  notifier.SetPlanning("a", progress);
  ASSERT_TRUE(notifier.Planning("a"));
  EXPECT_EQ(notifier.Planning("a")->captured(), 3);
  EXPECT_FALSE(notifier.Planning("b"));
  notifier.ClearPlanning("a");
  EXPECT_FALSE(notifier.Planning("a"));
  EXPECT_EQ(woken, 2);
}

}  // namespace
}  // namespace legoai::server

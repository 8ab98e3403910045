#include "server/fleet/plans_under_way.h"

#include <gtest/gtest.h>

namespace legoai::server {
namespace {

v1::Cluster Slots(int64_t slots) {
  v1::Cluster cluster;
  cluster.set_devices_per_node(slots);
  return cluster;
}

TEST(PlansUnderWay, KeepSlotsUntilTheyAreStored) {
  PlansUnderWay plans;
  plans.Add("a", Slots(4), "k", {"workers/w"});
  plans.Add("b", Slots(2), "l", {});
  EXPECT_EQ(plans.KeptSlots(), (std::map<std::string, int64_t>{{"workers/w", 4}}));
  EXPECT_TRUE(plans.WithResults().empty());
  ASSERT_TRUE(plans.SetResult("a", absl::InternalError("no")));
  ASSERT_EQ(plans.WithResults().size(), 1u);
  EXPECT_EQ(plans.WithResults()[0].job, "a");
  EXPECT_EQ(plans.KeptSlots().size(), 1u) << "it is not stored yet";
  plans.Erase("a");
  EXPECT_TRUE(plans.KeptSlots().empty());
}

TEST(PlansUnderWay, OfJobsThatAreNotPlannedAnyMoreAreCancelled) {
  PlansUnderWay plans;
  const auto a = plans.Add("a", Slots(4), "k", {"workers/w"}), b = plans.Add("b", Slots(2), "l", {});
  const auto running = plans.CancelOthers([](const std::string& job) { return job == "b"; });
  ASSERT_EQ(running.size(), 1u);
  EXPECT_EQ(running[0].job + running[0].key, "bl");
  EXPECT_FALSE(running[0].has_result);
  EXPECT_TRUE(*a);
  EXPECT_FALSE(*b);
  EXPECT_TRUE(plans.KeptSlots().empty());
  plans.SetResult("b", v1::PlanResult());
  EXPECT_TRUE(plans.CancelOthers([](const std::string&) { return true; }).at(0).has_result);
}

TEST(PlansUnderWay, TakeNoResultAtTheEnd) {
  PlansUnderWay plans;
  const auto a = plans.Add("a", Slots(4), "k", {});
  plans.End();
  EXPECT_TRUE(*a);
  EXPECT_FALSE(plans.SetResult("a", v1::PlanResult()));
  EXPECT_TRUE(*plans.Add("b", Slots(1), "l", {}));
}

}  // namespace
}  // namespace legoai::server

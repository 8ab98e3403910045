#include "worker/comm/flight_waits.h"

#include <gtest/gtest.h>

namespace legoai::comm {
namespace {

using Ranks = std::set<int64_t>;

TEST(FlightWaits, NobodyWaitsNobodyIsToBlame) {
  EXPECT_EQ(FlightWaits().Culprits(), Ranks());
  EXPECT_TRUE(FlightWaits().empty());
}

TEST(FlightWaits, TheEndOfAChainIsToBlame) {
  FlightWaits waits;
  waits.Add({0, 1}, {2});
  waits.Add({2, 3}, {4, 5});
  waits.Add({4}, {5});
  EXPECT_EQ(waits.Culprits(), Ranks({5}));
  EXPECT_EQ(waits.Waiting(), Ranks({0, 1, 2, 3, 4}));
}

TEST(FlightWaits, TwoEndsAreBothToBlame) {
  FlightWaits waits;
  waits.Add({0}, {1, 2});
  waits.Add({3}, {0});
  EXPECT_EQ(waits.Culprits(), Ranks({1, 2}));
}

TEST(FlightWaits, ACircleIsToBlameAndNotWhoHangsOnIt) {
  FlightWaits waits;
  waits.Add({0}, {1});
  waits.Add({1}, {2});
  waits.Add({2}, {0});
  waits.Add({7}, {0});
  waits.Add({8}, {7});
  EXPECT_EQ(waits.Culprits(), Ranks({0, 1, 2}));
}

TEST(FlightWaits, ACircleThatWaitsForAnEndIsNotToBlame) {
  FlightWaits waits;
  waits.Add({0}, {1});
  waits.Add({1}, {0, 2});
  EXPECT_EQ(waits.Culprits(), Ranks({2}));
}

TEST(FlightWaits, WhoIsBlamedEndsTheChain) {
  FlightWaits waits;
  waits.Add({0}, {1});
  waits.Add({1}, {2});
  waits.Blame(1);
  EXPECT_EQ(waits.Culprits(), Ranks({1, 2}));
}

}  // namespace
}  // namespace legoai::comm

#include "core/flight/ranks_text.h"

#include <gtest/gtest.h>

namespace legoai::comm {
namespace {

TEST(RanksText, ShortensRanges) {
  EXPECT_EQ(RanksText({}), "");
  EXPECT_EQ(RanksText({0, 1}), "0,1");
  EXPECT_EQ(RanksText({0, 1, 2, 3, 5}), "0-3,5");
  EXPECT_EQ(RanksText({0, 2, 3, 4}), "0,2-4");
}

}  // namespace
}  // namespace legoai::comm

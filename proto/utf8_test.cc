#include "proto/utf8.h"

#include <gtest/gtest.h>

namespace legoai {
namespace {

TEST(ToUtf8, KeepsTextAndReplacesOtherBytes) {
  EXPECT_TRUE(IsUtf8(""));
  EXPECT_TRUE(IsUtf8("caf\xc3\xa9"));
  EXPECT_FALSE(IsUtf8("caf\xe9"));
  EXPECT_EQ(ToUtf8("caf\xc3\xa9"), "caf\xc3\xa9");
  EXPECT_EQ(ToUtf8("caf\xe9 and \xc3\xa9"), "caf? and ??");
}

}  // namespace
}  // namespace legoai

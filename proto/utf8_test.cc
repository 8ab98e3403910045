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

TEST(CutText, LeavesWholeCharacters) {
  EXPECT_EQ(CutText("abc", 3), "abc");
  EXPECT_EQ(CutText("abcdef", 5), "ab...");
  EXPECT_EQ(CutText("a\u00e9\u00e9\u00e9", 6), "a\u00e9...");
  EXPECT_EQ(CutText("a\u00e9\u00e9\u00e9", 5), "a...");
}

}  // namespace
}  // namespace legoai

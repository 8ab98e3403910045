#include "proto/utf8.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

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

TEST(Printable, EscapesControlCharactersOnly) {
  EXPECT_EQ(Printable("caf\xc3\xa9 \xe2\x82\xac"), "caf\xc3\xa9 \xe2\x82\xac");
  EXPECT_EQ(Printable(std::string_view("a\0b", 3)), "a\\u0000b");
  EXPECT_EQ(Printable("\x1b[31mred\x7f\n\t\r"), "\\u001b[31mred\\u007f\\n\\t\\r");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m \xc2\xa0"),
            "\\u009b31m \xc2\xa0")
      << "a terminal takes U+009B for ESC [";
  EXPECT_EQ(Printable("one\n\ttwo\r\x1b", Lines::kKeep), "one\n\ttwo\\r\\u001b");
  EXPECT_EQ(Printable("caf\xe9\x1b"), "caf?\\u001b");
  EXPECT_EQ(Printable(""), "");
}

// Whatever the bytes: what is shown is UTF-8 and printable, and what is printable UTF-8 is shown as it is.
TEST(Printable, HoldsForRandomBytes) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  int printable = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text(random() % 6, ' ');
    for (char& c : text) c = static_cast<char>(random() % 4 == 0 ? 0xc2 : random() % 256);
    const std::string shown = Printable(text);
    EXPECT_TRUE(IsUtf8(shown) && IsPrintable(shown)) << shown;
    if (!IsUtf8(text)) continue;
    EXPECT_EQ(shown == text, IsPrintable(text)) << shown;
    printable += IsPrintable(text);
  }
  EXPECT_GT(printable, 100);
}

TEST(IsPrintable, NamesTheControlCharacters) {
  for (int c = 0; c < 256; ++c) EXPECT_EQ(IsPrintable(std::string(1, static_cast<char>(c))), c >= 0x20 && c != 0x7f) << c;
  EXPECT_FALSE(IsPrintable("a\xc2\x85"));
  EXPECT_TRUE(IsPrintable("caf\xc3\xa9"));
}

}  // namespace
}  // namespace legoai

#include "proto/text.h"

#include <gtest/gtest.h>

#include <random>

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

TEST(EditDistance, CountsEdits) {
  EXPECT_EQ(EditDistance("", ""), 0);
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
  EXPECT_EQ(EditDistance("seq_len", "seq_len"), 0);
  EXPECT_EQ(EditDistance("seq_lne", "seq_len"), 1);
  EXPECT_EQ(EditDistance("step", "steps"), 1);
}

TEST(EditDistance, IsSymmetric) { EXPECT_EQ(EditDistance("sunday", "saturday"), EditDistance("saturday", "sunday")); }

TEST(Nearest, TakesTheSmallestAndTheFirstOfEquals) {
  EXPECT_EQ(Nearest("batchsize", {"seq_len", "local_batch_size", "batch"}), "batch");
  EXPECT_EQ(Nearest("ab", {"ax", "xb"}), "ax");
  EXPECT_EQ(Nearest("tensor_degree", {"zero_stage", "tensor_parallel_degree"}), "tensor_parallel_degree");
  EXPECT_EQ(Nearest("ab", {}), "");
  EXPECT_EQ(Nearest("ab" + std::string(16 << 20, 'x'), {"cd", "ab"}), "ab") << "in no time and memory to speak of";
}

TEST(QuantityText, HasThreeDigitsAndAUnit) {
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(1023), "1023 B");
  EXPECT_EQ(BytesText(1536), "1.50 KiB");
  EXPECT_EQ(BytesText(80.0 * (1 << 30)), "80.0 GiB");
  EXPECT_EQ(BytesText(-3.0 * (1 << 20)), "-3.00 MiB");
  EXPECT_EQ(SecondsText(0.00321), "3.21 ms");
  EXPECT_EQ(SecondsText(7.0839), "7.084 s");
  EXPECT_EQ(SecondsText(12e-6), "12 us");
  EXPECT_EQ(CountText(8030261248), "8.03 B");
  EXPECT_EQ(PercentText(0.542), "54.2 %");
  EXPECT_EQ(FlopsText(989e12), "989 TFLOP/s");
  EXPECT_EQ(BandwidthText(3.35e12), "3.35 TB/s");
}

// The cases of dashboards/web/src/format.test.ts: the page writes the same.
TEST(QuantityText, DurationsHaveTwoUnitsAtMost) {
  EXPECT_EQ(DurationText(0), "0 s");
  EXPECT_EQ(DurationText(0.2), "200 ms");
  EXPECT_EQ(DurationText(0.95), "1 s");
  EXPECT_EQ(DurationText(45), "45 s");
  EXPECT_EQ(DurationText(59.6), "1 min");
  EXPECT_EQ(DurationText(200), "3 min 20 s");
  EXPECT_EQ(DurationText(3725), "1 h 2 min");
  EXPECT_EQ(DurationText(86400 * 4 + 3600 * 3 + 59), "4 d 3 h");
  EXPECT_EQ(DurationText(86400 + 59), "1 d");
  EXPECT_EQ(DurationText(-5), "0 s");
  EXPECT_EQ(DurationText(absl::Minutes(30)), "30 min");
  EXPECT_EQ(DurationText(absl::InfiniteDuration()), "an unknown time");
  EXPECT_EQ(DurationText(std::nan("")), "an unknown time");
}

TEST(QuantityText, Commas) {
  EXPECT_EQ(WithCommas(0), "0");
  EXPECT_EQ(WithCommas(999), "999");
  EXPECT_EQ(WithCommas(1000), "1,000");
  EXPECT_EQ(WithCommas(8030261248), "8,030,261,248");
  EXPECT_EQ(WithCommas(-999), "-999");
  EXPECT_EQ(WithCommas(-1000), "-1,000");
}

}  // namespace
}  // namespace legoai

#include "server/cli/output.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>

namespace legoai::cli {
namespace {

TEST(Numbers, HaveThreeDigitsAndAUnit) {
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(1023), "1023 B");
  EXPECT_EQ(BytesText(1536), "1.50 KiB");
  EXPECT_EQ(BytesText(80.0 * (1 << 30)), "80.0 GiB");
  EXPECT_EQ(SecondsText(0.00321), "3.21 ms");
  EXPECT_EQ(SecondsText(7.0839), "7.084 s");
  EXPECT_EQ(SecondsText(12e-6), "12 us");
  EXPECT_EQ(CountText(8030261248), "8.03 B");
  EXPECT_EQ(PercentText(0.542), "54.2 %");
  EXPECT_EQ(FlopsText(989e12), "989 TFLOP/s");
  EXPECT_EQ(BandwidthText(3.35e12), "3.35 TB/s");
}

TEST(Numbers, Commas) {
  EXPECT_EQ(WithCommas(0), "0");
  EXPECT_EQ(WithCommas(999), "999");
  EXPECT_EQ(WithCommas(1000), "1,000");
  EXPECT_EQ(WithCommas(8030261248), "8,030,261,248");
  EXPECT_EQ(WithCommas(-999), "-999");
  EXPECT_EQ(WithCommas(-1000), "-1,000");
}

TEST(Bar, FillsByShareAndStaysInside) {
  EXPECT_EQ(Bar(0, 4), "····");
  EXPECT_EQ(Bar(0.5, 4), "██··");
  EXPECT_EQ(Bar(7, 4), "████");
  EXPECT_EQ(Bar(-1, 4), "····");
}

TEST(Table, AlignsByCharactersNotBytes) {
  Table table({"<name", "size"});
  EXPECT_TRUE(table.empty());
  table.Add({"█", "1"});
  table.Add({"abcdef", "12345"});
  EXPECT_EQ(table.Text(), "name     size\n█           1\nabcdef  12345\n");
}

// What a server or a file gives may hold anything; a terminal obeys none of it.
TEST(Output, ControlCharactersAreShownNotObeyed) {
  ::testing::internal::CaptureStdout();
  Print("a\x1b[2J\tb\r\nc\x7f\xc2\x9b\n");
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "a\\u001b[2J\tb\\r\nc\\u007f\\u009b\n");
  ::testing::internal::CaptureStdout();
  Print(TreeText(Format::kJson, {{"name", "a\x1b\x7f\"\n"}}));
  EXPECT_EQ(Tree::parse(::testing::internal::GetCapturedStdout())["name"], "a\x1b\x7f\"\n") << "it is still JSON";
}

TEST(Output, ColoursTakeNoColumnsAndAreOfTerminalsOnly) {
  setenv("TERM", "xterm", 1);
  EXPECT_EQ(Colored(Color::kRed, "failed"), "failed") << "standard output of a test is no terminal";
  EXPECT_EQ(Shown("\033[31mfailed\033[0m", Stream::kOut), "\\u001b[31mfailed\\u001b[0m") << "nor is what others colour";
  EXPECT_EQ(Width("\033[31mfailed\033[0m"), 6u);
  EXPECT_EQ(Width("\033[2J"), 4u) << "no colour of ours";
}

TEST(Output, ColumnsAreCharacters) {
  EXPECT_EQ(Width("a█·é"), 4u);
  EXPECT_EQ(FirstColumns("a█·é", 0), "");
  EXPECT_EQ(FirstColumns("a█·é", 3), "a█·");
  EXPECT_EQ(FirstColumns("a█·é", 4), "a█·é");
  EXPECT_EQ(FirstColumns("a█·é", 99), "a█·é");
}

}  // namespace
}  // namespace legoai::cli

#include "server/cli/output.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace legoai::cli {
namespace {

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

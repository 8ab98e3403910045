#include "server/cli/output.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "gtest/gtest.h"

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

// What `work` writes to standard error, if that is a terminal of so many columns.
template <typename Work>
std::string OnTerminal(unsigned short columns, Work work) {
  int terminal = -1, program = -1;
  winsize size = {24, columns, 0, 0};
  EXPECT_EQ(openpty(&terminal, &program, nullptr, nullptr, &size), 0);
  const int kept = dup(STDERR_FILENO);
  dup2(program, STDERR_FILENO);
  work();
  dup2(kept, STDERR_FILENO);
  close(kept);
  close(program);
  // The kernel passes it on piece by piece; after the last one there is nobody left to write (EIO).
  std::string text;
  char part[512];
  for (ssize_t got = 0; (got = read(terminal, part, sizeof(part))) > 0;) text.append(part, static_cast<size_t>(got));
  close(terminal);
  return text;
}

TEST(Progress, ALiveLineFillsTheTerminalAndNoMore) {
  const std::string bar = Bar(0.5, 30), text = "running  " + bar + "  loss 1.2345";
  auto show = [&text] {
    ProgressLine line;
    line.Show(text);
    line.Clear();
  };
  const std::string clear = "\r\033[K";
  EXPECT_EQ(OnTerminal(80, show), clear + text + clear);
  EXPECT_EQ(OnTerminal(20, show), clear + "running  " + Bar(1, 10) + clear);
}

// What `work` writes to standard error, if that is a file.
template <typename Work>
std::string InFile(Work work) {
  std::FILE* file = std::tmpfile();
  const int kept = dup(STDERR_FILENO);
  dup2(fileno(file), STDERR_FILENO);
  work();
  dup2(kept, STDERR_FILENO);
  close(kept);
  std::rewind(file);
  char text[512] = {};
  std::string all(text, std::fread(text, 1, sizeof(text), file));
  std::fclose(file);
  return all;
}

TEST(Progress, AFileHasNoLineTwice) {
  const auto show = [](absl::Duration pause) {
    return InFile([pause] {
      ProgressLine line(pause);
      for (const char* text : {"one", "one", "two", "two", "one", "one"}) line.Show(text);
    });
  };
  EXPECT_EQ(show(absl::ZeroDuration()), "one\ntwo\none\n");
  EXPECT_EQ(show(absl::Hours(1)), "one\n") << "the last is what was written last";
}

absl::Time At(double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

TEST(Pace, IsTheMeanOfTheStepsThatWereSeen) {
  Pace pace;
  EXPECT_EQ(pace.Observe(100, 0.25, At(7)), 0.25);
  EXPECT_EQ(pace.Observe(100, 0.5, At(8)), 0.5) << "no step has passed yet";
  EXPECT_DOUBLE_EQ(pace.Observe(110, 9, At(12)), 0.5);
  EXPECT_DOUBLE_EQ(pace.Observe(120, 0.01, At(17)), 0.5) << "one quick step changes little";
}

TEST(Pace, BeginsAnewWithAnotherAttempt) {
  Pace pace;
  pace.Observe(10, 1, At(0));
  EXPECT_DOUBLE_EQ(pace.Observe(20, 1, At(20)), 2);
  EXPECT_EQ(pace.Observe(15, 0.5, At(500)), 0.5);
  EXPECT_DOUBLE_EQ(pace.Observe(17, 9, At(501)), 0.5);
  pace.Forget();
  EXPECT_EQ(pace.Observe(18, 3, At(900)), 3);
}

}  // namespace
}  // namespace legoai::cli

#include "worker/agent/log_tail.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace legoai::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(LogTailTest, WholeLinesFromTheEnd) {
  const std::string path = ::testing::TempDir() + "/log_tail_test";
  const auto write = [&](const std::string& text) { std::ofstream(path, std::ios::trunc) << text; };
  EXPECT_THAT(LastLines(path + ".none", 10, 100), IsEmpty());
  write("");
  EXPECT_THAT(LastLines(path, 10, 100), IsEmpty());
  write("one\n\ntwo\nthree");
  EXPECT_THAT(LastLines(path, 10, 100), ElementsAre("one", "two", "three"));
  EXPECT_THAT(LastLines(path, 2, 100), ElementsAre("two", "three"));
  EXPECT_THAT(LastLines(path, 10, 9), ElementsAre("two", "three")) << "exactly as many bytes";
  EXPECT_THAT(LastLines(path, 10, 8), ElementsAre("three")) << "half a line is none";
  EXPECT_THAT(LastLines(path, 10, 3), IsEmpty());
}

}  // namespace
}  // namespace legoai::agent

#include "proto/toml/scan.h"

#include <gtest/gtest.h>

namespace legoai {
namespace {

TEST(FindDeepNesting, CountsTablesAndLists) {
  const auto deepest = [](const std::string& text) {
    int depth = 0;
    while (FindDeepNesting(text, depth)) ++depth;
    return depth;
  };
  EXPECT_EQ(deepest("a = 1\nb = 2.5\n"), 1) << "the point of a number counts, for one";
  EXPECT_EQ(deepest("a.b.c = 1\nd.e = 1\n"), 2);
  EXPECT_EQ(deepest("[a.b]\nc.d = 1\n[e]\n"), 3);
  EXPECT_EQ(deepest("[[a.b]]\n"), 3);
  EXPECT_EQ(deepest("a = [[1], [2, [3]]]\n"), 3);
  EXPECT_EQ(deepest("a = [\n  [1.5, 2.5],\n  [3.5],\n]\nb = 1\n"), 3);
  EXPECT_EQ(deepest("a = { b.c = { d = 1 } }\n"), 3);
  EXPECT_EQ(deepest("[a]\nb = { c = [{ d = 1 }] }\n"), 4);
}

TEST(FindDeepNesting, LeavesOutTextAndComments) {
  for (const char* text : {R"(a = "[[[...")", R"(a = '[[[...')", "a = 1 # [[[...\n", "a = \"\"\"\n[[[...\n\"\"\"\n",
                           "a = '''\n[[[...'''\n", R"(a = "\"[[[...")", R"(a = '\')", R"(a = """\"""[[[""")",
                           R"(a = """x""""" # [[[)", R"(a = '''x''''' # [[[)", R"("a.b.c.d" = 1)"})
    EXPECT_FALSE(FindDeepNesting(text, 0)) << text;
  EXPECT_TRUE(FindDeepNesting("a = '\\' # '\nb = [[1]]\n", 1)) << "no escapes in single quotes";
}

TEST(FindDeepNesting, NamesTheLine) {
  EXPECT_EQ(FindDeepNesting("a = 1\n\nb = [[[1]]]\n", 2), 3);
  EXPECT_EQ(FindDeepNesting("a = \"\"\"\n\n\"\"\"\nb = [\n[[1]]]\n", 2), 5);
}

// What is no TOML ends too.
TEST(FindDeepNesting, TakesAnyText) {
  for (const char* text : {"", "\"", "'''", "\"\"\"\\", "]]]", "}", "[", "a = [", "= = =", "\"\\", "#"}) {
    EXPECT_FALSE(FindDeepNesting(text, 100)) << text;
    FindTomlPlace(text, 1, 1);
    FindTomlPlace(text, 5, 50);
  }
}

TEST(FindTomlPlace, NamesKeyAndValue) {
  const std::string text = "a = 1\n[s.t] # x = 2\nb = [1,\n 22]\n\"é\" = 333\nc = 4";
  EXPECT_EQ(FindTomlPlace(text, 1, 6).key, "a");
  EXPECT_EQ(FindTomlPlace(text, 1, 6).value, "1");
  EXPECT_EQ(FindTomlPlace(text, 4, 4).key, "s.t.b");
  EXPECT_EQ(FindTomlPlace(text, 4, 4).value, "22");
  EXPECT_EQ(FindTomlPlace(text, 5, 10).key, "s.t.\"é\"");
  EXPECT_EQ(FindTomlPlace(text, 5, 10).value, "333");
  EXPECT_EQ(FindTomlPlace(text, 6, 6).value, "4");
}

}  // namespace
}  // namespace legoai

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/cli/command.h"

namespace legoai::cli {
namespace {

std::vector<CommandSpec> Commands() {
  CommandSpec plan;
  plan.name = "plan";
  plan.options = {{"model", "M", "a model"}, {"cluster", "C", "a cluster"}, {"rejected", "closest|all", "what to list"}};
  plan.recipe_keys = true;
  CommandSpec get;
  get.name = "get";
  get.positional = "JOB";
  CommandSpec record;
  record.name = "record";
  record.positional = "FILES...|JOB";
  CommandSpec completion;
  completion.name = "completion";
  completion.positional = "bash|zsh";
  return {plan, get, record, completion};
}

// What bash would offer where the words are these, the last of which is being written; in a folder with one file, with a `lego`
// that lists two jobs.
std::string Offered(const std::vector<std::string>& words) {
  const std::string folder = ::testing::TempDir() + "/completion";
  const std::string make = absl::StrCat("rm -rf ", folder, " && mkdir -p ", folder);
  EXPECT_EQ(std::system(make.c_str()), 0);
  std::ofstream(folder + "/script") << *CompletionScript("bash", Commands());
  std::string line = "lego() { printf 'job state\\n01AAA running\\n01BBB failed\\n'; }; export -f lego\n";
  absl::StrAppend(&line, "timeout() { shift; \"$@\"; }\nsource ./script\nmv script 01C\nCOMP_WORDS=(");
  for (const std::string& word : words) absl::StrAppend(&line, "'", word, "' ");
  absl::StrAppend(&line, ")\nCOMP_CWORD=", words.size() - 1, "\n_lego 2>/dev/null\necho \"${COMPREPLY[*]}\"\n");
  std::ofstream(folder + "/../completion.sh") << line;
  std::FILE* pipe = popen(absl::StrCat("cd ", folder, " && bash ../completion.sh").c_str(), "r");
  char text[8192] = {};
  const size_t size = std::fread(text, 1, sizeof(text) - 1, pipe);
  pclose(pipe);
  return std::string(text, size > 0 ? size - 1 : 0);  // without the end of the line
}

TEST(Completion, Commands) {
  EXPECT_EQ(Offered({"lego", ""}), "plan get record completion help");
  EXPECT_EQ(Offered({"lego", "p"}), "plan");
}

TEST(Completion, ValuesOfOptions) {
  EXPECT_EQ(Offered({"lego", "plan", "--model", "llama3-8"}), "llama3-8b");
  EXPECT_EQ(Offered({"lego", "plan", "--model", "=", "llama3-8"}), "llama3-8b");
  EXPECT_EQ(Offered({"lego", "plan", "--cluster", "h100-sxm-8"}), "h100-sxm-80:");
  EXPECT_EQ(Offered({"lego", "plan", "--rejected", ""}), "closest all");
  EXPECT_EQ(Offered({"lego", "plan", "-o", ""}), "table json yaml");
  EXPECT_EQ(Offered({"lego", "plan", "--output", "=", "j"}), "json");
}

TEST(Completion, OptionsAndKeysOfARecipe) {
  EXPECT_EQ(Offered({"lego", "plan", "--m"}), "--model --model. --metrics.");
  EXPECT_EQ(Offered({"lego", "get", "--m"}), "") << "it takes no recipe keys";
  EXPECT_EQ(Offered({"lego", "plan", "--training.st"}), "--training.steps=");
  EXPECT_EQ(Offered({"lego", "get", "--training.st"}), "");
}

TEST(Completion, Jobs) {
  EXPECT_EQ(Offered({"lego", "get", ""}), "01AAA 01BBB");
  EXPECT_EQ(Offered({"lego", "get", "01B"}), "01BBB");
  EXPECT_EQ(Offered({"lego", "plan", ""}), "01C") << "a file";
  EXPECT_EQ(Offered({"lego", "record", "01"}), "01C 01AAA 01BBB") << "either";
}

TEST(Completion, WordsOfWhichOneMustFollow) {
  EXPECT_EQ(Offered({"lego", "completion", ""}), "bash zsh");
  EXPECT_EQ(Offered({"lego", "completion", "z"}), "zsh");
  EXPECT_EQ(Offered({"lego", "completion", "--h"}), "--help");
}

// The other shells have the same words.
TEST(Completion, EveryShellHasTheWords) {
  for (const char* shell : {"zsh", "fish"}) {
    const auto script = CompletionScript(shell, Commands());
    ASSERT_TRUE(script.ok());
    for (const char* word :
         {"plan", "llama3-8b", "h100-sxm-80:", "closest all", "--training.steps=", "list 2>/dev/null", "bash zsh"}) {
      EXPECT_NE(script->find(word), std::string::npos) << word << " of " << shell;
    }
  }
  EXPECT_FALSE(CompletionScript("tcsh", Commands()).ok());
}

}  // namespace
}  // namespace legoai::cli

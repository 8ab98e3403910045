#include "server/cli/testing/lego_process.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <set>
#include <system_error>
#include <utility>

namespace legoai::cli::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kPollMicroseconds = 5000;
constexpr int kPatience = 300 * 1000000 / kPollMicroseconds;

}  // namespace

void WaitUntil(const std::string& what, const std::function<bool()>& condition) {
  for (int i = 0; i < kPatience; ++i) {
    if (condition()) return;
    usleep(kPollMicroseconds);
  }
  FAIL() << "waited in vain for: " << what;
}

void ExpectAllRejected(const Json& plan) {
  std::map<std::string, int64_t> expected = plan["pruned"].get<std::map<std::string, int64_t>>(), listed;
  expected["out_of_memory"] = plan["bounded_out"].get<int64_t>() + plan["captured_unfit"].get<int64_t>();
  expected["failed"] = plan["failed"];
  std::erase_if(expected, [](const auto& rule) { return rule.second == 0; });
  std::set<std::string> recipes;
  for (const Json& rejected : plan["rejected"]) {
    ++listed[rejected["rule"]];
    EXPECT_TRUE(recipes.insert(rejected["recipe"].dump()).second) << "twice: " << rejected;
  }
  EXPECT_EQ(listed, expected);
}

void LegoTest::SetUp() {
  const std::string mark = std::to_string(getpid()) + "-" + ::testing::UnitTest::GetInstance()->current_test_info()->name();
  folder_ = fs::path(::testing::TempDir()) / ("lego-" + mark);
  processes_.emplace(folder_, mark);
}

void LegoTest::TearDown() {
  const std::vector<Process> left = Processes();
  for (const Process& process : left) {
    ADD_FAILURE() << process.program << " was left behind, process " << process.pid;
    kill(process.pid, SIGKILL);
  }
  std::error_code busy;
  fs::remove_all(folder_, busy);
}

pid_t LegoTest::Start(std::vector<std::string> words, int64_t file_limit_bytes) const {
  words.insert(words.begin(), "server/cli/lego");
  return StartProgram(std::move(words), file_limit_bytes);
}

Result LegoTest::Wait(pid_t pid) const {
  int status = 0;
  WaitUntil("the end of lego", [&] { return waitpid(pid, &status, WNOHANG) != 0; });
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, WIFSIGNALED(status) ? WTERMSIG(status) : 0,
          ReadAll(OutputOf(pid, "stdout")), ReadAll(OutputOf(pid, "stderr"))};
}

void LegoTest::ExpectError(const Result& result, int code, const std::vector<std::string>& parts) {
  EXPECT_EQ(result.code, code) << result.err;
  EXPECT_EQ(result.out, "");
  for (const std::string& part : parts) EXPECT_NE(result.err.find(part), std::string::npos) << part << " in " << result.err;
}

std::vector<std::string> LegoTest::Train(const std::vector<std::string>& more) const {
  std::vector<std::string> words = {"train", Path("recipe.toml"), "--nproc=2", "--output=json"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

pid_t LegoTest::Trainer(int rank) const {
  for (const Process& process : Processes()) {
    if (process.program == "legoai-trainer" && process.rank == rank) return process.pid;
  }
  return 0;
}

}  // namespace legoai::cli::testing

// For tests of the command as a user meets it: `lego` and all it starts as real processes, in a folder with a tiny model, a text
// and a recipe. Each process that a test starts, and each that these start, carries a variable in its environment by which it is
// found; a test in which one is left behind fails. Not thread-safe.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/cli/testing/marked_processes.h"

namespace legoai::cli::testing {

using Json = nlohmann::json;

struct Result {
  int code = -1;   // -1: a signal ended it
  int signal = 0;  // that one
  std::string out, err;
};

// Waits until `condition` holds, and fails the test after five minutes. Conditions on what a process does ask for its end too.
void WaitUntil(const std::string& what, const std::function<bool()>& condition);

// That the JSON of `plan --rejected all` lists every recipe that its counts say was dropped, each once, by its rule.
void ExpectAllRejected(const Json& plan);

class LegoTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // Of a file in the test's folder, which holds config.json, text.txt and recipe.toml; the recipe's run directory is "run".
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  // The recipe, with more lines in [training].
  std::string Recipe(const std::string& training) const { return processes_->Recipe(training); }

  // `file_limit_bytes` > 0: no file may grow beyond, as if the disk were full there.
  pid_t Start(std::vector<std::string> words, int64_t file_limit_bytes = 0) const;
  // Another program, `words[0]`, in the same way.
  pid_t StartProgram(std::vector<std::string> words, int64_t file_limit_bytes = 0) const {
    return processes_->Start(std::move(words), file_limit_bytes);
  }
  Result Wait(pid_t pid) const;
  Result Run(std::vector<std::string> words) const { return Wait(Start(std::move(words))); }

  // It failed with `code`, and said all `parts` on standard error and nothing on standard output.
  static void ExpectError(const Result& result, int code, const std::vector<std::string>& parts);
  void ExpectError(const std::vector<std::string>& words, int code, const std::vector<std::string>& parts) const {
    ExpectError(Run(words), code, parts);
  }
  // `lego train` of recipe.toml on two ranks.
  std::vector<std::string> Train(const std::vector<std::string>& more) const;

  // All that were started and are there.
  std::vector<Process> Processes() const { return processes_->All(); }
  // The trainer of `rank`; 0: it is not there.
  pid_t Trainer(int rank) const;

  // Where a process that Start() gave writes: "stdout", "stderr".
  std::string OutputOf(pid_t pid, const std::string& stream) const { return processes_->OutputOf(pid, stream); }

  std::filesystem::path folder_;

 private:
  std::optional<MarkedProcesses> processes_;
};

}  // namespace legoai::cli::testing

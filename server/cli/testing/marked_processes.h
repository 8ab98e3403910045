// Real processes of a test or a scenario, in a folder with a tiny model, a text and a recipe. Each process that is started here,
// and each that these start, carries a variable in its environment by which it is found. One object at a time, since the variable
// is this process's own. Not thread-safe.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace legoai::cli::testing {

// A process that is there.
struct Process {
  pid_t pid = 0;
  std::string program;  // its file's name: "lego", "lego-sim", "legoai-trainer"
  int rank = -1;        // of a trainer
};

std::string ReadAll(const std::filesystem::path& path);
void Write(const std::filesystem::path& path, const std::string& text);

// Whether a process that Start() gave has ended; it is left to be waited for.
bool Ended(pid_t pid);

class MarkedProcesses {
 public:
  // Makes the folder with config.json, text.txt and recipe.toml, whose run directory is "run". Home and caches of what is started
  // lie in it too.
  MarkedProcesses(std::filesystem::path folder, std::string mark);

  const std::filesystem::path& folder() const { return folder_; }
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  // The recipe, with more lines in [training].
  std::string Recipe(const std::string& training) const;

  // Program and arguments. `file_limit_bytes` > 0: no file may grow beyond, as if the disk were full there.
  pid_t Start(std::vector<std::string> words, int64_t file_limit_bytes = 0) const;
  // Where it writes: "stdout", "stderr".
  std::string OutputOf(pid_t pid, const std::string& stream) const { return Path(stream + "." + std::to_string(pid)); }

  // All that were started and are there.
  std::vector<Process> All() const;

 private:
  const std::filesystem::path folder_;
  const std::string mark_;
};

}  // namespace legoai::cli::testing

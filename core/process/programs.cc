#include "core/process/programs.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"

namespace legoai::launch {

namespace fs = std::filesystem;

absl::StatusOr<std::string> FindProgram(const std::string& name, const std::string& folder, const char* variable) {
  const std::string remedy = absl::StrCat("build it with `bazel build //", folder, ":", name, "`, or name it in ", variable);
  if (const char* path = std::getenv(variable); path != nullptr && *path != '\0') {
    if (access(path, X_OK) == 0) return std::string(path);
    return absl::NotFoundError(absl::StrCat(variable, " = ", path, " is not there or cannot be run: ", remedy));
  }
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  const std::vector<fs::path> places = {self.parent_path() / name, self.parent_path() / "../.." / folder / name};
  for (const fs::path& place : places) {
    if (access(place.c_str(), X_OK) == 0) return fs::weakly_canonical(place, error).string();
  }
  return absl::NotFoundError(absl::StrCat("the program ", name, " is not beside ", self.filename().string(), ": ", remedy));
}

absl::StatusOr<std::string> FindTrainer() { return FindProgram("legoai-trainer", "worker/train", "LEGOAI_TRAINER"); }

}  // namespace legoai::launch

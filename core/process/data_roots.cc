#include "core/process/data_roots.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/data/dataset_facts.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::launch {
namespace {

namespace fs = std::filesystem;

// As far as it exists with links followed, the rest as written; empty where that cannot be found out.
fs::path Followed(const fs::path& path) {
  std::error_code error;
  const fs::path followed = fs::weakly_canonical(fs::absolute(path, error), error);
  return error ? fs::path() : followed;
}

absl::Status Refuse(const char* field, const std::string& path, const std::vector<std::string>& roots) {
  return FieldError(field, path,
                    absl::StrCat("lies, with links followed, in no folder from which jobs of this worker may read (",
                                 roots.empty() ? "there is none" : absl::StrJoin(roots, ", "),
                                 "): move it there, or have the agent started with --data_roots=FOLDER,… that hold it"),
                    absl::StatusCode::kPermissionDenied);
}

absl::Status CheckPath(const char* field, const std::string& path, const std::vector<std::string>& roots) {
  return LiesInAny(path, roots) ? absl::OkStatus() : Refuse(field, path, roots);
}

// Weights are a file, or a folder whose files are opened by name.
absl::Status CheckWeights(const std::string& path, const std::vector<std::string>& roots) {
  constexpr char kField[] = "model.initial_load_path";
  RETURN_IF_ERROR(CheckPath(kField, path, roots));
  std::error_code error;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    RETURN_IF_ERROR(CheckPath(kField, entry->path().string(), roots));
  }
  return absl::OkStatus();
}

}  // namespace

bool LiesInAny(const std::string& path, const std::vector<std::string>& roots) {
  const fs::path followed = Followed(path);
  return !followed.empty() && std::any_of(roots.begin(), roots.end(), [&](const std::string& root) {
    const fs::path folder = Followed(root);
    if (folder.empty()) return false;
    const fs::path relative = followed.lexically_relative(folder);
    return !relative.empty() && *relative.begin() != "..";
  });
}

std::vector<std::string> DefaultDataRoots() {
  std::error_code error;
  std::vector<std::string> roots;
  const fs::path working = fs::current_path(error);
  if (!error && working != working.root_path()) roots.push_back(working.string());
  const fs::path examples = Followed(fs::read_symlink("/proc/self/exe", error).parent_path() / "../examples");
  if (fs::is_directory(examples, error)) roots.push_back(examples.string());
  return roots;
}

absl::Status CheckDataRoots(const v1::Recipe& recipe, const std::vector<std::string>& roots) {
  ASSIGN_OR_RETURN(const auto text, data::DatasetPath(recipe.training().dataset_path()));
  absl::Status status = CheckPath("training.dataset_path", text, roots);
  const std::string& tokenizer = recipe.model().tokenizer_path();
  if (status.ok() && tokenizer != "byte") status = CheckPath("model.tokenizer_path", tokenizer, roots);
  const std::string& weights = recipe.model().initial_load_path();
  if (status.ok() && !weights.empty()) status = CheckWeights(weights, roots);
  return status;
}

}  // namespace legoai::launch

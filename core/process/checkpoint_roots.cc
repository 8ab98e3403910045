#include "core/process/checkpoint_roots.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/checkpoint/storage.h"
#include "core/objectstore/s3_url.h"
#include "core/process/data_roots.h"
#include "core/process/run_directory.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::launch {
namespace {

namespace fs = std::filesystem;

constexpr char kFlag[] = "--checkpoint_roots";

absl::StatusOr<std::string> ParseUrl(const std::string& root) {
  const std::string plain = absl::EndsWith(root, "/") ? root.substr(0, root.size() - 1) : root;
  // Of a whole bucket, too, which by itself is no place of a checkpoint.
  RETURN_IF_ERROR(objectstore::ParseS3Url(kFlag, plain + "/run").status());
  return plain;
}

absl::StatusOr<std::string> ParseFolder(const std::string& root) {
  std::error_code error;
  const std::string folder = root.empty() ? "" : fs::absolute(root, error).lexically_normal().string();
  if (folder.empty() || (fs::exists(folder, error) && !fs::is_directory(folder, error)))
    return FieldError(kFlag, root, "must be a folder, s3://BUCKET or s3://BUCKET/PREFIX");
  return folder;
}

// The parts of a URL are no ".." and are not empty (s3_url.h): what it begins with holds it.
bool IsBelow(const std::string& url, const std::vector<std::string>& roots) {
  return std::any_of(roots.begin(), roots.end(),
                     [&](const std::string& root) { return url == root || absl::StartsWith(url, root + "/"); });
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ParseCheckpointRoots(const std::vector<std::string>& roots) {
  std::vector<std::string> parsed;
  for (const std::string& root : roots) {
    ASSIGN_OR_RETURN(parsed.emplace_back(), checkpoint::IsInObjectStore(root) ? ParseUrl(root) : ParseFolder(root));
  }
  return parsed;
}

absl::Status CheckCheckpointRoots(const v1::Recipe& recipe, const std::string& run_directory,
                                  const std::vector<std::string>& roots) {
  if (roots.empty() || !recipe.checkpoint().enable_checkpoint()) return absl::OkStatus();
  const std::string place = CheckpointsOf(recipe, run_directory);
  const bool in_store = checkpoint::IsInObjectStore(place);
  std::vector<std::string> alike = roots;
  std::erase_if(alike, [&](const std::string& root) { return checkpoint::IsInObjectStore(root) != in_store; });
  if (in_store ? IsBelow(place, alike) : LiesInAny(place, alike)) return absl::OkStatus();
  return FieldError(recipe.checkpoint().folder().empty() ? "job.dump_folder" : "checkpoint.folder", place,
                    absl::StrCat("lies in no place where jobs of this worker may keep checkpoints (", absl::StrJoin(roots, ", "),
                                 "): name one of these as checkpoint.folder, or have the agent started with a ", kFlag,
                                 "=PLACE,… that holds it"),
                    absl::StatusCode::kPermissionDenied);
}

}  // namespace legoai::launch

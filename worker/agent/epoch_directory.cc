#include "worker/agent/epoch_directory.h"

#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/checkpoint/directory.h"
#include "core/checkpoint/files.h"
#include "core/checkpoint/storage.h"
#include "core/process/run_directory.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::agent {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "epoch-";

// The E of "epoch-E", written as we write it.
std::optional<int64_t> EpochOf(const std::string& name) {
  int64_t epoch = 0;
  if (name.rfind(kPrefix, 0) != 0 || !absl::SimpleAtoi(name.substr(kPrefix.size()), &epoch)) return std::nullopt;
  return name == absl::StrCat(std::string(kPrefix), epoch) ? std::optional(epoch) : std::nullopt;
}

absl::Status CannotMake(const std::string& path, const std::error_code& error) {
  const absl::StatusCode code = checkpoint::FileError(path, "", error.value()).code();
  return FieldError("--runs", path, absl::StrCat("cannot be made: ", error.message()),
                    code == absl::StatusCode::kResourceExhausted ? code : absl::StatusCode::kInvalidArgument);
}

}  // namespace

absl::StatusOr<std::string> EpochDirectory(const std::string& runs, const v1::LeaseId& lease) {
  return launch::EpochPath(runs, lease.job(), lease.epoch());
}

absl::Status MakeEpochDirectory(const std::string& directory) {
  std::error_code error;
  for (const std::string& folder : {directory, fs::path(directory).parent_path().string() + "/tokens"}) {
    fs::create_directories(folder, error);
    if (error) return CannotMake(folder, error);
  }
  const std::string link = launch::TokensPath(directory);
  if (fs::exists(fs::symlink_status(link, error))) return absl::OkStatus();
  fs::create_directory_symlink("../tokens", link, error);
  // Workers that share the folder make it at the same time.
  return error && error != std::errc::file_exists ? CannotMake(link, error) : absl::OkStatus();
}

absl::Status RemoveEarlierCheckpoints(const std::string& runs, const v1::Recipe& recipe, const v1::LeaseId& lease) {
  ASSIGN_OR_RETURN(const std::string own, launch::EpochCheckpoints(runs, recipe, lease.job(), lease.epoch()));
  const std::string folder = own.substr(0, own.rfind("/epoch-"));
  ASSIGN_OR_RETURN(const auto storage, checkpoint::StorageOf(folder));
  ASSIGN_OR_RETURN(const auto names, storage->Names(folder));
  absl::Status removed;
  for (const std::string& name : names) {
    const std::optional<int64_t> epoch = EpochOf(name);
    if (!epoch || *epoch >= lease.epoch()) continue;
    const auto root = launch::EpochCheckpoints(runs, recipe, lease.job(), *epoch);
    removed.Update(root.ok() ? checkpoint::RemoveAllButPutAside(*root) : root.status());
  }
  return removed;
}

}  // namespace legoai::agent

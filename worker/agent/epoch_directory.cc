#include "worker/agent/epoch_directory.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "worker/checkpoint/damage.h"
#include "worker/checkpoint/files.h"
#include "worker/launch/run_directory.h"

namespace legoai::agent {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "epoch-";

// "01J..." of "projects/default/jobs/01J...".
std::string IdOf(const std::string& job) { return job.substr(job.rfind('/') + 1); }

bool IsFolderName(const std::string& id) {
  return !id.empty() && id.size() <= 128 &&
         std::all_of(id.begin(), id.end(), [](unsigned char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_'; });
}

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
  const std::string id = IdOf(lease.job());
  if (!IsFolderName(id)) return FieldError("lease.job", lease.job(), "its last part must be letters, digits, - and _");
  if (lease.epoch() < 1) return FieldError("lease.epoch", absl::StrCat(lease.epoch()), "must be at least 1");
  return absl::StrCat(runs, "/", id, "/", std::string(kPrefix), lease.epoch());
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
  return error ? CannotMake(link, error) : absl::OkStatus();
}

absl::Status RemoveEarlierCheckpoints(const std::string& runs, const v1::LeaseId& lease) {
  const absl::StatusOr<std::string> own = EpochDirectory(runs, lease);
  if (!own.ok()) return own.status();
  const fs::path folder = fs::path(*own).parent_path();
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  if (error) return checkpoint::FileError(folder.string(), "cannot read", error.value());
  absl::Status removed;
  for (const fs::directory_entry& entry : entries) {
    const std::optional<int64_t> epoch = EpochOf(entry.path().filename().string());
    if (epoch && *epoch < lease.epoch())
      removed.Update(checkpoint::RemoveAllButPutAside(launch::CheckpointsPath(entry.path().string())));
  }
  return removed;
}

}  // namespace legoai::agent

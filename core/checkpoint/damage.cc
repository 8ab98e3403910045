#include "core/checkpoint/damage.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/checkpoint/files.h"
#include "core/checkpoint/manifest.h"
#include "proto/status.h"
#include "proto/utf8.h"

namespace legoai::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr char kTypeUrl[] = "type.googleapis.com/legoai.v1.CheckpointDamage";
constexpr char kDamaged[] = ".damaged";

// "step-8.damaged", "step-8.damaged-2".
bool IsPutAside(const std::string& name) {
  const size_t end = name.find(kDamaged);
  int64_t step = 0;
  return name.rfind("step-", 0) == 0 && end != std::string::npos && absl::SimpleAtoi(name.substr(5, end - 5), &step);
}

absl::StatusOr<std::vector<std::string>> Names(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  if (error == std::errc::no_such_file_or_directory) return names;
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) names.push_back(entry->path().filename().string());
  if (error) return ReadError(folder, "cannot read", error.value());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

absl::Status WithDamage(absl::Status status, const v1::CheckpointDamage& damage) {
  status.SetPayload(kTypeUrl, absl::Cord(damage.SerializeAsString()));
  return status;
}

absl::Status NoteDamage(const absl::Status& status, const std::string& root, int64_t step) {
  if (!absl::IsDataLoss(status)) return status;
  v1::CheckpointDamage damage;
  damage.set_step(step);
  damage.set_directory(root);
  damage.set_detail(ToUtf8(std::string(status.message())));
  return WithDamage(status, damage);
}

std::optional<v1::CheckpointDamage> GetDamage(const absl::Status& status) {
  const auto payload = status.GetPayload(kTypeUrl);
  v1::CheckpointDamage damage;
  if (!payload || !damage.ParseFromString(std::string(*payload))) return std::nullopt;
  return damage;
}

std::string DamageText(const v1::CheckpointDamage& damage) {
  return absl::StrCat("the checkpoint of step ", damage.step(), " is damaged (", damage.detail(), ")");
}

absl::StatusOr<std::string> PutAside(const v1::CheckpointDamage& damage) {
  const std::string folder = StepDirectory(damage.directory(), damage.step());
  std::string to = folder + kDamaged;
  std::error_code error;
  for (int next = 2; fs::exists(fs::symlink_status(to, error)); ++next) to = absl::StrCat(folder, kDamaged, "-", next);
  const absl::Status renamed = RenameFile(folder, to);
  if (absl::IsNotFound(renamed)) return std::string();
  if (!renamed.ok()) return renamed;
  return to;
}

absl::StatusOr<bool> TakeBack(const std::string& root, int64_t step) {
  const std::string folder = StepDirectory(root, step);
  std::error_code error;
  if (fs::exists(fs::symlink_status(folder, error))) return false;
  // Names are given in this order, and none is given again while it is there.
  std::string latest;
  for (int next = 1; next == 1 || !latest.empty(); ++next) {
    const std::string name = next == 1 ? folder + kDamaged : absl::StrCat(folder, kDamaged, "-", next);
    if (!fs::is_directory(name, error)) break;
    latest = name;
  }
  if (latest.empty()) return false;
  RETURN_IF_ERROR(RenameFile(latest, folder));
  return true;
}

absl::StatusOr<std::vector<std::string>> ListPutAside(const std::string& root) {
  absl::StatusOr<std::vector<std::string>> names = Names(root);
  if (names.ok()) std::erase_if(*names, [](const std::string& name) { return !IsPutAside(name); });
  return names;
}

absl::Status RemoveAllButPutAside(const std::string& root) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, Names(root));
  absl::Status removed;
  bool empty = true;
  for (const std::string& name : names) {
    if (IsPutAside(name)) {
      empty = false;
    } else {
      removed.Update(RemoveAll(absl::StrCat(root, "/", name)));
    }
  }
  if (empty && removed.ok()) removed = RemoveAll(root);
  return removed;
}

}  // namespace legoai::checkpoint

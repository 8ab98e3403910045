#include "core/checkpoint/directory.h"

#include <algorithm>
#include <functional>
#include <set>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/storage.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "proto/text.h"

namespace legoai::checkpoint {
namespace {

// The N of "step-N", written as StepDirectory() writes it.
std::optional<int64_t> StepOf(const std::string& name) {
  int64_t step = 0;
  if (!absl::StartsWith(name, "step-") || !absl::SimpleAtoi(name.substr(5), &step)) return std::nullopt;
  return name == absl::StrCat("step-", step) ? std::optional(step) : std::nullopt;
}

// Steps that are wanted, ascending. The newest is asked for first: steps are committed in their order, so that of those before
// one that was seen as committed none is committed later.
absl::StatusOr<std::vector<int64_t>> ListSteps(const std::string& root,
                                               const std::function<absl::StatusOr<bool>(int64_t step)>& wanted) {
  ASSIGN_OR_RETURN(const auto storage, StorageOf(root));
  ASSIGN_OR_RETURN(const auto names, storage->Names(root));
  std::set<int64_t, std::greater<>> all;
  for (const std::string& name : names) {
    if (const std::optional<int64_t> step = StepOf(name)) all.insert(*step);
  }
  std::vector<int64_t> steps;
  for (const int64_t step : all) {
    ASSIGN_OR_RETURN(const bool is, wanted(step));
    if (is) steps.push_back(step);
  }
  std::reverse(steps.begin(), steps.end());
  return steps;
}

constexpr char kTypeUrl[] = "type.googleapis.com/legoai.v1.CheckpointDamage";
constexpr char kDamaged[] = ".damaged", kBefore[] = "before-attempt-";

// "step-8.damaged", "step-8.damaged-2".
bool IsPutAside(const std::string& name) {
  const size_t end = name.find(kDamaged);
  int64_t step = 0;
  return name.rfind("step-", 0) == 0 && end != std::string::npos && absl::SimpleAtoi(name.substr(5, end - 5), &step);
}

// What a run has below its root. In an object store that is a prefix, below which others may have theirs.
bool IsOfRun(const std::string& name) { return StepOf(name) || IsPutAside(name) || absl::StartsWith(name, kBefore); }

// "step-8.damaged", "step-8.damaged-2", ...
std::string NameOf(const std::string& first, int next) { return next == 1 ? first : absl::StrCat(first, "-", next); }

}  // namespace

absl::StatusOr<std::string> FreeFolderName(const std::string& first) {
  ASSIGN_OR_RETURN(const auto storage, StorageOf(first));
  for (int next = 1;; ++next) {
    const std::string name = NameOf(first, next);
    ASSIGN_OR_RETURN(const bool taken, storage->HasFolder(name));
    if (!taken) return name;
  }
}

absl::StatusOr<int64_t> FreeBytesOnDisk(const std::string& path) {
  ASSIGN_OR_RETURN(const auto storage, StorageOf(path));
  return storage->FreeBytes(path);
}

absl::Status CheckFreeSpace(const std::string& what, const std::string& path, int64_t bytes, const FreeBytes& free_bytes) {
  ASSIGN_OR_RETURN(int64_t available, free_bytes(path));
  if (bytes <= available) return absl::OkStatus();
  return FieldError("job.dump_folder", path,
                    absl::StrFormat("%s needs %d bytes and %d are free; free some space, choose another disk, or lower "
                                    "checkpoint.keep_latest_k",
                                    what, bytes, available),
                    absl::StatusCode::kResourceExhausted);
}

absl::Status BeginCheckpoint(const std::string& root, int64_t step, int64_t bytes, const FreeBytes& free_bytes,
                             const BytesDone& done) {
  const std::string directory = StepDirectory(root, step);
  ASSIGN_OR_RETURN(const bool committed, IsCommitted(root, step));
  if (committed) return FieldError(directory, "", "is already saved", absl::StatusCode::kAlreadyExists);
  ASSIGN_OR_RETURN(const auto storage, StorageOf(root));
  RETURN_IF_ERROR(storage->Remove(directory, done));
  RETURN_IF_ERROR(storage->MakeFolders(root));
  RETURN_IF_ERROR(CheckFreeSpace("a checkpoint", root, bytes, free_bytes));
  return storage->MakeFolders(directory);
}

absl::Status AbandonCheckpoint(const std::string& root, int64_t step, const BytesDone& done) {
  const std::string directory = StepDirectory(root, step);
  ASSIGN_OR_RETURN(const bool committed, IsCommitted(root, step));
  if (committed) return FieldError(directory, "", "is committed", absl::StatusCode::kFailedPrecondition);
  ASSIGN_OR_RETURN(const auto storage, StorageOf(root));
  RETURN_IF_ERROR(storage->Remove(directory + "/manifest.pb.tmp", nullptr));
  return storage->Remove(directory, done);
}

absl::StatusOr<std::vector<int64_t>> ListCheckpoints(const std::string& root) {
  return ListSteps(root, [&](int64_t step) { return IsCommitted(root, step); });
}

absl::Status CommitPreparedUpTo(const std::string& root, int64_t last) {
  const auto is_prepared = [&](int64_t step) { return step <= last ? LookPrepared(root, step) : false; };
  ASSIGN_OR_RETURN(const auto steps, ListSteps(root, is_prepared));
  absl::Status committed;
  for (int64_t step : steps) committed.Update(CommitManifest(root, step));
  return committed;
}

absl::Status RemoveUncommitted(const std::string& root) {
  const auto is_not = [&](int64_t step) -> absl::StatusOr<bool> {
    ASSIGN_OR_RETURN(const bool committed, IsCommitted(root, step));
    return !committed;
  };
  ASSIGN_OR_RETURN(const auto steps, ListSteps(root, is_not));
  absl::Status removed;
  for (int64_t step : steps) removed.Update(AbandonCheckpoint(root, step));
  ASSIGN_OR_RETURN(const auto storage, StorageOf(root));
  ASSIGN_OR_RETURN(const auto names, storage->Names(root));
  for (const std::string& name : names) {
    if (IsOfRun(name)) removed.Update(storage->EndUploads(absl::StrCat(root, "/", name), nullptr));
  }
  return removed;
}

absl::Status KeepLatest(const std::string& root, int64_t k, const BytesDone& done) {
  ASSIGN_OR_RETURN(std::vector<int64_t> steps, ListCheckpoints(root));
  if (k <= 0 || steps.size() <= static_cast<size_t>(k)) return absl::OkStatus();
  steps.resize(steps.size() - static_cast<size_t>(k));
  ASSIGN_OR_RETURN(const auto storage, StorageOf(root));
  absl::Status removed;
  for (int64_t step : steps) {
    absl::Status status = UndoCommit(root, step);
    if (status.ok()) status = storage->Remove(StepDirectory(root, step), done);
    removed.Update(status);
  }
  return removed;
}

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

absl::StatusOr<std::string> PutAside(const v1::CheckpointDamage& damage, const Cancel& cancel) {
  const std::string folder = StepDirectory(damage.directory(), damage.step());
  ASSIGN_OR_RETURN(const auto storage, StorageOf(folder));
  ASSIGN_OR_RETURN(const std::string to, FreeFolderName(folder + kDamaged));
  const absl::Status moved = storage->MoveFolder(folder, to, cancel);
  if (absl::IsNotFound(moved)) return std::string();
  if (!moved.ok()) return moved;
  return to;
}

absl::StatusOr<std::string> PutAllAside(const std::string& root, int64_t attempt) {
  const bool below = IsInObjectStore(root);
  ASSIGN_OR_RETURN(const auto storage, StorageOf(root));
  ASSIGN_OR_RETURN(auto names, storage->Names(root));
  if (below) std::erase_if(names, [](const std::string& name) { return !IsOfRun(name) || absl::StartsWith(name, kBefore); });
  if (names.empty()) return std::string();
  ASSIGN_OR_RETURN(const std::string to, FreeFolderName(absl::StrCat(root, below ? "/" : ".", kBefore, attempt)));
  if (!below) {
    RETURN_IF_ERROR(storage->MoveFolder(root, to, nullptr));
    return to;
  }
  bool any = false;
  for (const std::string& name : names) {
    const absl::Status moved = storage->MoveFolder(absl::StrCat(root, "/", name), absl::StrCat(to, "/", name), nullptr);
    if (absl::IsNotFound(moved)) continue;  // no folder, or one of uploads that were cut short
    if (!moved.ok()) return moved;
    any = true;
  }
  return any ? to : std::string();
}

absl::StatusOr<bool> TakeBack(const std::string& root, int64_t step) {
  const std::string folder = StepDirectory(root, step);
  ASSIGN_OR_RETURN(const auto storage, StorageOf(root));
  ASSIGN_OR_RETURN(const bool committed, IsCommitted(root, step));
  ASSIGN_OR_RETURN(const bool prepared, LookPrepared(root, step));
  if (committed || prepared) return false;
  // Names are given in this order, and none is given again while it is there.
  ASSIGN_OR_RETURN(const std::string free, FreeFolderName(folder + kDamaged));
  std::string latest;
  for (int next = 1; NameOf(folder + kDamaged, next) != free; ++next) latest = NameOf(folder + kDamaged, next);
  if (latest.empty()) return false;
  // A save that was interrupted, or this where a move takes its time and was cut short.
  RETURN_IF_ERROR(storage->Remove(folder, nullptr));
  RETURN_IF_ERROR(storage->MoveFolder(latest, folder, nullptr));
  return true;
}

absl::StatusOr<std::vector<std::string>> ListPutAside(const std::string& root) {
  ASSIGN_OR_RETURN(const auto storage, StorageOf(root));
  absl::StatusOr<std::vector<std::string>> names = storage->Names(root);
  if (names.ok()) std::erase_if(*names, [](const std::string& name) { return !IsPutAside(name); });
  return names;
}

absl::Status RemoveAllButPutAside(const std::string& root) {
  ASSIGN_OR_RETURN(const auto storage, StorageOf(root));
  ASSIGN_OR_RETURN(const std::vector<std::string> names, storage->Names(root));
  absl::Status removed;
  bool empty = true;
  for (const std::string& name : names) {
    if (IsPutAside(name)) {
      empty = false;
    } else {
      removed.Update(storage->Remove(absl::StrCat(root, "/", name), nullptr));
    }
  }
  if (empty && removed.ok()) removed = storage->Remove(root, nullptr);
  return removed;
}

}  // namespace legoai::checkpoint

// The checkpoints of a run: beginning and giving up a save, finding the committed ones, keeping the latest, and what becomes of
// those that are damaged.
//
// A directory that was never committed is what an interrupted save left: never found, and cleared away when the same step is
// saved again, or by RemoveUncommitted when a run begins. One that was put aside as damaged is left alone by all of these.
// Thread-safety: functions of the file system; one process at a time changes a run's checkpoints.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/files.h"
#include "proto/legoai/v1/checkpoint.pb.h"

namespace legoai::checkpoint {

// Bytes that this user may still write where the path is.
using FreeBytes = std::function<absl::StatusOr<int64_t>(const std::string& path)>;
absl::StatusOr<int64_t> FreeBytesOnDisk(const std::string& path);

// Error (field job.dump_folder, ResourceExhausted) unless `bytes` fit; `what` needs them ("a checkpoint").
absl::Status CheckFreeSpace(const std::string& what, const std::string& path, int64_t bytes,
                            const FreeBytes& free_bytes = FreeBytesOnDisk);

// Makes the empty directory of a step below `root` (made if missing) after making sure that `bytes`, the size of the whole
// checkpoint, fit. AlreadyExists if the step is committed. `done` is called as RemoveAll (files.h) does, here and below.
absl::Status BeginCheckpoint(const std::string& root, int64_t step, int64_t bytes, const FreeBytes& free_bytes = FreeBytesOnDisk,
                             const BytesDone& done = nullptr);

// Removes what was written of a step that is not committed: the save failed, or was denied. FailedPrecondition if it is
// committed. A step that is being removed stops being prepared first.
absl::Status AbandonCheckpoint(const std::string& root, int64_t step, const BytesDone& done = nullptr);

// Committed steps, ascending. None if `root` does not exist. An error where of one step the file system does not say whether it
// is committed.
absl::StatusOr<std::vector<int64_t>> ListCheckpoints(const std::string& root);

// Commits every step up to `last` that is prepared, in order. For a directory that nobody writes any more, and whose step `last`
// was committed by whoever decides: in order of steps, so these were too, and the process that should have noted it is gone. The
// error is the first; others are committed all the same.
absl::Status CommitPreparedUpTo(const std::string& root, int64_t last);

// Removes what interrupted saves left, as much of it as can be removed; the error is the first. While nobody saves.
absl::Status RemoveUncommitted(const std::string& root);

// Removes all but the `k` latest committed steps; 0 keeps all. A step that is being removed stops being committed first.
// One that cannot be removed does not keep the others; the error is the first.
absl::Status KeepLatest(const std::string& root, int64_t k, const BytesDone& done = nullptr);

// Damage is what is wrong with the copy on the disk of a committed checkpoint: a checksum that does not match, a file that is cut
// short or gone, a disk that reports that it cannot read it (EIO). What may be otherwise the next time (no permission, no memory,
// too many open files), and a checkpoint of another build, model or recipe, is not. A run never resumes from a damaged checkpoint
// unless somebody asks for it by its step (`lego retry --from STEP`), and its folder is kept: it is called step-N.damaged from
// then on (-2, -3 … where that is taken), which nothing here lists or removes.

// `status` of reading the committed step of `root`, which carries the damage where it is one (DataLoss).
absl::Status NoteDamage(const absl::Status& status, const std::string& root, int64_t step);

// `status` with this damage.
absl::Status WithDamage(absl::Status status, const v1::CheckpointDamage& damage);

// The damage that a status carries; nothing if it carries none.
std::optional<v1::CheckpointDamage> GetDamage(const absl::Status& status);

// "the checkpoint of step 8 is damaged (…)"
std::string DamageText(const v1::CheckpointDamage& damage);

// Gives the folder of the damaged step its other name; says which. Empty where no such folder is there.
absl::StatusOr<std::string> PutAside(const v1::CheckpointDamage& damage);

// Gives the folder of the step that was put aside last its place again: what was damaged may have been the way to it. Whoever
// goes on from it verifies it. False, and nothing is done, where the step has a folder, or none of it was put aside.
absl::StatusOr<bool> TakeBack(const std::string& root, int64_t step);

// Names of the folders below `root` that were put aside, sorted; none where `root` does not exist.
absl::StatusOr<std::vector<std::string>> ListPutAside(const std::string& root);

// Removes all that is in `root` but what was put aside, and `root` itself where nothing was. OK where it does not exist.
absl::Status RemoveAllButPutAside(const std::string& root);

}  // namespace legoai::checkpoint

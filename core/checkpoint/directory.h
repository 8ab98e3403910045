// The checkpoints of a run: beginning and abandoning a save, finding the committed ones, keeping the latest, and handling damaged
// ones.
//
// A directory that was never committed is left over from an interrupted save. It is never found, and is removed when the same
// step is saved again, or by RemoveUncommitted when a run begins. A directory that was put aside as damaged is not touched by any
// of these. Thread-safety: functions of the file system; one process at a time changes a run's checkpoints.
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

// Bytes that this user may still write on the file system of `path`; an object store has no bound.
using FreeBytes = std::function<absl::StatusOr<int64_t>(const std::string& path)>;
absl::StatusOr<int64_t> FreeBytesOnDisk(const std::string& path);

// Error (field job.dump_folder, ResourceExhausted) unless `bytes` fit; `what` needs them ("a checkpoint").
absl::Status CheckFreeSpace(const std::string& what, const std::string& path, int64_t bytes,
                            const FreeBytes& free_bytes = FreeBytesOnDisk);

// Creates the empty directory of a step below `root` (created if missing) after checking that `bytes`, the size of the whole
// checkpoint, fit. AlreadyExists if the step is committed. `done` is called as RemoveAll (files.h) does, here and below.
absl::Status BeginCheckpoint(const std::string& root, int64_t step, int64_t bytes, const FreeBytes& free_bytes = FreeBytesOnDisk,
                             const BytesDone& done = nullptr);

// Removes a step that is not committed because its save failed or was denied. FailedPrecondition if it is committed. The step
// stops being prepared before its files are removed.
absl::Status AbandonCheckpoint(const std::string& root, int64_t step, const BytesDone& done = nullptr);

// Committed steps, ascending. None if `root` does not exist. An error if the file system cannot tell whether some step is
// committed.
absl::StatusOr<std::vector<int64_t>> ListCheckpoints(const std::string& root);

// Commits every prepared step up to `last`, in order. For a directory that nobody writes any more and whose step `last` was
// approved: steps are approved in order, so the earlier ones were approved too, and the process that should have committed them
// is gone. Returns the first error; the other steps are committed all the same.
absl::Status CommitPreparedUpTo(const std::string& root, int64_t last);

// Removes what interrupted saves left, uploads among it, as far as possible; returns the first error. Call it only while
// nobody saves.
absl::Status RemoveUncommitted(const std::string& root);

// Removes all but the `k` latest committed steps; 0 keeps all. A step stops being committed before its files are removed. A step
// that cannot be removed does not stop the others from being removed; returns the first error.
absl::Status KeepLatest(const std::string& root, int64_t k, const BytesDone& done = nullptr);

// Damage is a defect of a committed checkpoint's copy on disk: a checksum that does not match, a file that is truncated or
// missing, a read error (EIO). Errors that may not recur (no permission, no memory, too many open files) and a checkpoint of
// another build, model or recipe are not damage. A run never resumes from a damaged checkpoint unless the user asks for that step
// (`lego retry --from STEP`). Its folder is kept under the name step-N.damaged (-2, -3 … if that is taken), which nothing here
// lists or removes.

// `status` comes from reading a committed step of `root`. If it is DataLoss, the result carries the damage.
absl::Status NoteDamage(const absl::Status& status, const std::string& root, int64_t step);

// `status` with this damage.
absl::Status WithDamage(absl::Status status, const v1::CheckpointDamage& damage);

// The damage that a status carries; nothing if it carries none.
std::optional<v1::CheckpointDamage> GetDamage(const absl::Status& status);

// "the checkpoint of step 8 is damaged (…)"
std::string DamageText(const v1::CheckpointDamage& damage);

// Renames the folder of the damaged step and returns its new path; empty if there is no such folder. `cancel` is polled where
// that copies (MoveFolder of storage.h): Cancelled leaves it in its place.
absl::StatusOr<std::string> PutAside(const v1::CheckpointDamage& damage, const Cancel& cancel = nullptr);

// `first`, or the first of `first`-2, `first`-3 ... that is no folder yet.
absl::StatusOr<std::string> FreeFolderName(const std::string& first);

// Puts everything in `root` aside for an attempt that begins anew, as ROOT.before-attempt-N. In an object store, whose keys may
// be for what begins with ROOT/ alone, it is ROOT/before-attempt-N, and what others have below ROOT/ stays. If the name is taken,
// it is the same with -2, -3 ... at its end. Returns it; empty if there is nothing.
absl::StatusOr<std::string> PutAllAside(const std::string& root, int64_t attempt);

// Moves the folder of this step that was put aside last back to its place: the damage may have been in the path to it. Whoever
// resumes from it verifies it. False, and nothing is done, if the step is committed or prepared, or none was put aside; what an
// interrupted save or an interrupted call of this left in its place goes.
absl::StatusOr<bool> TakeBack(const std::string& root, int64_t step);

// Names of the folders below `root` that were put aside, sorted; none if `root` does not exist.
absl::StatusOr<std::vector<std::string>> ListPutAside(const std::string& root);

// Removes everything in `root` except what was put aside, and `root` itself if nothing was. OK if it does not exist.
absl::Status RemoveAllButPutAside(const std::string& root);

}  // namespace legoai::checkpoint

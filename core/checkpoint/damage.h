// Committed checkpoints that do not hold what they should: how they are told, and what is left of them.
//
// Damage is what is wrong with the copy on the disk: a checksum that does not match, a file that is cut short or gone, a disk
// that says that it cannot read it (EIO). What may be otherwise the next time (no permission, no memory, too many open files),
// and a checkpoint of another build, model or recipe, is not. A damaged one is not gone on from unless somebody asks for it by
// its step (`lego retry --from STEP`), and its folder is kept: it is called step-N.damaged from then on (-2, -3 … where that is
// taken), which nothing here lists or removes. Thread-safety: functions of the file system, and pure functions; one process at a
// time changes a run's checkpoints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/legoai/v1/checkpoint.pb.h"

namespace legoai::checkpoint {

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

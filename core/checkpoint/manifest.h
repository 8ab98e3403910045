// The manifest of a checkpoint: which chunks of which tensors lie where, and the state of the run (checkpoint.proto).
//
// A checkpoint is the directory ROOT/step-N, of files or of an object store's objects (storage.h). It exists for others once its
// manifest.pb is there, which appears at once after everything it names is on disk or in the store. The sequence of a save:
//   one rank: BeginCheckpoint (directory.h); barrier; every rank: ChunkWriter; barrier; one rank: CollectChunks, PrepareManifest,
//   asks for approval with the digest, then CommitManifest or AbandonCheckpoint.
// Errors name the file and the chunk. Thread-safety: functions of the file system; one save of a step at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/legoai/v1/checkpoint.pb.h"

namespace legoai::checkpoint {

// Version of the layout of manifest and chunks; any other is refused.
inline constexpr uint32_t kManifestVersion = 2;

// "ROOT/step-120".
std::string StepDirectory(const std::string& root, int64_t step);

// The digest of a committed manifest, as PrepareManifest gave it: it names the state of the run.
absl::StatusOr<std::string> ManifestDigest(const std::string& root, int64_t step);

// Whether step `step` was committed: its manifest is there, or else the mark that a commit leaves beside it, in which case the
// manifest is lost. An error if the file system cannot tell: a transient disk failure must not make a checkpoint look like an
// interrupted save.
absl::StatusOr<bool> IsCommitted(const std::string& root, int64_t step);

// Writes the manifest under a temporary name and syncs it. Sets `version` and `file_crc32c`; the caller sets the other fields,
// `step` and `chunks` among them. Refuses chunks that overlap, leave a part of a tensor out, or are not whole on the disk.
// Returns the digest (SHA-256) of the manifest's file, which identifies contents and order of the whole checkpoint. All of it is
// then on disk: approval may take days, and a power failure in the meantime loses nothing.
absl::StatusOr<std::string> PrepareManifest(const std::string& root, v1::CheckpointManifest manifest);

// Whether step `step` is prepared and not committed; an error if the file system or the store cannot tell.
absl::StatusOr<bool> LookPrepared(const std::string& root, int64_t step);
// The same; false where it cannot be told.
inline bool IsPrepared(const std::string& root, int64_t step) { return LookPrepared(root, step).value_or(false); }

// Commits the prepared checkpoint durably.
absl::Status CommitManifest(const std::string& root, int64_t step);

// The same for a checkpoint whose commit was approved and may have been interrupted; OK if it was not. DataLoss if nothing is
// prepared.
absl::Status FinishCommit(const std::string& root, int64_t step);

// Durably removes manifest and mark of a committed step: what is left is no longer a checkpoint.
absl::Status UndoCommit(const std::string& root, int64_t step);

// The manifest of a committed step. Checked: its checksum, version, build version (unless `build_version` is empty), and that
// every chunk's bytes are there, but not their checksums (chunks.h does that). DataLoss: what was committed is torn, corrupt or
// missing; any other error is not damage.
absl::StatusOr<v1::CheckpointManifest> ReadManifest(const std::string& root, int64_t step, std::string_view build_version);

}  // namespace legoai::checkpoint

// The manifest of a checkpoint: which chunks of which tensors lie where, and the state of the run (checkpoint.proto).
//
// A checkpoint is the directory ROOT/step-N. It exists for everybody else from the moment its manifest.pb is there, and that is
// renamed into place after everything it names is on the disk. The sequence of a save:
//   one rank: BeginCheckpoint (directory.h); barrier; every rank: ChunkWriter; barrier;
//   one rank: CollectChunks, PrepareManifest, asks whoever decides with the digest, then CommitManifest or AbandonCheckpoint.
// Errors name the file and the chunk. Thread-safety: functions of the file system; one save of a step at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/legoai/v1/checkpoint.pb.h"

namespace legoai::checkpoint {

// Of the layout of the manifest and the chunks; another one is refused.
inline constexpr uint32_t kManifestVersion = 2;

// "ROOT/step-120".
std::string StepDirectory(const std::string& root, int64_t step);

// The digest of a committed manifest, as PrepareManifest gave it: it names the state of the run.
absl::StatusOr<std::string> ManifestDigest(const std::string& root, int64_t step);

// Whether step `step` was committed: its manifest is there, or the mark that a commit leaves beside it, and then the manifest is
// lost. An error where the file system does not say: a disk that fails for a moment must not make a checkpoint pass for what an
// interrupted save left.
absl::StatusOr<bool> IsCommitted(const std::string& root, int64_t step);

// Writes the manifest beside its place and syncs it. Sets `version` and `file_crc32c`; the caller sets the other fields, `step`
// and `chunks` among them. Refuses chunks that overlap, leave a part of a tensor out, or are not whole on the disk. Gives the
// digest (SHA-256) of the manifest's file, which names contents and order of the whole checkpoint. Then all of it is on the disk:
// whoever decides may take days, and a power failure in the meantime loses nothing.
absl::StatusOr<std::string> PrepareManifest(const std::string& root, v1::CheckpointManifest manifest);

// Whether step `step` is prepared and not committed.
bool IsPrepared(const std::string& root, int64_t step);

// Makes the prepared checkpoint the one that is found, for good.
absl::Status CommitManifest(const std::string& root, int64_t step);

// The same of one whose commit is decided and may have been cut short; OK where it was not. DataLoss where nothing is prepared.
absl::Status FinishCommit(const std::string& root, int64_t step);

// Takes manifest and mark of a committed step away, for good: what is left is no checkpoint any more.
absl::Status UndoCommit(const std::string& root, int64_t step);

// The manifest of a committed step. Checked: its checksum, version, build version (unless `build_version` is empty), and that
// every chunk's bytes are there, though not yet what they are (chunks.h does that). DataLoss: what was committed is
// torn, corrupt or gone; any other error is not the checkpoint's damage.
absl::StatusOr<v1::CheckpointManifest> ReadManifest(const std::string& root, int64_t step, std::string_view build_version);

}  // namespace legoai::checkpoint

#include "core/checkpoint/manifest.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/files.h"
#include "core/checkpoint/storage.h"
#include "core/checkpoint/tensor_layout.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "proto/text.h"

namespace legoai::checkpoint {
namespace {

constexpr absl::StatusCode kTorn = absl::StatusCode::kDataLoss;
// file_crc32c on the wire: field 15, fixed32, then four bytes, little-endian.
constexpr char kTag = 15 << 3 | 5;
constexpr size_t kTailBytes = 5;

std::string ManifestPath(const std::string& root, int64_t step) { return StepDirectory(root, step) + "/manifest.pb"; }
std::string PreparedPath(const std::string& root, int64_t step) { return ManifestPath(root, step) + ".tmp"; }

// An empty file: without it a manifest that is lost could not be told from a save that was interrupted.
std::string MarkPath(const std::string& root, int64_t step) { return StepDirectory(root, step) + "/committed"; }

Rectangle PartOf(const v1::CheckpointChunk& chunk) {
  return {{chunk.offsets().begin(), chunk.offsets().end()}, {chunk.sizes().begin(), chunk.sizes().end()}};
}

std::vector<int64_t> ShapeOf(const v1::CheckpointChunk& chunk) {
  return {chunk.global_shape().begin(), chunk.global_shape().end()};
}

absl::Status CheckChunk(const std::string& directory, const v1::CheckpointChunk& chunk, const Storage::BytesOf& bytes_of,
                        std::map<std::string, int64_t>& file_bytes) {
  const std::string path = absl::StrCat(directory, "/", chunk.file());
  const bool other_folder =
      std::filesystem::path(chunk.file()).filename() != chunk.file() || chunk.file().empty() || chunk.file() == "..";
  if (other_folder || !IsPrintable(chunk.file()) || !IsPrintable(chunk.name()) || DTypeBytes(chunk.dtype()) == 0)
    return FieldError(absl::StrCat(directory, ": ", chunk.name()), chunk.file(),
                      "is no file of the checkpoint, or holds no known type or a name with control characters", kTorn);
  auto known = file_bytes.find(chunk.file());
  if (known == file_bytes.end()) {
    const absl::StatusOr<int64_t> bytes = bytes_of(chunk.file());
    if (absl::IsNotFound(bytes.status()))
      return FieldError(path, "", absl::StrCat("missing, though it holds a part of ", chunk.name()), kTorn);
    if (!bytes.ok()) return bytes.status();
    known = file_bytes.emplace(chunk.file(), *bytes).first;
  }
  const std::string field = absl::StrCat(path, ": ", chunk.name());
  if (chunk.file_offset() < 0 || chunk.bytes() < 0 || chunk.bytes() > known->second - chunk.file_offset())
    return FieldError(field, ToString(PartOf(chunk)), absl::StrCat("the file ends before it, at ", known->second, " bytes: torn"),
                      kTorn);
  RETURN_IF_ERROR(CheckInside(field, ShapeOf(chunk), PartOf(chunk)));
  if (DTypeBytes(chunk.dtype()) * Volume(PartOf(chunk).sizes) != chunk.bytes())
    return FieldError(field, absl::StrCat(chunk.bytes()), "bytes do not match its type and sizes", kTorn);
  return absl::OkStatus();
}

// The chunks of one tensor, sorted by their offsets, cover it once.
absl::Status CheckTensor(const std::string& directory, const std::vector<const v1::CheckpointChunk*>& chunks) {
  const v1::CheckpointChunk& first = *chunks[0];
  std::vector<Rectangle> parts;
  int64_t elements = 0;
  for (const v1::CheckpointChunk* chunk : chunks) {
    parts.push_back(PartOf(*chunk));
    elements += Volume(parts.back().sizes);
    if (ShapeOf(*chunk) != ShapeOf(first) || chunk->dtype() != first.dtype())
      return FieldError(absl::StrCat(directory, "/", chunk->file(), ": ", first.name()), ToString(parts.back()),
                        "ranks disagree about the tensor's shape or type", kTorn);
  }
  for (size_t i = 0; i < parts.size(); ++i)
    for (size_t j = i + 1; j < parts.size(); ++j) {
      if (!parts[i].sizes.empty() && parts[j].offsets[0] >= parts[i].offsets[0] + parts[i].sizes[0]) break;
      if (Intersect(parts[i], parts[j]))
        return FieldError(absl::StrCat(directory, "/", chunks[i]->file(), ": ", first.name()), ToString(parts[i]),
                          "written twice", kTorn);
    }
  if (elements == Volume(ShapeOf(first))) return absl::OkStatus();
  return FieldError(absl::StrCat(directory, ": ", first.name()), absl::StrCat(elements),
                    absl::StrCat("elements written, the tensor has ", Volume(ShapeOf(first))), kTorn);
}

absl::Status CheckChunks(Storage& storage, const std::string& directory, const v1::CheckpointManifest& manifest) {
  ASSIGN_OR_RETURN(const auto bytes_of, storage.SizesIn(directory));
  std::map<std::string, int64_t> file_bytes;
  std::map<std::string, std::vector<const v1::CheckpointChunk*>> tensors;
  for (const v1::CheckpointChunk& chunk : manifest.chunks()) {
    RETURN_IF_ERROR(CheckChunk(directory, chunk, bytes_of, file_bytes));
    tensors[chunk.name()].push_back(&chunk);
  }
  for (auto& [name, chunks] : tensors) {
    std::sort(chunks.begin(), chunks.end(), [](const v1::CheckpointChunk* a, const v1::CheckpointChunk* b) {
      return std::lexicographical_compare(a->offsets().begin(), a->offsets().end(), b->offsets().begin(), b->offsets().end());
    });
    RETURN_IF_ERROR(CheckTensor(directory, chunks));
  }
  return absl::OkStatus();
}

}  // namespace

std::string StepDirectory(const std::string& root, int64_t step) { return absl::StrCat(root, "/step-", step); }

absl::StatusOr<std::string> ManifestDigest(const std::string& root, int64_t step) {
  ASSIGN_OR_RETURN(const auto storage, StorageOf(root));
  ASSIGN_OR_RETURN(const std::string contents, storage->Read(ManifestPath(root, step)));
  return Sha256(contents);
}

absl::StatusOr<bool> IsCommitted(const std::string& root, int64_t step) {
  ASSIGN_OR_RETURN(const auto storage, StorageOf(root));
  const absl::StatusOr<bool> manifest = storage->IsThere(ManifestPath(root, step));
  if (!manifest.ok() || *manifest) return manifest;
  return storage->IsThere(MarkPath(root, step));
}

absl::StatusOr<std::string> PrepareManifest(const std::string& root, v1::CheckpointManifest manifest) {
  manifest.set_version(kManifestVersion);
  manifest.clear_file_crc32c();
  ASSIGN_OR_RETURN(const auto storage, StorageOf(root));
  RETURN_IF_ERROR(CheckChunks(*storage, StepDirectory(root, manifest.step()), manifest));
  std::string contents = manifest.SerializeAsString();
  const uint32_t crc = Crc32c(contents.data(), contents.size());
  contents.push_back(kTag);
  contents.append(reinterpret_cast<const char*>(&crc), sizeof(crc));
  RETURN_IF_ERROR(storage->Write(PreparedPath(root, manifest.step()), contents));
  // Also the directory's own entry and those of the ranks' files.
  RETURN_IF_ERROR(storage->Sync(StepDirectory(root, manifest.step())));
  RETURN_IF_ERROR(storage->Sync(root));
  return Sha256(contents);
}

absl::StatusOr<bool> LookPrepared(const std::string& root, int64_t step) {
  ASSIGN_OR_RETURN(const auto storage, StorageOf(root));
  const absl::StatusOr<bool> prepared = storage->IsThere(PreparedPath(root, step));
  if (!prepared.ok() || !*prepared) return prepared;
  ASSIGN_OR_RETURN(const bool committed, storage->IsThere(ManifestPath(root, step)));
  return !committed;
}

absl::Status CommitManifest(const std::string& root, int64_t step) {
  ASSIGN_OR_RETURN(const auto storage, StorageOf(root));
  const std::string path = ManifestPath(root, step), prepared = PreparedPath(root, step);
  // On a disk without room for one more name it is left out: the checkpoint is as good.
  if (storage->IsThere(prepared).value_or(false)) storage->Write(MarkPath(root, step), "").IgnoreError();
  // The directory's own entry and those of the ranks' files first: the manifest must be the last thing to appear.
  RETURN_IF_ERROR(storage->Sync(StepDirectory(root, step)));
  RETURN_IF_ERROR(storage->Sync(root));
  return storage->Rename(prepared, path);
}

absl::Status FinishCommit(const std::string& root, int64_t step) {
  ASSIGN_OR_RETURN(const auto storage, StorageOf(root));
  const std::string path = ManifestPath(root, step);
  ASSIGN_OR_RETURN(const auto there, storage->IsThere(path));
  if (there) return absl::OkStatus();
  const absl::Status committed = CommitManifest(root, step);
  if (!absl::IsNotFound(committed)) return committed;
  ASSIGN_OR_RETURN(const bool is_now, storage->IsThere(path));
  if (is_now) return absl::OkStatus();  // another process was faster
  return FieldError(path, "", "is missing", kTorn);
}

absl::Status UndoCommit(const std::string& root, int64_t step) {
  ASSIGN_OR_RETURN(const auto storage, StorageOf(root));
  // What is left of a commit that was cut short in an object store, which would be prepared again.
  RETURN_IF_ERROR(storage->Remove(PreparedPath(root, step), nullptr));
  // The mark first: without its manifest it would say that this is lost.
  RETURN_IF_ERROR(storage->Remove(MarkPath(root, step), nullptr));
  RETURN_IF_ERROR(storage->Remove(ManifestPath(root, step), nullptr));
  return storage->Sync(StepDirectory(root, step));
}

absl::StatusOr<v1::CheckpointManifest> ReadManifest(const std::string& root, int64_t step, std::string_view build_version) {
  ASSIGN_OR_RETURN(const auto storage, StorageOf(root));
  const std::string path = ManifestPath(root, step);
  absl::StatusOr<std::string> contents = storage->Read(path);
  if (absl::IsNotFound(contents.status())) return FieldError(path, "", "is missing", kTorn);
  if (!contents.ok()) return contents.status();
  v1::CheckpointManifest manifest;
  const size_t covered = contents->size() - std::min(contents->size(), kTailBytes);
  if (contents->size() < kTailBytes || (*contents)[covered] != kTag || !manifest.ParseFromString(*contents) ||
      manifest.file_crc32c() != Crc32c(contents->data(), covered))
    return FieldError(path, "", "torn: its checksum does not match", kTorn);
  if (manifest.version() != kManifestVersion)
    return FieldError(absl::StrCat(path, ": version"), absl::StrCat(manifest.version()),
                      absl::StrCat("this build reads version ", kManifestVersion, "; use the build that wrote it"),
                      absl::StatusCode::kFailedPrecondition);
  if (!build_version.empty() && manifest.build_version() != build_version)
    return FieldError(
        absl::StrCat(path, ": build_version"), manifest.build_version(),
        absl::StrCat("this is build ", std::string(build_version), "; resume with the build that wrote it, or begin afresh"),
        absl::StatusCode::kFailedPrecondition);
  if (manifest.step() != step)
    return FieldError(absl::StrCat(path, ": step"), absl::StrCat(manifest.step()),
                      "the directory is another step's; undo its renaming", kTorn);
  RETURN_IF_ERROR(CheckChunks(*storage, StepDirectory(root, step), manifest));
  return manifest;
}

}  // namespace legoai::checkpoint

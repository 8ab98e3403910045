#include "core/checkpoint/chunks.h"

#include <bit>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/storage.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::checkpoint {
namespace {

std::string DataFile(int64_t rank) { return absl::StrFormat("rank-%05d.bin", rank); }
std::string ListFile(int64_t rank) { return absl::StrFormat("rank-%05d.chunks.pb", rank); }

std::string Describe(v1::DType dtype, const std::vector<int64_t>& shape) {
  return absl::StrCat(std::string(SafetensorsName(dtype)), " [", absl::StrJoin(shape, ", "), "]");
}

}  // namespace

absl::StatusOr<ChunkWriter> ChunkWriter::Create(const std::string& directory, int64_t rank, BytesDone done) {
  ASSIGN_OR_RETURN(auto storage, StorageOf(directory));
  ASSIGN_OR_RETURN(auto file, storage->Create(absl::StrCat(directory, "/", DataFile(rank)), done));
  return ChunkWriter(directory, rank, std::move(storage), std::move(file));
}

absl::Status ChunkWriter::Append(std::string_view name, v1::DType dtype, const std::vector<int64_t>& global_shape,
                                 const Rectangle& part, const void* data) {
  RETURN_IF_ERROR(CheckInside(name, global_shape, part));
  const int64_t bytes = Volume(part.sizes) * DTypeBytes(dtype);
  if (bytes == 0 && Volume(global_shape) > 0) return absl::OkStatus();  // this rank has nothing of it
  RETURN_IF_ERROR(file_->Append(data, bytes));
  v1::CheckpointChunk& chunk = *list_.add_chunks();
  chunk.set_name(std::string(name));
  chunk.set_dtype(dtype);
  chunk.mutable_global_shape()->Add(global_shape.begin(), global_shape.end());
  chunk.mutable_offsets()->Add(part.offsets.begin(), part.offsets.end());
  chunk.mutable_sizes()->Add(part.sizes.begin(), part.sizes.end());
  chunk.set_file(DataFile(rank_));
  chunk.set_file_offset(end_);
  chunk.set_bytes(bytes);
  chunk.set_crc32c(Crc32c(data, static_cast<size_t>(bytes)));
  end_ += bytes;
  return absl::OkStatus();
}

absl::Status ChunkWriter::Finish() {
  RETURN_IF_ERROR(file_->Close());
  return storage_->Write(absl::StrCat(directory_, "/", ListFile(rank_)), list_.SerializeAsString());
}

absl::Status CollectChunks(const std::string& directory, int64_t world_size, v1::CheckpointManifest& manifest) {
  ASSIGN_OR_RETURN(const auto storage, StorageOf(directory));
  for (int64_t rank = 0; rank < world_size; ++rank) {
    const std::string path = absl::StrCat(directory, "/", ListFile(rank));
    ASSIGN_OR_RETURN(std::string text, storage->Read(path));
    v1::CheckpointManifest list;
    if (!list.ParseFromString(text)) return FieldError(path, "", "torn; save the checkpoint again", absl::StatusCode::kDataLoss);
    manifest.mutable_chunks()->MergeFrom(list.chunks());
  }
  return absl::OkStatus();
}

absl::StatusOr<CheckpointReader> CheckpointReader::Open(const std::string& root, int64_t step, std::string_view build_version) {
  CheckpointReader reader;
  ASSIGN_OR_RETURN(reader.storage_, StorageOf(root));
  ASSIGN_OR_RETURN(reader.manifest_, ReadManifest(root, step, build_version));
  reader.directory_ = StepDirectory(root, step);
  for (int i = 0; i < reader.manifest_.chunks_size(); ++i) {
    const v1::CheckpointChunk& chunk = reader.manifest_.chunks(i);
    Rectangle part{{chunk.offsets().begin(), chunk.offsets().end()}, {chunk.sizes().begin(), chunk.sizes().end()}};
    reader.tensors_[chunk.name()].push_back({i, std::move(part)});
  }
  return reader;
}

std::vector<std::string> CheckpointReader::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, chunks] : tensors_) names.push_back(name);
  return names;
}

absl::StatusOr<std::string_view> CheckpointReader::Bytes(Chunk& chunk) {
  const v1::CheckpointChunk& facts = manifest_.chunks(chunk.index);
  const std::string path = absl::StrCat(directory_, "/", facts.file());
  auto file = files_.find(path);
  if (file == files_.end()) {
    // What is fetched takes memory: that of one file at a time.
    std::erase_if(files_, [](const auto& one) { return !one.second->Stays(); });
    file = files_.emplace(path, storage_->Open(path)).first;
  }
  const bool trusted = chunk.verified && file->second->Stays();
  uint32_t crc = 0;
  const auto check = [&](std::string_view piece) {
    crc = Crc32c(piece.data(), piece.size(), crc);
    if (done_) done_(static_cast<int64_t>(piece.size()));
  };
  const auto bytes =
      file->second->Read(facts.file_offset(), facts.bytes(), trusted ? std::function<void(std::string_view)>() : check);
  if (absl::IsNotFound(bytes.status())) return FieldError(path, "", "is missing", absl::StatusCode::kDataLoss);
  if (!bytes.ok()) return bytes;
  if (!trusted && crc != facts.crc32c()) {
    return FieldError(absl::StrCat(path, ": ", facts.name()), ToString(chunk.part),
                      absl::StrCat("torn: the checksum of the chunk at byte ", facts.file_offset(), " does not match"),
                      absl::StatusCode::kDataLoss);
  }
  chunk.verified = true;
  return bytes;
}

absl::Status CheckpointReader::ReadRectangle(std::string_view name, v1::DType dtype, const std::vector<int64_t>& global_shape,
                                             const Rectangle& part, void* out) {
  const auto tensor = tensors_.find(name);
  const std::string field = absl::StrCat(directory_, ": ", std::string(name));
  if (tensor == tensors_.end())
    return FieldError(field, "", "not in the checkpoint; it is of another model or optimizer", absl::StatusCode::kNotFound);
  const v1::CheckpointChunk& first = manifest_.chunks(tensor->second[0].index);
  const std::vector<int64_t> shape(first.global_shape().begin(), first.global_shape().end());
  if (shape != global_shape || first.dtype() != dtype)
    return FieldError(
        field, Describe(first.dtype(), shape),
        absl::StrCat("this run needs ", Describe(dtype, global_shape), "; the checkpoint is of another model or precision"));
  RETURN_IF_ERROR(CheckInside(field, shape, part));
  for (Chunk& chunk : tensor->second) {
    const std::optional<Rectangle> shared = Intersect(chunk.part, part);
    if (!shared) continue;
    ASSIGN_OR_RETURN(std::string_view bytes, Bytes(chunk));
    CopyRectangle(bytes.data(), chunk.part, static_cast<char*>(out), part, *shared, DTypeBytes(dtype));
  }
  return absl::OkStatus();
}

absl::Status CheckpointReader::ReadFloats(std::string_view name, const std::vector<int64_t>& global_shape, float* out) {
  const auto tensor = tensors_.find(name);
  const bool is_wide = tensor == tensors_.end() || manifest_.chunks(tensor->second[0].index).dtype() != v1::BFLOAT16;
  if (is_wide) return ReadRectangle(name, v1::FLOAT32, global_shape, WholeOf(global_shape), out);
  std::vector<uint16_t> halves(Volume(global_shape));
  RETURN_IF_ERROR(ReadRectangle(name, v1::BFLOAT16, global_shape, WholeOf(global_shape), halves.data()));
  for (size_t i = 0; i < halves.size(); ++i) out[i] = std::bit_cast<float>(uint32_t{halves[i]} << 16);
  return absl::OkStatus();
}

}  // namespace legoai::checkpoint

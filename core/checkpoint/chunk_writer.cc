#include "core/checkpoint/chunk_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/checkpoint/crc32c.h"
#include "core/checkpoint/dtypes.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::checkpoint {
namespace {

std::string DataFile(int64_t rank) { return absl::StrFormat("rank-%05d.bin", rank); }
std::string ListFile(int64_t rank) { return absl::StrFormat("rank-%05d.chunks.pb", rank); }

}  // namespace

absl::StatusOr<ChunkWriter> ChunkWriter::Create(const std::string& directory, int64_t rank, BytesDone done) {
  ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(absl::StrCat(directory, "/", DataFile(rank)), std::move(done)));
  return ChunkWriter(directory, rank, std::move(file));
}

absl::Status ChunkWriter::Append(std::string_view name, v1::DType dtype, const std::vector<int64_t>& global_shape,
                                 const Rectangle& part, const void* data) {
  RETURN_IF_ERROR(CheckInside(name, global_shape, part));
  const int64_t bytes = Volume(part.sizes) * DTypeBytes(dtype);
  if (bytes == 0 && Volume(global_shape) > 0) return absl::OkStatus();  // this rank has nothing of it
  RETURN_IF_ERROR(file_.WriteAt(end_, data, bytes));
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
  RETURN_IF_ERROR(file_.Close());
  return WriteFile(absl::StrCat(directory_, "/", ListFile(rank_)), list_.SerializeAsString());
}

absl::Status CollectChunks(const std::string& directory, int64_t world_size, v1::CheckpointManifest& manifest) {
  for (int64_t rank = 0; rank < world_size; ++rank) {
    const std::string path = absl::StrCat(directory, "/", ListFile(rank));
    ASSIGN_OR_RETURN(std::string text, ReadFile(path));
    v1::CheckpointManifest list;
    if (!list.ParseFromString(text)) return FieldError(path, "", "torn; save the checkpoint again", absl::StatusCode::kDataLoss);
    manifest.mutable_chunks()->MergeFrom(list.chunks());
  }
  return absl::OkStatus();
}

}  // namespace legoai::checkpoint

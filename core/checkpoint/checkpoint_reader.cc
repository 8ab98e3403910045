#include "core/checkpoint/checkpoint_reader.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/checkpoint/crc32c.h"
#include "core/checkpoint/dtypes.h"
#include "core/checkpoint/manifest.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::checkpoint {
namespace {

std::string Describe(v1::DType dtype, const std::vector<int64_t>& shape) {
  return absl::StrCat(std::string(SafetensorsName(dtype)), " [", absl::StrJoin(shape, ", "), "]");
}

}  // namespace

absl::StatusOr<CheckpointReader> CheckpointReader::Open(const std::string& root, int64_t step, std::string_view build_version) {
  ASSIGN_OR_RETURN(v1::CheckpointManifest manifest, ReadManifest(root, step, build_version));
  CheckpointReader reader;
  reader.directory_ = StepDirectory(root, step);
  reader.manifest_ = std::move(manifest);
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

absl::Status CheckpointReader::Verify(const std::string& path, const Chunk& chunk) const {
  const v1::CheckpointChunk& facts = manifest_.chunks(chunk.index);
  uint32_t crc = 0;
  const absl::Status read = ReadPieces(path, facts.file_offset(), facts.bytes(), [&](std::string_view piece) {
    crc = Crc32c(piece.data(), piece.size(), crc);
    if (done_) done_(static_cast<int64_t>(piece.size()));
  });
  if (absl::IsNotFound(read)) return FieldError(path, "", "is missing", absl::StatusCode::kDataLoss);
  if (!read.ok() || crc == facts.crc32c()) return read;
  return FieldError(absl::StrCat(path, ": ", facts.name()), ToString(chunk.part),
                    absl::StrCat("torn: the checksum of the chunk at byte ", facts.file_offset(), " does not match"),
                    absl::StatusCode::kDataLoss);
}

absl::StatusOr<std::string_view> CheckpointReader::Bytes(Chunk& chunk) {
  const v1::CheckpointChunk& facts = manifest_.chunks(chunk.index);
  const std::string path = absl::StrCat(directory_, "/", facts.file());
  if (!chunk.verified) {
    RETURN_IF_ERROR(Verify(path, chunk));
    chunk.verified = true;
  }
  auto file = files_.find(path);
  if (file == files_.end()) {
    ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
    file = files_.emplace(path, std::move(mapped)).first;
  }
  const std::string_view all = file->second.bytes();
  if (facts.file_offset() + facts.bytes() > static_cast<int64_t>(all.size()))
    return FieldError(path, "", "was cut short while it was read", absl::StatusCode::kDataLoss);
  return all.substr(facts.file_offset(), facts.bytes());
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

}  // namespace legoai::checkpoint

// The chunks of a checkpoint: what one rank writes, and how any layout is read from what all have written.
//
// Every rank of a save makes one ChunkWriter in the step's directory, appends what it holds and finishes; after a barrier one
// rank gathers the lists with CollectChunks and makes the manifest of them (manifest.h). Nothing counts before that is committed.
// Errors name the file; a full disk is ResourceExhausted. Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/files.h"
#include "core/checkpoint/tensor_layout.h"
#include "proto/legoai/v1/checkpoint.pb.h"

namespace legoai::checkpoint {

class ChunkWriter {
 public:
  // `directory` exists. Writes rank-RANK.bin there, and tells `done` as it goes.
  static absl::StatusOr<ChunkWriter> Create(const std::string& directory, int64_t rank, BytesDone done = nullptr);

  // Adds a part of the tensor `name`; `data` is that part, row-major and dense. No two ranks may write the same elements: of
  // replicas only one writes. An empty part is left out, unless the tensor itself has no elements: then its name, type and shape
  // are kept by a chunk without bytes.
  absl::Status Append(std::string_view name, v1::DType dtype, const std::vector<int64_t>& global_shape, const Rectangle& part,
                      const void* data);

  // Puts the chunks and then their list (rank-RANK.chunks.pb) on the disk.
  absl::Status Finish();

 private:
  ChunkWriter(std::string directory, int64_t rank, OutputFile file)
      : directory_(std::move(directory)), rank_(rank), file_(std::move(file)) {}

  std::string directory_;
  int64_t rank_;
  OutputFile file_;
  int64_t end_ = 0;
  v1::CheckpointManifest list_;  // chunks only
};

// Adds the chunks of ranks 0 … world_size - 1 to the manifest. Error if the list of one is missing or torn.
absl::Status CollectChunks(const std::string& directory, int64_t world_size, v1::CheckpointManifest& manifest);

// Reads tensors of a committed checkpoint in any layout: any hyper-rectangle is put together from whatever chunks hold it, so a
// recipe with other degrees than the one that saved can go on. A chunk's checksum is verified over all its bytes when it is first
// touched; a torn one is DataLoss naming file and chunk, as is a file that is gone or that the disk cannot read. Files are
// mapped, not loaded.
class CheckpointReader {
 public:
  // `build_version` as ReadManifest takes it.
  static absl::StatusOr<CheckpointReader> Open(const std::string& root, int64_t step, std::string_view build_version);

  const v1::CheckpointManifest& manifest() const { return manifest_; }

  // `done` is told of bytes as they are verified, which is when they come from the disk.
  void SetProgress(BytesDone done) { done_ = std::move(done); }

  // Names of all tensors, sorted.
  std::vector<std::string> Names() const;
  bool Has(std::string_view name) const { return tensors_.find(name) != tensors_.end(); }

  // Copies the part of the tensor to `out`, row-major and dense. NotFound without such a tensor; InvalidArgument if shape or type
  // of the tensor are not those expected.
  absl::Status ReadRectangle(std::string_view name, v1::DType dtype, const std::vector<int64_t>& global_shape,
                             const Rectangle& part, void* out);
  // The whole tensor, of fp32 or bf16, in fp32. Errors: as above.
  absl::Status ReadFloats(std::string_view name, const std::vector<int64_t>& global_shape, float* out);

 private:
  struct Chunk {
    int index = 0;  // in manifest_
    Rectangle part;
    bool verified = false;
  };
  CheckpointReader() = default;
  // The chunk's bytes, verified.
  absl::StatusOr<std::string_view> Bytes(Chunk& chunk);

  absl::Status Verify(const std::string& path, const Chunk& chunk) const;

  std::string directory_;
  BytesDone done_;
  v1::CheckpointManifest manifest_;
  std::map<std::string, std::vector<Chunk>, std::less<>> tensors_;
  std::map<std::string, MappedFile> files_;
};

}  // namespace legoai::checkpoint

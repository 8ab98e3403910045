// The chunks of a checkpoint: what one rank writes, and how any layout is read from what all have written.
//
// In a save every rank creates one ChunkWriter in the step's directory, appends its shards and finishes; after a barrier one rank
// collects the lists with CollectChunks and writes the manifest (manifest.h). Nothing is valid until the manifest is committed.
// Errors name the file; a full disk is ResourceExhausted. Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/files.h"
#include "core/checkpoint/storage.h"
#include "core/checkpoint/tensor_layout.h"
#include "proto/legoai/v1/checkpoint.pb.h"

namespace legoai::checkpoint {

class ChunkWriter {
 public:
  // `directory` must exist. Writes rank-RANK.bin there and reports progress to `done`.
  static absl::StatusOr<ChunkWriter> Create(const std::string& directory, int64_t rank, BytesDone done = nullptr);

  // Appends a part of the tensor `name`; `data` is that part, row-major and dense. No two ranks may write the same elements: only
  // one replica writes. An empty part is skipped, unless the tensor itself has no elements: a chunk without bytes then records
  // its name, type and shape.
  absl::Status Append(std::string_view name, v1::DType dtype, const std::vector<int64_t>& global_shape, const Rectangle& part,
                      const void* data);

  // Completes and syncs the chunks, then their list (rank-RANK.chunks.pb), to disk.
  absl::Status Finish();

 private:
  ChunkWriter(std::string directory, int64_t rank, std::unique_ptr<Storage> storage, std::unique_ptr<ChunkFile> file)
      : directory_(std::move(directory)), rank_(rank), storage_(std::move(storage)), file_(std::move(file)) {}

  std::string directory_;
  int64_t rank_;
  std::unique_ptr<Storage> storage_;
  std::unique_ptr<ChunkFile> file_;
  int64_t end_ = 0;
  v1::CheckpointManifest list_;  // chunks only
};

// Adds the chunks of ranks 0 … world_size - 1 to the manifest. Error if the list of a rank is missing or torn.
absl::Status CollectChunks(const std::string& directory, int64_t world_size, v1::CheckpointManifest& manifest);

// Reads tensors of a committed checkpoint in any layout: any hyper-rectangle is assembled from the chunks that hold it, so a run
// can resume with other degrees than it was saved with. A chunk's checksum is verified over all its bytes on first use. A torn
// chunk, a missing file or a read error of the disk is DataLoss naming file and chunk. Files are mapped, not loaded; of a file in
// an object store a chunk at a time is fetched into memory.
class CheckpointReader {
 public:
  // `build_version` as ReadManifest takes it.
  static absl::StatusOr<CheckpointReader> Open(const std::string& root, int64_t step, std::string_view build_version);

  const v1::CheckpointManifest& manifest() const { return manifest_; }

  // `done` is called as bytes are verified, which is when they are read from disk.
  void SetProgress(BytesDone done) { done_ = std::move(done); }

  // Names of all tensors, sorted.
  std::vector<std::string> Names() const;
  bool Has(std::string_view name) const { return tensors_.find(name) != tensors_.end(); }

  // Copies the part of the tensor to `out`, row-major and dense. NotFound if there is no such tensor; InvalidArgument if its
  // shape or type is not the expected one.
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

  std::string directory_;
  BytesDone done_;
  v1::CheckpointManifest manifest_;
  std::map<std::string, std::vector<Chunk>, std::less<>> tensors_;
  std::unique_ptr<Storage> storage_;
  std::map<std::string, std::unique_ptr<ChunkSource>> files_;
};

}  // namespace legoai::checkpoint

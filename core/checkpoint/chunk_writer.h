// What one rank adds to a checkpoint: a file of chunks, and the list of them.
//
// Every rank of a save makes one ChunkWriter in the step's directory, appends what it holds and finishes; after a barrier one
// rank gathers the lists with CollectChunks and makes the manifest of them (manifest.h). Nothing counts before that is committed.
// Errors name the file; a full disk is ResourceExhausted. Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/files.h"
#include "core/checkpoint/rectangle.h"
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

}  // namespace legoai::checkpoint

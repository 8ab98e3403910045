// Saves and loads the shards that the ranks of a job hold. A saved checkpoint does not depend on the layout and can be loaded
// into any other: each rank reads the rectangles that it holds now.
//
// Collective: every rank of the current comm::Runtime calls the same function with its own parts. Not thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/checkpoint/chunks.h"
#include "core/mesh/shard_spec.h"
#include "proto/legoai/v1/checkpoint.pb.h"
#include "worker/comm/runtime.h"

namespace legoai::checkpoint {

// This rank's part of one global tensor.
struct ShardedTensor {
  std::string name;            // in the checkpoint: "model.norm.weight", "optimizer.exp_avg.model.norm.weight"
  at::Tensor tensor;           // shape spec.sizes, contiguous
  parallel::ShardSpec spec;    // where the part lies, and which mesh dimensions shard it
  bool on_all_stages = false;  // whether every pipeline stage holds it
};

// Callbacks of a save. A slow disk may take long, and no collective should time out because of it: before each collective, `meet`
// is called on every rank and returns when all have called it. Empty: the collectives wait.
struct SaveCallbacks {
  BytesDone written = nullptr;  // called with the bytes this rank has just written; 0: it removes files or waits for a store
  std::function<absl::Status()> meet = nullptr;
};

// Bytes that a save writes for this rank: of replicas only the first writes.
int64_t BytesToWrite(const std::vector<ShardedTensor>& tensors, const comm::Runtime& runtime);
// The sum over all ranks; collective.
absl::StatusOr<int64_t> BytesOfAllRanks(const std::vector<ShardedTensor>& tensors, const comm::Runtime& runtime);

// Saves root/step-N as prepared (manifest.h): all of it is on disk, and it becomes valid when it is committed. Returns its digest
// on rank 0, and an empty string elsewhere. `facts`: all fields of the manifest except the chunks. All ranks succeed or all fail:
// a rank that fails returns its own error, such as a full disk (FieldError, ResourceExhausted), and the others Aborted, or
// ResourceExhausted if all failures are full disks. After an error nothing of the step is left.
absl::StatusOr<std::string> SaveSharded(const std::string& root, const v1::CheckpointManifest& facts,
                                        const std::vector<ShardedTensor>& tensors, comm::Runtime& runtime,
                                        const SaveCallbacks& callbacks);

// Fills the tensors. Errors: NotFound or InvalidArgument, naming the tensor, if the checkpoint is of another model; DataLoss for
// a torn one. On an error some tensors may have been filled.
absl::Status LoadSharded(CheckpointReader& reader, const std::vector<ShardedTensor>& tensors);

}  // namespace legoai::checkpoint

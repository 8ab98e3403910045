// Saving and loading the parts of tensors that the ranks of a job hold. What is saved does not depend on the layout, and is
// loaded into any other: each rank reads the rectangles that it holds now.
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
  parallel::ShardSpec spec;    // where the part lies, and which mesh dimensions cut it
  bool on_all_stages = false;  // whether every pipeline stage holds it
};

// How a save speaks with the job around it. Writing takes a rank as long as its disk takes, and no collective should have to wait
// for that: before each, `meet` is called on every rank and returns when all have called it. Empty: the collectives wait.
struct SaveCallbacks {
  BytesDone written = nullptr;  // more bytes of this rank are written; 0: it removes files
  std::function<absl::Status()> meet = nullptr;
};

// Bytes of this rank's parts that a save writes: of replicas the first writes.
int64_t BytesToWrite(const std::vector<ShardedTensor>& tensors, const comm::Runtime& runtime);
// The sum over all ranks, which all call together.
absl::StatusOr<int64_t> BytesOfAllRanks(const std::vector<ShardedTensor>& tensors, const comm::Runtime& runtime);

// Saves root/step-N as prepared (manifest.h): all of it is on the disk, and it counts once it is committed. Gives its digest on
// rank 0, and an empty string elsewhere. `facts`: all fields of the manifest but the chunks.
// The answer is the same kind on every rank: OK; or a rank's own failure, such as a full disk (FieldError, ResourceExhausted),
// and Aborted on the others, or ResourceExhausted where full disks are all there is. After an error nothing of the step is left.
absl::StatusOr<std::string> SaveSharded(const std::string& root, const v1::CheckpointManifest& facts,
                                        const std::vector<ShardedTensor>& tensors, comm::Runtime& runtime,
                                        const SaveCallbacks& callbacks);

// Fills the tensors. Errors: NotFound or InvalidArgument, naming the tensor, where the checkpoint is of another model; DataLoss
// for a torn one. On an error some tensors may have been filled.
absl::Status LoadSharded(CheckpointReader& reader, const std::vector<ShardedTensor>& tensors);

}  // namespace legoai::checkpoint

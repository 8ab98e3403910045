#include "worker/checkpoint/sharded_checkpoint.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/directory.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/storage.h"
#include "proto/status.h"
#include "worker/comm/ops.h"
#include "worker/comm/status_error.h"

namespace legoai::checkpoint {
namespace {

absl::StatusOr<v1::DType> TypeOf(const ShardedTensor& part) {
  switch (part.tensor.scalar_type()) {
    case c10::ScalarType::Float: return v1::FLOAT32;
    case c10::ScalarType::Double: return v1::FLOAT64;
    case c10::ScalarType::BFloat16: return v1::BFLOAT16;
    case c10::ScalarType::Half: return v1::FLOAT16;
    case c10::ScalarType::Long: return v1::INT64;
    default: return absl::UnimplementedError(absl::StrCat(part.name, ": checkpoints hold no tensors of this type"));
  }
}

// Whether this rank is the one that writes its part: the first of each group over which the part repeats.
bool Writes(const ShardedTensor& part, const comm::Runtime& runtime) {
  const bool empty = Volume(part.spec.global_shape) == 0;  // a tensor without elements is kept by name, type and shape
  if (part.spec.Elements() == 0 && !empty) return false;
  for (const mesh::Dim dim : {mesh::Dim::kDpReplicate, mesh::Dim::kDpShardCp, mesh::Dim::kTp}) {
    if (!part.spec.IsShardedOver(dim) && runtime.GroupRank(runtime.GroupId(dim)) != 0) return false;
  }
  if (runtime.GroupRank(runtime.GroupId(mesh::Dim::kTp)) % part.spec.copies_over_tp != 0) return false;
  if (part.spec.on_both_ends && runtime.GroupRank(runtime.GroupId(mesh::Dim::kPpEnds)) != 0) return false;
  return !part.on_all_stages || runtime.GroupRank(runtime.GroupId(mesh::Dim::kPp)) == 0;
}

// Sum over all ranks.
absl::StatusOr<int64_t> Sum(int64_t value, const comm::Runtime& runtime, c10::Device device) {
  int64_t sum = 0;
  RETURN_IF_ERROR(comm::CatchStatus([&] {
    at::Tensor total = at::full({}, value, at::TensorOptions().dtype(at::kLong).device(device));
    comm::AllReduce(total, runtime.GroupId(mesh::Dim::kWorld));
    sum = total.item<int64_t>();
    return absl::OkStatus();
  }));
  return sum;
}

// A barrier through which a failure of any rank reaches all: its own Status there, and elsewhere Aborted, or ResourceExhausted
// where those that failed found the disk full, for then all may wait for room together.
absl::Status Agree(const absl::Status& mine, const SaveCallbacks& callbacks, const comm::Runtime& runtime, c10::Device device) {
  if (const absl::Status met = callbacks.meet ? callbacks.meet() : absl::OkStatus(); !met.ok()) return mine.ok() ? met : mine;
  constexpr int64_t kOther = int64_t{1} << 32;  // beside the count of full disks
  const absl::StatusOr<int64_t> failures = Sum(mine.ok() ? 0 : absl::IsResourceExhausted(mine) ? 1 : kOther, runtime, device);
  if (!mine.ok()) return mine;
  if (!failures.ok()) return failures.status();
  if (*failures == 0) return absl::OkStatus();
  if (*failures < kOther) return absl::ResourceExhaustedError(absl::StrCat(*failures, " other rank(s) found the disk full"));
  return absl::AbortedError(absl::StrCat(*failures / kOther, " other rank(s) could not write the checkpoint"));
}

absl::Status WriteParts(const std::string& directory, const std::vector<ShardedTensor>& tensors, const BytesDone& written,
                        const comm::Runtime& runtime) {
  ASSIGN_OR_RETURN(ChunkWriter writer, ChunkWriter::Create(directory, runtime.rank(), written));
  for (const ShardedTensor& part : tensors) {
    if (!Writes(part, runtime)) continue;
    ASSIGN_OR_RETURN(const v1::DType dtype, TypeOf(part));
    const at::Tensor host = part.tensor.detach().cpu().contiguous();
    const Rectangle rectangle{part.spec.offsets, part.spec.sizes};
    RETURN_IF_ERROR(writer.Append(part.name, dtype, part.spec.global_shape, rectangle, host.data_ptr()));
  }
  return writer.Finish();
}

// Rank 0's manifest; gives its digest.
absl::StatusOr<std::string> WriteManifest(const std::string& root, v1::CheckpointManifest facts, int64_t world_size) {
  RETURN_IF_ERROR(CollectChunks(StepDirectory(root, facts.step()), world_size, facts));
  return PrepareManifest(root, std::move(facts));
}

}  // namespace

int64_t BytesToWrite(const std::vector<ShardedTensor>& tensors, const comm::Runtime& runtime) {
  int64_t bytes = 0;
  for (const ShardedTensor& part : tensors) {
    if (Writes(part, runtime)) bytes += part.spec.Elements() * part.tensor.element_size();
  }
  return bytes;
}

absl::StatusOr<int64_t> BytesOfAllRanks(const std::vector<ShardedTensor>& tensors, const comm::Runtime& runtime) {
  const c10::Device device = tensors.empty() ? c10::Device(c10::kCPU) : tensors.front().tensor.device();
  return Sum(BytesToWrite(tensors, runtime), runtime, device);
}

absl::StatusOr<std::string> SaveSharded(const std::string& root, const v1::CheckpointManifest& facts,
                                        const std::vector<ShardedTensor>& tensors, comm::Runtime& runtime,
                                        const SaveCallbacks& callbacks) {
  c10::NoGradGuard no_grad;
  const bool first = runtime.rank() == 0;
  const c10::Device device = tensors.empty() ? c10::Device(c10::kCPU) : tensors.front().tensor.device();
  const int64_t step = facts.step();
  ASSIGN_OR_RETURN(const int64_t bytes, BytesOfAllRanks(tensors, runtime));
  const AliveDuring alive(callbacks.written);

  absl::Status status = first ? BeginCheckpoint(root, step, bytes, FreeBytesOnDisk, callbacks.written) : absl::OkStatus();
  // What is there already is not this save's to remove.
  if (status = Agree(status, callbacks, runtime, device); !status.ok()) return status;
  status = Agree(WriteParts(StepDirectory(root, step), tensors, callbacks.written, runtime), callbacks, runtime, device);
  std::string digest;
  if (status.ok() && first) {
    auto prepared = WriteManifest(root, facts, runtime.GroupSize(runtime.GroupId(mesh::Dim::kWorld)));
    status = prepared.status();
    if (prepared.ok()) digest = *std::move(prepared);
  }
  if (status = Agree(status, callbacks, runtime, device); status.ok()) return digest;
  if (!first) return status;
  const absl::Status abandoned = AbandonCheckpoint(root, step, callbacks.written);
  return abandoned.ok() ? status : abandoned;
}

absl::Status LoadSharded(CheckpointReader& reader, const std::vector<ShardedTensor>& tensors) {
  c10::NoGradGuard no_grad;
  for (const ShardedTensor& part : tensors) {
    ASSIGN_OR_RETURN(const v1::DType dtype, TypeOf(part));
    at::Tensor host = at::empty(part.spec.sizes, part.tensor.options().device(at::kCPU));
    const Rectangle rectangle{part.spec.offsets, part.spec.sizes};
    RETURN_IF_ERROR(reader.ReadRectangle(part.name, dtype, part.spec.global_shape, rectangle, host.data_ptr()));
    part.tensor.detach().copy_(host);
  }
  return absl::OkStatus();
}

}  // namespace legoai::checkpoint

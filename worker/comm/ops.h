// Everything a step does besides ATen, as dispatcher operators (library `lego`), so that one mechanism records, compares and
// executes them. Groups, streams and events are integers looked up in the current Runtime.
//
// Errors: c10::Error, like every operator; a failed communication is a StatusError (status_error.h). The trainer turns them into
// a Status at its boundary. Collectives run on
// CurrentStream(); on a fake Runtime they touch no memory, so the fake device calls these same kernels with its own tensors.
// Tensors must be contiguous, outputs allocated beforehand. None of them is differentiable.
#pragma once

#include <ATen/core/Tensor.h>

#include "worker/comm/communicator.h"
#include "worker/comm/runtime.h"

namespace legoai::comm {

// out: [group size * n, ...], in: [n, ...], same dtype.
void AllGatherInto(const at::Tensor& out, const at::Tensor& in, int64_t group);
// in: [group size * n, ...], out: [n, ...], the sum.
void ReduceScatterInto(const at::Tensor& out, const at::Tensor& in, int64_t group);
void AllReduce(const at::Tensor& tensor, int64_t group, ReduceOp op = ReduceOp::kSum);
// in, out: [group size * n, ...]
void AllToAllInto(const at::Tensor& out, const at::Tensor& in, int64_t group);
// in: for the next rank of the group; out: the previous one's, of the same size.
void RotateInto(const at::Tensor& out, const at::Tensor& in, int64_t group);
void Broadcast(const at::Tensor& tensor, int64_t group, int64_t root);
void Send(const at::Tensor& tensor, int64_t group, int64_t peer);
void Recv(const at::Tensor& tensor, int64_t group, int64_t peer);

// Reallocates the tensor's storage with this many bytes (contents undefined; 0 frees it); views see the change.
void ResizeStorage(const at::Tensor& tensor, int64_t bytes);

void RecordEvent(int64_t stream, int64_t event);
void WaitEvent(int64_t stream, int64_t event);

}  // namespace legoai::comm

#include "worker/comm/ops.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <utility>

#include "worker/comm/status_error.h"

namespace legoai::comm {
namespace {

using at::Tensor;

// The addresses are taken when the operator is dispatched: the Runtime holds the storages until the work is known to be done.
// On a fake runtime tensors have no memory and nobody looks at addresses.
const char* Read(const Tensor& tensor) {
  return CurrentRuntime().fake() ? nullptr : static_cast<const char*>(tensor.const_data_ptr());
}
char* Write(const Tensor& tensor) { return CurrentRuntime().fake() ? nullptr : static_cast<char*>(tensor.mutable_data_ptr()); }

void CheckUsable(const char* kind, const Tensor& tensor) {
  TORCH_CHECK(tensor.is_contiguous(), kind, ": a tensor of sizes ", tensor.sizes(), " is not contiguous");
  const size_t end = tensor.storage_offset() * tensor.itemsize() + tensor.nbytes();
  TORCH_CHECK(tensor.storage().nbytes() >= end, kind, ": the storage is resized to ", tensor.storage().nbytes(), " bytes, ", end,
              " are needed; unshard it first");
}

CommObserver::Call Describe(const char* kind, int64_t group, const Tensor& in, const Tensor& out, int64_t peer = -1) {
  CommObserver::Call call;
  call.kind = kind;
  call.group = group;
  call.stream = CurrentStream();
  call.peer = peer;
  call.input_sizes = in.sizes().vec();
  call.output_sizes = out.sizes().vec();
  call.dtype = in.scalar_type();
  call.bytes = in.nbytes();
  return call;
}

void CheckPair(const char* kind, const Tensor& large, const Tensor& small, int64_t group) {
  CheckUsable(kind, large);
  CheckUsable(kind, small);
  const int64_t size = CurrentRuntime().GroupSize(group);
  TORCH_CHECK(large.numel() == small.numel() * size && large.scalar_type() == small.scalar_type(), kind, " over ", size,
              " ranks: sizes ", large.sizes(), " and ", small.sizes(), " do not match");
}

void AllGatherKernel(Tensor& out, const Tensor& in, int64_t group) {
  CheckPair("all_gather_into", out, in, group);
  ThrowIfError(CurrentRuntime().Communicate(
      Describe("all_gather", group, in, out), {out.storage(), in.storage()},
      [out = Write(out), in = Read(in), bytes = in.nbytes()](Communicator& c) { return c.AllGather(out, in, bytes); }));
}

void ReduceScatterKernel(Tensor& out, const Tensor& in, int64_t group) {
  CheckPair("reduce_scatter_into", in, out, group);
  ThrowIfError(CurrentRuntime().Communicate(Describe("reduce_scatter", group, in, out), {out.storage(), in.storage()},
                                            [o = Write(out), i = Read(in), n = out.numel(), t = out.scalar_type()](
                                                Communicator& c) { return c.ReduceScatter(o, i, n, t, ReduceOp::kSum); }));
}

void AllReduceKernel(Tensor& tensor, int64_t group, int64_t op) {
  CheckUsable("all_reduce_", tensor);
  ThrowIfError(CurrentRuntime().Communicate(Describe("all_reduce", group, tensor, tensor), {tensor.storage()},
                                            [data = Write(tensor), n = tensor.numel(), t = tensor.scalar_type(), op](
                                                Communicator& c) { return c.AllReduce(data, n, t, static_cast<ReduceOp>(op)); }));
}

void AllToAllKernel(Tensor& out, const Tensor& in, int64_t group) {
  CheckUsable("all_to_all_into", out);
  CheckUsable("all_to_all_into", in);
  const int64_t size = CurrentRuntime().GroupSize(group);
  TORCH_CHECK(in.nbytes() == out.nbytes() && in.numel() % size == 0, "all_to_all_into over ", size, " ranks: sizes ", out.sizes(),
              " and ", in.sizes(), " do not match");
  ThrowIfError(CurrentRuntime().Communicate(Describe("all_to_all", group, in, out), {out.storage(), in.storage()},
                                            [o = Write(out), i = Read(in), bytes = static_cast<int64_t>(in.nbytes()) / size](
                                                Communicator& c) { return c.AllToAll(o, i, bytes); }));
}

void RotateKernel(Tensor& out, const Tensor& in, int64_t group) {
  CheckUsable("rotate_into", out);
  CheckUsable("rotate_into", in);
  const bool apart = !in.is_alias_of(out) || at::get_overlap_status(in, out) == at::MemOverlapStatus::No;
  TORCH_CHECK(in.nbytes() == out.nbytes() && apart, "rotate_into: sizes ", out.sizes(), " and ", in.sizes(),
              " do not match, or share memory");
  ThrowIfError(CurrentRuntime().Communicate(
      Describe("rotate", group, in, out), {out.storage(), in.storage()},
      [o = Write(out), i = Read(in), bytes = in.nbytes()](Communicator& c) { return c.Rotate(o, i, bytes); }));
}

void BroadcastKernel(Tensor& tensor, int64_t group, int64_t root) {
  CheckUsable("broadcast_", tensor);
  ThrowIfError(CurrentRuntime().Communicate(
      Describe("broadcast", group, tensor, tensor, root), {tensor.storage()},
      [data = Write(tensor), bytes = tensor.nbytes(), root](Communicator& c) { return c.Broadcast(data, bytes, root); }));
}

void SendKernel(const Tensor& tensor, int64_t group, int64_t peer) {
  CheckUsable("send", tensor);
  ThrowIfError(CurrentRuntime().Communicate(
      Describe("send", group, tensor, tensor, peer), {tensor.storage()},
      [data = Read(tensor), bytes = tensor.nbytes(), peer](Communicator& c) { return c.Send(data, bytes, peer); }));
}

void RecvKernel(Tensor& tensor, int64_t group, int64_t peer) {
  CheckUsable("recv", tensor);
  ThrowIfError(CurrentRuntime().Communicate(
      Describe("recv", group, tensor, tensor, peer), {tensor.storage()},
      [data = Write(tensor), bytes = tensor.nbytes(), peer](Communicator& c) { return c.Recv(data, bytes, peer); }));
}

void ResizeKernel(Tensor& tensor, int64_t bytes) {
  auto* storage = tensor.storage().unsafeGetStorageImpl();
  TORCH_CHECK(storage->allocator() != nullptr, "resize_storage_: the storage has no allocator (memory of somebody else)");
  storage->set_data_ptr_noswap(bytes > 0 ? storage->allocator()->allocate(bytes) : c10::DataPtr(nullptr, tensor.device()));
  storage->set_nbytes(bytes);
}

void RecordKernel(int64_t stream, int64_t event) { ThrowIfError(CurrentRuntime().RecordEvent(stream, event)); }
void WaitKernel(int64_t stream, int64_t event) { ThrowIfError(CurrentRuntime().WaitEvent(stream, event)); }

template <class Signature>
c10::TypedOperatorHandle<Signature> Find(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

}  // namespace

TORCH_LIBRARY(lego, m) {
  m.def("all_gather_into(Tensor(a!) out, Tensor inp, int group) -> ()");
  m.def("reduce_scatter_into(Tensor(a!) out, Tensor inp, int group) -> ()");
  m.def("all_reduce_(Tensor(a!) tensor, int group, int op) -> ()");
  m.def("all_to_all_into(Tensor(a!) out, Tensor inp, int group) -> ()");
  m.def("rotate_into(Tensor(a!) out, Tensor inp, int group) -> ()");
  m.def("broadcast_(Tensor(a!) tensor, int group, int root) -> ()");
  m.def("send(Tensor tensor, int group, int peer) -> ()");
  m.def("recv(Tensor(a!) tensor, int group, int peer) -> ()");
  m.def("resize_storage_(Tensor(a!) tensor, int nbytes) -> ()");
  m.def("record_event(int stream, int event) -> ()");
  m.def("wait_event(int stream, int event) -> ()");
}

void ImplementFor(torch::Library& m) {
  m.impl("all_gather_into", AllGatherKernel);
  m.impl("reduce_scatter_into", ReduceScatterKernel);
  m.impl("all_reduce_", AllReduceKernel);
  m.impl("all_to_all_into", AllToAllKernel);
  m.impl("rotate_into", RotateKernel);
  m.impl("broadcast_", BroadcastKernel);
  m.impl("send", SendKernel);
  m.impl("recv", RecvKernel);
  m.impl("resize_storage_", ResizeKernel);
}

TORCH_LIBRARY_IMPL(lego, CPU, m) { ImplementFor(m); }
TORCH_LIBRARY_IMPL(lego, CUDA, m) { ImplementFor(m); }

TORCH_LIBRARY_IMPL(lego, CompositeExplicitAutograd, m) {
  m.impl("record_event", RecordKernel);
  m.impl("wait_event", WaitKernel);
}

TORCH_LIBRARY_IMPL(lego, Autograd, m) {
  for (const char* name : {"all_gather_into", "reduce_scatter_into", "all_reduce_", "all_to_all_into", "rotate_into",
                           "broadcast_", "send", "recv", "resize_storage_"}) {
    m.impl(name, torch::CppFunction::makeFallthrough());
  }
}

void AllGatherInto(const Tensor& out, const Tensor& in, int64_t group) {
  static const auto op = Find<void(Tensor&, const Tensor&, int64_t)>("lego::all_gather_into");
  Tensor written = out;
  op.call(written, in, group);
}
void ReduceScatterInto(const Tensor& out, const Tensor& in, int64_t group) {
  static const auto op = Find<void(Tensor&, const Tensor&, int64_t)>("lego::reduce_scatter_into");
  Tensor written = out;
  op.call(written, in, group);
}
void AllReduce(const Tensor& tensor, int64_t group, ReduceOp reduce) {
  static const auto op = Find<void(Tensor&, int64_t, int64_t)>("lego::all_reduce_");
  Tensor written = tensor;
  op.call(written, group, static_cast<int64_t>(reduce));
}
void AllToAllInto(const Tensor& out, const Tensor& in, int64_t group) {
  static const auto op = Find<void(Tensor&, const Tensor&, int64_t)>("lego::all_to_all_into");
  Tensor written = out;
  op.call(written, in, group);
}
void RotateInto(const Tensor& out, const Tensor& in, int64_t group) {
  static const auto op = Find<void(Tensor&, const Tensor&, int64_t)>("lego::rotate_into");
  Tensor written = out;
  op.call(written, in, group);
}
void Broadcast(const Tensor& tensor, int64_t group, int64_t root) {
  static const auto op = Find<void(Tensor&, int64_t, int64_t)>("lego::broadcast_");
  Tensor written = tensor;
  op.call(written, group, root);
}
void Send(const Tensor& tensor, int64_t group, int64_t peer) {
  static const auto op = Find<void(const Tensor&, int64_t, int64_t)>("lego::send");
  op.call(tensor, group, peer);
}
void Recv(const Tensor& tensor, int64_t group, int64_t peer) {
  static const auto op = Find<void(Tensor&, int64_t, int64_t)>("lego::recv");
  Tensor written = tensor;
  op.call(written, group, peer);
}
void ResizeStorage(const Tensor& tensor, int64_t bytes) {
  static const auto op = Find<void(Tensor&, int64_t)>("lego::resize_storage_");
  Tensor written = tensor;
  op.call(written, bytes);
}
void RecordEvent(int64_t stream, int64_t event) {
  static const auto op = Find<void(int64_t, int64_t)>("lego::record_event");
  op.call(stream, event);
}
void WaitEvent(int64_t stream, int64_t event) {
  static const auto op = Find<void(int64_t, int64_t)>("lego::wait_event");
  op.call(stream, event);
}

}  // namespace legoai::comm

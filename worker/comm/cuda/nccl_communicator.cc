#include "worker/comm/cuda/nccl_communicator.h"

#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>
#include <nccl.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "proto/status.h"
#include "worker/comm/cuda/cuda_streams.h"
#include "worker/comm/cuda/device.h"
#include "worker/comm/cuda/symmetric_communicator.h"
#include "worker/comm/stream_marks.h"

namespace legoai::comm {
namespace {

std::string TextOf(ncclResult_t result, ncclComm_t comm) {
  return std::string(ncclGetErrorString(result)) + " (" + ncclGetLastError(comm) + ")";
}

absl::Status Check(ncclResult_t result, const std::string& what) {
  if (result == ncclSuccess) return absl::OkStatus();
  return absl::UnavailableError(what + " failed: " + TextOf(result, nullptr));
}

absl::StatusOr<ncclDataType_t> DataType(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Float: return ncclFloat32;
    case c10::ScalarType::Double: return ncclFloat64;
    case c10::ScalarType::BFloat16: return ncclBfloat16;
    case c10::ScalarType::Half: return ncclFloat16;
    case c10::ScalarType::Long: return ncclInt64;
    default: return absl::UnimplementedError(std::string("NCCL cannot reduce elements of type ") + c10::toString(dtype));
  }
}

ncclRedOp_t Reduction(ReduceOp op) { return op == ReduceOp::kMax ? ncclMax : ncclSum; }

// Calls block until they are enqueued, so that they cost no thread; what they become is asked of Health().
class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(ncclComm_t comm, std::string name, int64_t rank, int64_t size, std::chrono::milliseconds timeout)
      : comm_(comm), name_(std::move(name)), rank_(rank), size_(size), timeout_(timeout), calls_(timeout) {
    cudaGetDevice(&device_);
  }
  // Destroying waits until the peers have got what this rank sent, so not for ever.
  ~NcclCommunicator() override {
    if (comm_ != nullptr) EndInTime(device_, [comm = comm_] { ncclCommDestroy(comm); });
  }

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }

  absl::Status AllGather(void* out, const void* in, int64_t bytes) override {
    return Enqueue("all_gather", [&] { return ncclAllGather(in, out, bytes, ncclUint8, comm_, Stream()); });
  }
  absl::Status ReduceScatter(void* out, const void* in, int64_t count, c10::ScalarType dtype, ReduceOp op) override {
    ASSIGN_OR_RETURN(auto type, DataType(dtype));
    return Enqueue("reduce_scatter", [&] { return ncclReduceScatter(in, out, count, type, Reduction(op), comm_, Stream()); });
  }
  absl::Status AllReduce(void* data, int64_t count, c10::ScalarType dtype, ReduceOp op) override {
    ASSIGN_OR_RETURN(auto type, DataType(dtype));
    return Enqueue("all_reduce", [&] { return ncclAllReduce(data, data, count, type, Reduction(op), comm_, Stream()); });
  }
  absl::Status AllToAll(void* out, const void* in, int64_t bytes) override {
    return Enqueue("all_to_all", [&] {
      ncclResult_t result = ncclGroupStart();
      for (int64_t peer = 0; peer < size_ && result == ncclSuccess; ++peer) {
        result = ncclSend(static_cast<const char*>(in) + peer * bytes, bytes, ncclUint8, peer, comm_, Stream());
        if (result != ncclSuccess) break;
        result = ncclRecv(static_cast<char*>(out) + peer * bytes, bytes, ncclUint8, peer, comm_, Stream());
      }
      const ncclResult_t end = ncclGroupEnd();
      return result == ncclSuccess ? end : result;
    });
  }
  absl::Status Rotate(void* out, const void* in, int64_t bytes) override {
    const int next = static_cast<int>((rank_ + 1) % size_), previous = static_cast<int>((rank_ + size_ - 1) % size_);
    return Enqueue("rotate", [&] {
      ncclResult_t result = ncclGroupStart();
      if (result == ncclSuccess) result = ncclSend(in, bytes, ncclUint8, next, comm_, Stream());
      if (result == ncclSuccess) result = ncclRecv(out, bytes, ncclUint8, previous, comm_, Stream());
      const ncclResult_t end = ncclGroupEnd();
      return result == ncclSuccess ? end : result;
    });
  }
  absl::Status Broadcast(void* data, int64_t bytes, int64_t root) override {
    return Enqueue("broadcast",
                   [&] { return ncclBroadcast(data, data, bytes, ncclUint8, static_cast<int>(root), comm_, Stream()); });
  }
  absl::Status Send(const void* data, int64_t bytes, int64_t peer) override {
    if (peer == rank_) return NoPeer();
    return Enqueue("send", [&] { return ncclSend(data, bytes, ncclUint8, static_cast<int>(peer), comm_, Stream()); });
  }
  absl::Status Recv(void* data, int64_t bytes, int64_t peer) override {
    if (peer == rank_) return NoPeer();
    return Enqueue("recv", [&] { return ncclRecv(data, bytes, ncclUint8, static_cast<int>(peer), comm_, Stream()); });
  }

  absl::Status Health() override {
    if (comm_ == nullptr) return GivenUp();
    ncclResult_t state = ncclSuccess;
    RETURN_IF_ERROR(Check(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError"));
    if (state != ncclSuccess && state != ncclInProgress) {
      return absl::UnavailableError(name_ + ": NCCL lost a peer: " + TextOf(state, comm_));
    }
    const char* what = calls_.Overdue(OverdueCalls::Clock::now());
    if (what == nullptr) return absl::OkStatus();
    return absl::DeadlineExceededError(std::string(what) + " of " + name_ + " did not end within " +
                                       std::to_string(timeout_.count() / 1000) +
                                       " s: another rank of the group is gone or hangs");
  }
  void Abort() override {
    if (comm_ == nullptr) return;
    EndInTime(device_, [comm = comm_] { ncclCommAbort(comm); });
    comm_ = nullptr;
  }

 private:
  static cudaStream_t Stream() { return c10::cuda::getCurrentCUDAStream().stream(); }
  static absl::Status NoPeer() { return absl::InvalidArgumentError("a rank cannot send to itself or receive from itself"); }
  absl::Status GivenUp() const { return absl::UnavailableError(name_ + " was given up when a rank was lost"); }

  template <class F>
  absl::Status Enqueue(const char* what, F call) {
    if (comm_ == nullptr) return GivenUp();
    std::unique_ptr<StreamMark> begun = marks_.At(Stream());
    const ncclResult_t result = call();
    if (result != ncclSuccess) return absl::UnavailableError(what + (" of " + name_) + ": " + TextOf(result, comm_));
    calls_.Add(what, std::move(begun), marks_.At(Stream()));
    return absl::OkStatus();
  }

  ncclComm_t comm_;  // null: given up
  const std::string name_;
  const int64_t rank_, size_;
  const std::chrono::milliseconds timeout_;
  int device_ = 0;
  CudaMarks marks_;
  OverdueCalls calls_;
};

// The group's rank 0 makes the id, the others read it from the store.
absl::StatusOr<ncclUniqueId> ShareId(c10d::Store& store, const std::string& key, int64_t rank) {
  ncclUniqueId id;
  try {
    if (rank == 0) {
      RETURN_IF_ERROR(Check(ncclGetUniqueId(&id), "ncclGetUniqueId"));
      const auto* bytes = reinterpret_cast<const uint8_t*>(&id);
      store.set(key, std::vector<uint8_t>(bytes, bytes + sizeof id));
    } else {
      const std::vector<uint8_t> bytes = store.get(key);
      if (bytes.size() != sizeof id) return absl::InternalError("the NCCL id in the store has the wrong size");
      std::memcpy(&id, bytes.data(), sizeof id);
    }
  } catch (const std::exception& e) {
    return ToStatus("sharing the NCCL id of " + key, e);
  }
  return id;
}

}  // namespace

absl::StatusOr<CommunicatorFactory> MakeNcclFactory(const RendezvousOptions& options) {
  auto store = OpenStore(options);
  if (!store.ok()) return store.status();
  return CommunicatorFactory(
      [store = *store, world_rank = options.rank, timeout = options.timeout, symmetric = options.symmetric_tensor_parallel,
       say = options.say](
          const mesh::Group& group, int64_t rank, int64_t channel) -> absl::StatusOr<std::unique_ptr<Communicator>> {
        ASSIGN_OR_RETURN(auto gpu, OwnGpu());
        // By this variable NCCL takes ranks for those of several hosts, and connects them by the network, whatever their GPUs.
        if (const char* host = std::getenv("NCCL_HOSTID"); host != nullptr) gpu.id += std::string(" of host ") + host;
        RETURN_IF_ERROR(CheckOneGpuEach(*store, group.ranks.List(), world_rank, gpu));
        const std::string name = mesh::NameOf(group.dim);
        const std::string key = "nccl/" + name + "/" + std::to_string(group.ranks.first) + "/" + std::to_string(channel);
        ASSIGN_OR_RETURN(auto id, ShareId(*store, key, rank));
        ncclComm_t comm = nullptr;
        absl::Status status = Check(ncclCommInitRank(&comm, static_cast<int>(group.ranks.size), id, static_cast<int>(rank)),
                                    "connecting rank " + std::to_string(world_rank) + " (" + gpu.name + ") in group " + name);
        if (!status.ok()) return status;
        std::unique_ptr<Communicator> made(
            new NcclCommunicator(comm, "group " + name + " on " + gpu.name, rank, group.ranks.size, timeout));
        if (!symmetric || group.dim != mesh::Dim::kTp) return made;
        return WithSymmetricRotation(std::move(made), store, group, timeout, say);
      });
}

}  // namespace legoai::comm

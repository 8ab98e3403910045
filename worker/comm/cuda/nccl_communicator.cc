#include "worker/comm/cuda/nccl_communicator.h"

#include <c10/cuda/CUDAStream.h>
#include <nccl.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace legoai::comm {
namespace {

absl::Status Check(ncclResult_t result, const std::string& what) {
  if (result == ncclSuccess) return absl::OkStatus();
  return absl::UnavailableError(what + " failed: " + ncclGetErrorString(result) + " (" + ncclGetLastError(nullptr) + ")");
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

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(ncclComm_t comm, int64_t rank, int64_t size) : comm_(comm), rank_(rank), size_(size) {}
  ~NcclCommunicator() override { ncclCommDestroy(comm_); }

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }

  absl::Status AllGather(void* out, const void* in, int64_t bytes) override {
    return Check(ncclAllGather(in, out, bytes, ncclUint8, comm_, Stream()), "ncclAllGather");
  }
  absl::Status ReduceScatter(void* out, const void* in, int64_t count, c10::ScalarType dtype, ReduceOp op) override {
    auto type = DataType(dtype);
    if (!type.ok()) return type.status();
    return Check(ncclReduceScatter(in, out, count, *type, Reduction(op), comm_, Stream()), "ncclReduceScatter");
  }
  absl::Status AllReduce(void* data, int64_t count, c10::ScalarType dtype, ReduceOp op) override {
    auto type = DataType(dtype);
    if (!type.ok()) return type.status();
    return Check(ncclAllReduce(data, data, count, *type, Reduction(op), comm_, Stream()), "ncclAllReduce");
  }
  absl::Status AllToAll(void* out, const void* in, int64_t bytes) override {
    absl::Status status = Check(ncclGroupStart(), "ncclGroupStart");
    for (int64_t peer = 0; peer < size_ && status.ok(); ++peer) {
      status = Check(ncclSend(static_cast<const char*>(in) + peer * bytes, bytes, ncclUint8, peer, comm_, Stream()), "ncclSend");
      if (!status.ok()) break;
      status = Check(ncclRecv(static_cast<char*>(out) + peer * bytes, bytes, ncclUint8, peer, comm_, Stream()), "ncclRecv");
    }
    absl::Status end = Check(ncclGroupEnd(), "ncclGroupEnd");
    return status.ok() ? end : status;
  }
  absl::Status Broadcast(void* data, int64_t bytes, int64_t root) override {
    return Check(ncclBroadcast(data, data, bytes, ncclUint8, static_cast<int>(root), comm_, Stream()), "ncclBroadcast");
  }
  absl::Status Send(const void* data, int64_t bytes, int64_t peer) override {
    return Check(ncclSend(data, bytes, ncclUint8, static_cast<int>(peer), comm_, Stream()), "ncclSend");
  }
  absl::Status Recv(void* data, int64_t bytes, int64_t peer) override {
    return Check(ncclRecv(data, bytes, ncclUint8, static_cast<int>(peer), comm_, Stream()), "ncclRecv");
  }

 private:
  static cudaStream_t Stream() { return c10::cuda::getCurrentCUDAStream().stream(); }
  ncclComm_t comm_;
  int64_t rank_, size_;
};

// The group's rank 0 makes the id, the others read it from the store.
absl::StatusOr<ncclUniqueId> ShareId(c10d::Store& store, const std::string& key, int64_t rank) {
  ncclUniqueId id;
  try {
    if (rank == 0) {
      if (absl::Status status = Check(ncclGetUniqueId(&id), "ncclGetUniqueId"); !status.ok()) return status;
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
  return CommunicatorFactory([store = *store](const graph::Group& group, int64_t rank,
                                              int64_t channel) -> absl::StatusOr<std::unique_ptr<Communicator>> {
    const std::string key = "nccl/" + group.name + "/" + std::to_string(group.ranks.front()) + "/" + std::to_string(channel);
    auto id = ShareId(*store, key, rank);
    if (!id.ok()) return id.status();
    ncclComm_t comm = nullptr;
    absl::Status status = Check(ncclCommInitRank(&comm, static_cast<int>(group.ranks.size()), *id, static_cast<int>(rank)),
                                "ncclCommInitRank of " + key);
    if (!status.ok()) return status;
    return std::unique_ptr<Communicator>(new NcclCommunicator(comm, rank, group.ranks.size()));
  });
}

}  // namespace legoai::comm

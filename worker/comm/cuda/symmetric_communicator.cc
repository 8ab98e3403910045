#include "worker/comm/cuda/symmetric_communicator.h"

#include <c10/cuda/CUDAStream.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "proto/status.h"
#include "worker/comm/cuda/cuda_streams.h"
#include "worker/comm/cuda/device.h"
#include "worker/comm/cuda/symmetric_ring.h"
#include "worker/comm/stream_marks.h"

namespace legoai::comm {
namespace {

// Of a group in which nothing but rotations is asked for.
class RotatesOnly : public Communicator {
 public:
  RotatesOnly(int64_t rank, int64_t size) : rank_(rank), size_(size) {}
  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }
  absl::Status AllGather(void*, const void*, int64_t) override { return Refused(); }
  absl::Status ReduceScatter(void*, const void*, int64_t, c10::ScalarType, ReduceOp) override { return Refused(); }
  absl::Status AllReduce(void*, int64_t, c10::ScalarType, ReduceOp) override { return Refused(); }
  absl::Status AllToAll(void*, const void*, int64_t) override { return Refused(); }
  absl::Status Rotate(void*, const void*, int64_t) override { return Refused(); }
  absl::Status Broadcast(void*, int64_t, int64_t) override { return Refused(); }
  absl::Status Send(const void*, int64_t, int64_t) override { return Refused(); }
  absl::Status Recv(void*, int64_t, int64_t) override { return Refused(); }

 private:
  static absl::Status Refused() { return absl::UnimplementedError("a group without NCCL only rotates"); }
  const int64_t rank_, size_;
};

class SymmetricCommunicator : public Communicator {
 public:
  SymmetricCommunicator(std::unique_ptr<Communicator> others, std::unique_ptr<SymmetricRing> ring, std::string name,
                        std::chrono::milliseconds timeout)
      : others_(std::move(others)), ring_(std::move(ring)), name_(std::move(name)), timeout_(timeout), calls_(timeout) {
    cudaGetDevice(&device_);
  }
  // Ending the ring waits for the device, so not for ever.
  ~SymmetricCommunicator() override {
    EndInTime(device_, [ring = std::move(ring_)] {});
  }

  int64_t rank() const override { return others_->rank(); }
  int64_t size() const override { return others_->size(); }
  absl::Status AllGather(void* out, const void* in, int64_t bytes) override { return others_->AllGather(out, in, bytes); }
  absl::Status ReduceScatter(void* out, const void* in, int64_t count, c10::ScalarType dtype, ReduceOp op) override {
    return others_->ReduceScatter(out, in, count, dtype, op);
  }
  absl::Status AllReduce(void* data, int64_t count, c10::ScalarType dtype, ReduceOp op) override {
    return others_->AllReduce(data, count, dtype, op);
  }
  absl::Status AllToAll(void* out, const void* in, int64_t bytes) override { return others_->AllToAll(out, in, bytes); }
  absl::Status Broadcast(void* data, int64_t bytes, int64_t root) override { return others_->Broadcast(data, bytes, root); }
  absl::Status Send(const void* data, int64_t bytes, int64_t peer) override { return others_->Send(data, bytes, peer); }
  absl::Status Recv(void* data, int64_t bytes, int64_t peer) override { return others_->Recv(data, bytes, peer); }

  absl::Status Rotate(void* out, const void* in, int64_t bytes) override {
    if (given_up_) return absl::UnavailableError(name_ + " was given up when a rank was lost");
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
    std::unique_ptr<StreamMark> begun = marks_.At(stream);
    const absl::Status status = ring_->Rotate(out, in, bytes);
    if (!status.ok()) return absl::Status(status.code(), "rotate of " + name_ + ": " + std::string(status.message()));
    calls_.Add("rotate", std::move(begun), marks_.At(stream));
    return absl::OkStatus();
  }

  absl::Status Health() override {
    RETURN_IF_ERROR(others_->Health());
    const char* what = calls_.Overdue(OverdueCalls::Clock::now());
    if (what == nullptr) return absl::OkStatus();
    return absl::DeadlineExceededError(std::string(what) + " of " + name_ + " did not end within " +
                                       std::to_string(timeout_.count() / 1000) +
                                       " s: another rank of the group is gone or hangs");
  }
  void Abort() override {
    if (!given_up_) ring_->Release();
    given_up_ = true;
    others_->Abort();
  }

 private:
  const std::unique_ptr<Communicator> others_;
  std::shared_ptr<SymmetricRing> ring_;
  const std::string name_;
  const std::chrono::milliseconds timeout_;
  int device_ = 0;
  bool given_up_ = false;
  CudaMarks marks_;
  OverdueCalls calls_;
};

absl::StatusOr<std::unique_ptr<SymmetricRing>> ConnectRing(const c10::intrusive_ptr<c10d::Store>& store, const mesh::Group& group,
                                                           int64_t channel, int64_t rank) {
  const std::string prefix = std::string("symmetric/") + mesh::NameOf(group.dim) + "/" + std::to_string(group.ranks.first) + "/" +
                             std::to_string(channel);
  return SymmetricRing::Connect(c10::make_intrusive<c10d::PrefixStore>(prefix, store), rank, group.ranks.size);
}

// "group tp of ranks 0 to 7".
std::string NameOf(const mesh::Group& group) {
  return std::string("group ") + mesh::NameOf(group.dim) + " of ranks " + std::to_string(group.ranks.first) + " to " +
         std::to_string(group.ranks.last());
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> WithSymmetricRotation(std::unique_ptr<Communicator> others,
                                                                    const c10::intrusive_ptr<c10d::Store>& store,
                                                                    const mesh::Group& group, std::chrono::milliseconds timeout,
                                                                    const std::function<void(const std::string&)>& say) {
  const int64_t rank = others->rank();
  auto ring = ConnectRing(store, group, kCompute, rank);
  if (!ring.ok() && !absl::IsFailedPrecondition(ring.status())) return ring.status();
  if (rank == 0 && say) {
    const std::string which = ring.ok() ? " through symmetric memory"
                                        : " by NCCL, not through symmetric memory: " + std::string(ring.status().message());
    say("asynchronous tensor parallel: " + NameOf(group) + " exchanges tokens" + which);
  }
  if (!ring.ok()) return others;
  return std::unique_ptr<Communicator>(
      new SymmetricCommunicator(std::move(others), *std::move(ring), NameOf(group), timeout));
}

absl::StatusOr<CommunicatorFactory> MakeSymmetricFactory(const RendezvousOptions& options) {
  ASSIGN_OR_RETURN(auto store, OpenStore(options));
  return CommunicatorFactory([store = std::move(store), timeout = options.timeout](
                                 const mesh::Group& group, int64_t rank,
                                 int64_t channel) -> absl::StatusOr<std::unique_ptr<Communicator>> {
    ASSIGN_OR_RETURN(auto ring, ConnectRing(store, group, channel, rank));
    return std::unique_ptr<Communicator>(new SymmetricCommunicator(
        std::make_unique<RotatesOnly>(rank, group.ranks.size), std::move(ring), NameOf(group), timeout));
  });
}

}  // namespace legoai::comm

#include "simulator/measure/lone_runtime.h"

#include <cstring>
#include <functional>

#include "worker/comm/communicator.h"
#include "worker/comm/streams.h"

namespace legoai::sim {
namespace {

// Plays the other ranks: they have what this one has. Finite numbers stay finite.
class EchoCommunicator : public comm::Communicator {
 public:
  EchoCommunicator(int64_t rank, int64_t size) : rank_(rank), size_(size) {}
  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }
  absl::Status AllGather(void* out, const void* in, int64_t bytes) override {
    for (int64_t i = 0; i < size_; ++i) std::memmove(static_cast<char*>(out) + i * bytes, in, bytes);
    return absl::OkStatus();
  }
  absl::Status ReduceScatter(void* out, const void* in, int64_t count, c10::ScalarType dtype, comm::ReduceOp) override {
    const size_t bytes = count * c10::elementSize(dtype);
    std::memmove(out, static_cast<const char*>(in) + rank_ * bytes, bytes);
    return absl::OkStatus();
  }
  absl::Status AllReduce(void*, int64_t, c10::ScalarType, comm::ReduceOp) override { return absl::OkStatus(); }
  absl::Status AllToAll(void* out, const void* in, int64_t bytes) override {
    std::memmove(out, in, bytes * size_);
    return absl::OkStatus();
  }
  absl::Status Rotate(void* out, const void* in, int64_t bytes) override {
    std::memmove(out, in, bytes);
    return absl::OkStatus();
  }
  absl::Status Broadcast(void*, int64_t, int64_t) override { return absl::OkStatus(); }
  absl::Status Send(const void*, int64_t, int64_t) override { return absl::OkStatus(); }
  absl::Status Recv(void* data, int64_t bytes, int64_t) override {
    std::memset(data, 0, bytes);
    return absl::OkStatus();
  }

 private:
  const int64_t rank_, size_;
};

// Side streams run at once: what a stream waits for was dispatched before.
class ImmediateStreams : public comm::Streams {
 public:
  absl::Status Post(int64_t, std::function<absl::Status()> work) override { return work(); }
  absl::Status Record(int64_t, int64_t) override { return absl::OkStatus(); }
  absl::Status Wait(int64_t, int64_t) override { return absl::OkStatus(); }
  absl::Status Drain() override { return absl::OkStatus(); }
};

}  // namespace

absl::StatusOr<std::unique_ptr<comm::Runtime>> MakeLoneRuntime(int64_t rank, const std::vector<mesh::Group>& groups) {
  auto echo = [](const mesh::Group& group, int64_t rank, int64_t) -> absl::StatusOr<std::unique_ptr<comm::Communicator>> {
    return std::make_unique<EchoCommunicator>(rank, group.ranks.size);
  };
  return comm::Runtime::Create(rank, groups, std::make_unique<ImmediateStreams>(), echo);
}

}  // namespace legoai::sim

#include "worker/comm/communicator.h"

#include <cstring>

namespace legoai::comm {
namespace {

class LocalCommunicator : public Communicator {
 public:
  explicit LocalCommunicator(Streams* streams) : streams_(streams) {}
  int64_t rank() const override { return 0; }
  int64_t size() const override { return 1; }
  absl::Status AllGather(void* out, const void* in, int64_t bytes) override { return Copy(out, in, bytes); }
  absl::Status ReduceScatter(void* out, const void* in, int64_t count, c10::ScalarType dtype, ReduceOp) override {
    return Copy(out, in, count * c10::elementSize(dtype));
  }
  absl::Status AllReduce(void*, int64_t, c10::ScalarType, ReduceOp) override { return absl::OkStatus(); }
  absl::Status AllToAll(void* out, const void* in, int64_t bytes) override { return Copy(out, in, bytes); }
  absl::Status Rotate(void* out, const void* in, int64_t bytes) override { return Copy(out, in, bytes); }
  absl::Status Broadcast(void*, int64_t, int64_t) override { return absl::OkStatus(); }
  absl::Status Send(const void*, int64_t, int64_t) override { return NoPeer(); }
  absl::Status Recv(void*, int64_t, int64_t) override { return NoPeer(); }

 private:
  absl::Status Copy(void* out, const void* in, int64_t bytes) {
    if (streams_ != nullptr) return streams_->Copy(out, in, bytes);
    if (bytes > 0 && out != in) std::memmove(out, in, bytes);
    return absl::OkStatus();
  }
  static absl::Status NoPeer() {
    return absl::InvalidArgumentError("a group of one rank has no peer to send to or receive from");
  }
  Streams* streams_;
};

}  // namespace

std::unique_ptr<Communicator> MakeLocalCommunicator(Streams* streams) { return std::make_unique<LocalCommunicator>(streams); }

}  // namespace legoai::comm

#include "worker/comm/testing/fault_injection.h"

#include <signal.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "core/process/mutex.h"

namespace legoai::comm::testing {

struct FaultClock::State {
  Mutex mutex;
  Moment now ABSL_GUARDED_BY(mutex){0, 0};
};

FaultClock::FaultClock() : state_(std::make_unique<State>()) {}
FaultClock::~FaultClock() = default;

void FaultClock::BeginStep(int64_t step) {
  const MutexLock lock(state_->mutex);
  state_->now = {step, 0};
}

FaultClock::Moment FaultClock::Next() {
  const MutexLock lock(state_->mutex);
  Moment moment = state_->now;
  ++state_->now.sequence;
  return moment;
}

namespace {

class FaultyCommunicator : public Communicator {
 public:
  FaultyCommunicator(std::unique_ptr<Communicator> inner, Fault fault, FaultClock* clock)
      : inner_(std::move(inner)), fault_(fault), clock_(clock) {}

  int64_t rank() const override { return inner_->rank(); }
  int64_t size() const override { return inner_->size(); }
  absl::Status AllGather(void* out, const void* in, int64_t bytes) override {
    return Do([&] { return inner_->AllGather(out, in, bytes); });
  }
  absl::Status ReduceScatter(void* out, const void* in, int64_t count, c10::ScalarType dtype, ReduceOp op) override {
    return Do([&] { return inner_->ReduceScatter(out, in, count, dtype, op); });
  }
  absl::Status AllReduce(void* data, int64_t count, c10::ScalarType dtype, ReduceOp op) override {
    return Do([&] { return inner_->AllReduce(data, count, dtype, op); });
  }
  absl::Status AllToAll(void* out, const void* in, int64_t bytes) override {
    return Do([&] { return inner_->AllToAll(out, in, bytes); });
  }
  absl::Status Broadcast(void* data, int64_t bytes, int64_t root) override {
    return Do([&] { return inner_->Broadcast(data, bytes, root); });
  }
  absl::Status Send(const void* data, int64_t bytes, int64_t peer) override {
    return Do([&] { return inner_->Send(data, bytes, peer); });
  }
  absl::Status Recv(void* data, int64_t bytes, int64_t peer) override {
    return Do([&] { return inner_->Recv(data, bytes, peer); });
  }

 private:
  template <class F>
  absl::Status Do(F&& operation) {
    const FaultClock::Moment moment = clock_->Next();
    if (moment.step != fault_.step || moment.sequence != fault_.sequence) return operation();
    switch (fault_.kind) {
      case Fault::Kind::kKill: raise(SIGKILL); break;
      case Fault::Kind::kHang:
        for (;;) pause();
      case Fault::Kind::kError: break;
    }
    return absl::UnavailableError("an injected fault at step " + std::to_string(moment.step) + ", operation " +
                                  std::to_string(moment.sequence));
  }

  std::unique_ptr<Communicator> inner_;
  Fault fault_;
  FaultClock* clock_;
};

}  // namespace

CommunicatorFactory WithFault(CommunicatorFactory factory, int64_t world_rank, Fault fault, FaultClock* clock) {
  if (world_rank != fault.rank) return factory;
  return [factory = std::move(factory), fault, clock](const mesh::Group& group, int64_t rank,
                                                      int64_t channel) -> absl::StatusOr<std::unique_ptr<Communicator>> {
    auto inner = factory(group, rank, channel);
    if (!inner.ok()) return inner.status();
    return std::unique_ptr<Communicator>(new FaultyCommunicator(*std::move(inner), fault, clock));
  };
}

}  // namespace legoai::comm::testing

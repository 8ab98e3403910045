#include "simulator/measure/step_replay.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>

#include "proto/status.h"
#include "worker/comm/communicator.h"
#include "worker/comm/runtime.h"
#include "worker/comm/streams.h"
#include "worker/graph/executor.h"
#include "worker/graph/ivalue_constant.h"

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

// Memory of the storage's size at the start of a step, which may be none.
at::Tensor MakeInput(const graph::Trace& trace, uint32_t value) {
  const graph::Value& record = trace.values[value];
  const graph::Geometry& geometry = trace.geometries[record.geometry];
  const int64_t bytes = trace.storages[record.storage].bytes;
  const auto options = at::TensorOptions().dtype(graph::ToScalarType(geometry.dtype));
  at::Tensor tensor = at::empty({bytes / static_cast<int64_t>(options.dtype().itemsize())}, options);
  if (tensor.is_floating_point()) {
    tensor.uniform_(0.01, 0.02);  // positive: second moments are among them
  } else {
    tensor.zero_();
  }
  at::Tensor shaped = at::empty({0}, options);
  shaped.unsafeGetTensorImpl()->set_storage_keep_dtype(tensor.storage());
  shaped.unsafeGetTensorImpl()->set_sizes_and_strides(geometry.sizes, geometry.strides, geometry.offset);
  return shaped;
}

absl::StatusOr<std::unique_ptr<graph::Executor>> MakeExecutor(const graph::Trace& trace) {
  auto executor = graph::Executor::Create(trace, c10::kCPU);
  if (!executor.ok()) return executor.status();
  for (const auto& [name, value] : trace.inputs) {
    absl::Status status = (*executor)->Bind(name, MakeInput(trace, value));
    if (!status.ok()) return status;
  }
  return executor;
}

absl::StatusOr<std::vector<double>> TimeRuns(graph::Executor& executor, int64_t instructions, Replays replays,
                                             std::atomic<int64_t>* done) {
  std::vector<std::vector<double>> runs(replays.timed);
  std::vector<double> unused;
  const int64_t before = done->load();
  for (int i = 0; i < replays.all(); ++i) {
    absl::Status status = executor.RunTimed(i < replays.warm_up ? &unused : &runs[i - replays.warm_up], done);
    if (!status.ok()) return status;
    done->store(before + (i + 1) * instructions);  // views and the like are carried out by nobody
  }
  return TypicalSeconds(std::move(runs));
}

}  // namespace

std::vector<double> TypicalSeconds(std::vector<std::vector<double>> runs) {
  auto whole = [](const std::vector<double>& run) { return std::accumulate(run.begin(), run.end(), 0.0); };
  std::sort(runs.begin(), runs.end(), [&](const auto& a, const auto& b) { return whole(a) < whole(b); });
  const size_t out = runs.size() / 4, in = runs.size() - 2 * out;
  std::vector<double> seconds(runs.front().size());
  for (size_t run = out; run < out + in; ++run) {
    for (size_t i = 0; i < seconds.size(); ++i) seconds[i] += runs[run][i] / static_cast<double>(in);
  }
  return seconds;
}

absl::StatusOr<std::vector<double>> ReplayStep(const graph::Trace& trace, int64_t rank, Replays replays,
                                               std::atomic<int64_t>* done) {
  auto echo = [](const mesh::Group& group, int64_t rank, int64_t) -> absl::StatusOr<std::unique_ptr<comm::Communicator>> {
    return std::make_unique<EchoCommunicator>(rank, group.ranks.size);
  };
  ASSIGN_OR_RETURN(auto runtime, comm::Runtime::Create(rank, trace.groups, std::make_unique<ImmediateStreams>(), echo));
  comm::RuntimeScope scope(runtime.get());
  ASSIGN_OR_RETURN(auto executor, MakeExecutor(trace));
  std::atomic<int64_t> unread = 0;
  return TimeRuns(*executor, static_cast<int64_t>(trace.instructions.size()), replays, done == nullptr ? &unread : done);
}

}  // namespace legoai::sim

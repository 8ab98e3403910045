#include "simulator/capture/capture.h"

#include <chrono>
#include <memory>
#include <utility>

#include "proto/status.h"
#include "worker/comm/runtime.h"
#include "worker/comm/streams.h"
#include "worker/graph/fake/fake_device.h"
#include "worker/train/record_step.h"

namespace legoai::sim {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

absl::StatusOr<graph::Trace> RecordStep(graph::Recorder& recorder, train::TrainStep& step, train::TrainStep::Result* result) {
  train::TrainStep::Result unseen;
  return train::RecordStep(recorder, step, [&] { return step.Run(); }, result != nullptr ? result : &unseen);
}

absl::StatusOr<CaptureResult> CaptureStep(const parallel::ResolvedRecipe& resolved, int64_t rank,
                                          const std::vector<parallel::LoweredAction>& only) {
  ASSIGN_OR_RETURN(auto runtime, comm::Runtime::Create(rank, resolved.mesh().Groups(rank), comm::MakeFakeStreams(), nullptr));
  comm::RuntimeScope scope(runtime.get());
  FakeDevice device;
  graph::Recorder recorder(&device);
  recorder.SetRecording(false);
  CaptureResult result;
  const auto start = Clock::now();
  ASSIGN_OR_RETURN(auto step, train::TrainStep::Build(resolved, c10::kCPU, /*materialize=*/false));
  if (!only.empty()) step->PerformOnly(only);
  result.build_seconds = SecondsSince(start);
  const auto built = Clock::now();
  ASSIGN_OR_RETURN(auto trace, RecordStep(recorder, *step));
  result.capture_seconds = SecondsSince(built);
  result.trace = std::move(trace);
  return result;
}

}  // namespace legoai::sim

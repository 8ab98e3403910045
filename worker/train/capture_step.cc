#include "worker/train/capture_step.h"

#include <chrono>
#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "proto/status.h"
#include "worker/comm/runtime.h"
#include "worker/comm/streams.h"
#include "worker/graph/fake/fake_device.h"
#include "worker/graph/recorder.h"
#include "worker/train/record_step.h"
#include "worker/train/train_step.h"

namespace legoai::train {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

absl::StatusOr<CaptureResult> Capture(const parallel::ResolvedRecipe& resolved, int64_t rank,
                                      absl::FunctionRef<absl::StatusOr<graph::Trace>(graph::Recorder&, TrainStep&)> record) {
  ASSIGN_OR_RETURN(auto runtime, comm::Runtime::Create(rank, resolved.mesh().Groups(rank), comm::MakeFakeStreams(), nullptr));
  comm::RuntimeScope scope(runtime.get());
  sim::FakeDevice device;
  graph::Recorder recorder(&device);
  recorder.SetRecording(false);
  CaptureResult result;
  const auto start = Clock::now();
  ASSIGN_OR_RETURN(auto step, TrainStep::Build(resolved, c10::kCPU, /*materialize=*/false));
  result.build_seconds = SecondsSince(start);
  const auto built = Clock::now();
  ASSIGN_OR_RETURN(result.trace, record(recorder, *step));
  result.capture_seconds = SecondsSince(built);
  return result;
}

}  // namespace

absl::StatusOr<CaptureResult> CaptureStep(const parallel::ResolvedRecipe& resolved, int64_t rank,
                                          const std::vector<parallel::LoweredAction>& only) {
  return Capture(resolved, rank, [&](graph::Recorder& recorder, TrainStep& step) {
    if (!only.empty()) step.PerformOnly(only);
    TrainStep::Result unseen;
    return RecordStep(recorder, step, [&] { return step.Run(); }, &unseen);
  });
}

absl::StatusOr<CaptureResult> CaptureEvaluation(const parallel::ResolvedRecipe& resolved, int64_t rank) {
  return Capture(resolved, rank, [](graph::Recorder& recorder, TrainStep& step) { return RecordEvaluation(recorder, step); });
}

}  // namespace legoai::train

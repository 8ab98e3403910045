// The training step of one rank on the fake device (worker/train/capture_step.h), and a step recorded as it is captured.
#pragma once

#include "absl/status/statusor.h"
#include "core/trace/trace.h"
#include "worker/graph/recorder.h"
#include "worker/train/capture_step.h"
#include "worker/train/train_step.h"

namespace legoai::sim {

using train::CaptureResult;
using train::CaptureStep;

// Records one step, fake (as CaptureStep does) or real, with a recorder that is not recording yet; afterwards the recorder is
// finished. `result` receives the result of the step; may be null.
absl::StatusOr<graph::Trace> RecordStep(graph::Recorder& recorder, train::TrainStep& step,
                                        train::TrainStep::Result* result = nullptr);

}  // namespace legoai::sim

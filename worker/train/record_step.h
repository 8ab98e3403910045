// A training step, or an evaluation, as a Trace: what is captured (capture_step.h), and what a trainer traces of a real step. Not
// thread-safe.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/trace/trace.h"
#include "worker/graph/recorder.h"
#include "worker/train/train_step.h"

namespace legoai::train {

// Records what `run` runs of `step`, its Run(). `recorder` is not recording yet. What lives across steps is named, so are loss
// and gradient norm; the Trace has the groups of the current runtime. Errors: the step's.
absl::StatusOr<graph::Trace> RecordStep(graph::Recorder& recorder, TrainStep& step,
                                        absl::FunctionRef<absl::StatusOr<TrainStep::Result>()> run, TrainStep::Result* result);

// The same of Evaluate(), whose only output is the loss.
absl::StatusOr<graph::Trace> RecordEvaluation(graph::Recorder& recorder, TrainStep& step);

}  // namespace legoai::train

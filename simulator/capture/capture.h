// Captures the Trace of one rank's training step for a model and a recipe, for any world size, in one process and without data:
// the trainer's own step runs on the fake device with a fake communication runtime (docs/architecture.md).
//
// One capture at a time in a process. Errors: those of TrainStep; Internal naming an operator that cannot be captured.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/recipe/resolved_recipe.h"
#include "core/schedule/lowering.h"
#include "core/trace/trace.h"
#include "proto/legoai/v1/model.pb.h"
#include "proto/legoai/v1/recipe.pb.h"
#include "worker/graph/recorder.h"
#include "worker/train/train_step.h"

namespace legoai::sim {

struct CaptureResult {
  graph::Trace trace;  // inputs by TrainStep::State()'s names; outputs "loss" and "grad_norm"
  double build_seconds = 0, capture_seconds = 0;
};

// `only`: the pipeline's actions to capture; empty: the whole step.
absl::StatusOr<CaptureResult> CaptureStep(const parallel::ResolvedRecipe& resolved, int64_t rank,
                                          const std::vector<parallel::LoweredAction>& only = {});

// Records one step, fake (as CaptureStep does) or real, with a recorder that is not recording yet; afterwards the recorder is
// finished. `result` receives the result of the step; may be null.
absl::StatusOr<graph::Trace> RecordStep(graph::Recorder& recorder, train::TrainStep& step,
                                        train::TrainStep::Result* result = nullptr);

}  // namespace legoai::sim

// The Trace of one rank's training step, for any model, recipe and number of ranks, in this process and without data: the step
// of train_step.h runs on a fake device with a fake communication runtime (docs/architecture.md). The simulator predicts from it,
// and a trainer with compile.enable runs it.
//
// The runtime that was current before is current again afterwards; nothing may be in flight on it. One capture at a time in a
// process. Errors: those of TrainStep; Internal naming an operator that cannot be captured.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/recipe/resolved_recipe.h"
#include "core/schedule/lowering.h"
#include "core/trace/trace.h"

namespace legoai::train {

struct CaptureResult {
  graph::Trace trace;  // inputs by TrainStep::State()'s names; outputs "loss" and, of a step, "grad_norm"
  double build_seconds = 0, capture_seconds = 0;
};

// `only`: the pipeline's actions to capture; empty: the whole step.
absl::StatusOr<CaptureResult> CaptureStep(const parallel::ResolvedRecipe& resolved, int64_t rank,
                                          const std::vector<parallel::LoweredAction>& only = {});

// The same of TrainStep::Evaluate().
absl::StatusOr<CaptureResult> CaptureEvaluation(const parallel::ResolvedRecipe& resolved, int64_t rank);

}  // namespace legoai::train

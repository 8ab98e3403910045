// The Traces of a whole pipeline: of one rank of every stage, that is of every rank of the group "pp", as those beside it do the
// same. What is alike is captured once (instance_actions.h): stages in the middle whose chunks have as many layers and no dropout,
// and microbatches; the Traces are those of CaptureStep.
//
// One capture at a time in a process.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/recipe/resolved_recipe.h"
#include "core/trace/trace.h"
#include "proto/legoai/v1/model.pb.h"
#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::sim {

struct CapturedStage {
  int64_t rank = 0;
  graph::Trace trace;
  bool instanced = false;  // from the capture of a part, or of another stage
};

// Errors: those of CaptureStep.
absl::StatusOr<std::vector<CapturedStage>> CaptureStages(const parallel::ResolvedRecipe& resolved);

}  // namespace legoai::sim

// The Traces of a whole pipeline: of one rank of every stage, that is of every rank of the group "pp", as those beside it do the
// same. What is alike is captured once (instance_actions.h): stages in the middle whose chunks have as many layers and no
// dropout, and microbatches; flattened, the Traces are those of CaptureStep.
//
// One capture at a time in a process.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "core/recipe/resolved_recipe.h"
#include "core/trace/instances.h"
#include "core/trace/trace.h"
#include "proto/legoai/v1/model.pb.h"
#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::sim {

// One rank's step.
struct CapturedStage {
  int64_t rank = 0;
  std::shared_ptr<const graph::Trace> trace;  // stages that are alike share it
  // What the step runs of the Trace; nothing: all of it, once.
  std::optional<graph::Instances> instances = std::nullopt;

  // The same of one level.
  graph::Trace Flat() const { return instances ? graph::Flatten(*trace, *instances) : *trace; }
};

// Errors: those of CaptureStep.
absl::StatusOr<std::vector<CapturedStage>> CaptureStages(const parallel::ResolvedRecipe& resolved);

}  // namespace legoai::sim

// The Traces of a whole pipeline: one rank per stage, that is every rank of the group "pp", as the other ranks of a stage do the
// same. Equal parts are captured once (instance_actions.h): microbatches, and middle stages without dropout whose chunks have
// equally many layers. Flattened, the Traces equal those of CaptureStep.
//
// Where the recipe has passes (core/trace/passes), each stage's Trace is flattened and they are run over it: what is predicted is
// what trains. Nothing is shared between stages then.
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
#include "core/trace/passes/pipeline.h"
#include "core/trace/trace.h"
#include "proto/legoai/v1/model.pb.h"
#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::sim {

// One rank's step.
struct CapturedStage {
  int64_t rank = 0;
  std::shared_ptr<const graph::Trace> trace;  // shared by stages that are alike
  // The instances that the step runs; nothing: the whole Trace, once.
  std::optional<graph::Instances> instances = std::nullopt;

  // The same as a Trace of one level.
  graph::Trace Flat() const { return instances ? graph::Flatten(*trace, *instances) : *trace; }
};

// The stages of one recipe, captured as they are asked for. What is given does not depend on the order. Not thread-safe.
class StageCapture {
 public:
  // `resolved` must outlive it. `options.dump_directory` has a folder "rankN" for each stage where there are several. `reports`,
  // of each stage in turn, may be null.
  explicit StageCapture(const parallel::ResolvedRecipe& resolved, const graph::PassOptions& options = {},
                        std::vector<graph::PassReport>* reports = nullptr);
  ~StageCapture();

  int64_t stages() const;
  // To be asked for once. Errors: those of CaptureStep and RunPasses.
  absl::StatusOr<CapturedStage> Stage(int64_t stage);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// All of them, in the order of the pipeline.
absl::StatusOr<std::vector<CapturedStage>> CaptureStages(const parallel::ResolvedRecipe& resolved,
                                                         const graph::PassOptions& options = {},
                                                         std::vector<graph::PassReport>* reports = nullptr);

}  // namespace legoai::sim

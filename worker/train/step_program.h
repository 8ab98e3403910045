// A training step, or an evaluation, as a program: what a trainer runs in place of TrainStep::Run() and Evaluate() when the
// recipe has compile.enable.
//
// The program is the rank's own step, captured without data (capture_step.h) and rewritten by the passes that the recipe asks for
// (core/trace/passes/pipeline.h). It runs on the tensors of a TrainStep in place, so whatever reads or writes those (checkpoints,
// exports, the next batch) knows nothing of it, and gives the same bits, but for roundings where a pass says so. Not thread-safe.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/recipe/resolved_recipe.h"
#include "core/trace/trace.h"
#include "proto/legoai/v1/recipe.pb.h"
#include "worker/graph/executor.h"
#include "worker/graph/kernel_files.h"
#include "worker/train/train_step.h"

namespace legoai::train {

class StepProgram {
 public:
  enum class Part { kStep, kEvaluation };

  // Captures the part for the rank of the current runtime, on which nothing may be in flight, as a program for `device`;
  // communicates with nobody.
  // Compiles fused kernels that no rank of this machine has compiled before; `goes_on` is called meanwhile, and may be empty.
  // Errors: those of CaptureStep and of graph::PrepareKernels; Internal where the program that was fused is not the one that was
  // captured (graph::PassFindings); Unimplemented with what would be frozen into the program.
  static absl::StatusOr<std::unique_ptr<StepProgram>> Capture(const parallel::ResolvedRecipe& resolved, Part part,
                                                              c10::Device device, const graph::GoesOn& goes_on = nullptr);

  const graph::Trace& trace() const { return trace_; }
  // Why it cannot run its fused operators; empty where it can. Only of a recipe that lets it fall back: else Capture fails.
  const std::string& kernels_fault() const { return kernels_fault_; }
  // Becomes the program that the step is without compile.fuse. Of a recipe that fuses and lets it fall back, before Bind.
  void LeaveUnfused();
  // What a log should say of its kernels: which compiler compiled how many, what was built again and why.
  const std::vector<std::string>& notes() const { return notes_; }

  // Makes ready to run on the state of `step`, which must outlive the program and is of the same recipe and rank. Gathers
  // parameters that stay whole, so all ranks call it at once.
  absl::Status Bind(TrainStep& step);

  // Runs it on the step's current inputs. Of an evaluation the gradient norm is undefined. `traced`: the timeline that listens
  // has every operator. Errors: those of operators and communication.
  absl::StatusOr<TrainStep::Result> Run(bool traced = false);

 private:
  StepProgram(graph::Trace trace, c10::Device device) : trace_(std::move(trace)), device_(device) {}

  absl::Status PrepareKernels(const graph::GoesOn& goes_on);

  graph::Trace trace_;
  const c10::Device device_;
  std::optional<graph::Trace> unfused_;
  std::string kernels_fault_;
  std::vector<std::string> notes_;
  std::unique_ptr<graph::Executor> executor_;
};

// Of one rank. None: the step's own code runs. Batches are filled up, so a step has one shape, and so has an evaluation.
struct StepPrograms {
  std::unique_ptr<StepProgram> step, evaluation;
};

// Those that the recipe wants: for evaluations where it has any. Communicates with nobody. `goes_on`, errors: as of Capture.
absl::StatusOr<StepPrograms> CapturePrograms(const parallel::ResolvedRecipe& resolved, c10::Device device,
                                             const graph::GoesOn& goes_on = nullptr);

// All ranks call it at once: they have programs that call the same collectives, bound to `step`, or none has. Where a rank could
// not capture its own, and the recipe lets it fall back, there are none and `warning` says why; where one has no kernels, or they
// were built by other compilers, flags or processors than on other ranks, all then have the program without fused operators.
// Errors, the same on each rank: FieldError of compile.enable, and of compile.fuse where kernels were built otherwise; those of
// communication.
absl::StatusOr<StepPrograms> AdoptPrograms(absl::StatusOr<StepPrograms> captured, const v1::CompileSection& section,
                                           TrainStep& step, c10::Device device, std::string* warning);

}  // namespace legoai::train

// The training loop of one rank: from the Start that the launcher sent to the end of training.
//
// Resumes if Start says so; evaluates on held-out text, saves and logs as the recipe says; stops at a step boundary when any rank
// was asked to, after saving if requested; fails when the loss is not finite, but not when a step cannot be measured. Training
// continues while checkpoints wait for their verdicts, but does not end before they arrive, unless its work is to be discarded.
// Converts torch's exceptions to a Status. Not thread-safe; the link is used from this thread too.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/recipe/resolved_recipe.h"
#include "core/trace/trace.h"
#include "worker/comm/step_timeline.h"
#include "worker/launch/trainer_link.h"
#include "worker/train/batch_source.h"
#include "worker/train/machine.h"
#include "worker/train/metrics.h"
#include "worker/train/step_breakdown.h"
#include "worker/train/step_program.h"
#include "worker/train/train_step.h"
#include "worker/train/trainer_state.h"

namespace legoai::train {

class Trainer {
 public:
  // `link` is not owned.
  explicit Trainer(launch::TrainerLink& link);

  // How it ended: FINISHED or STOPPED. Errors: those of recipe, data, device and checkpoint as FieldErrors; Unavailable and
  // DeadlineExceeded if another rank is missing; FieldError for optimizer.lr if the loss is not finite, or for
  // training.mixed_precision_param if float16 cannot hold it (loss_scale.h).
  absl::StatusOr<v1::Exit::Cause> Run();

  // Optimizer steps done.
  int64_t step() const { return step_; }

 private:
  absl::Status SetUp();
  absl::Status MakeStep(const parallel::ResolvedRecipe& resolved);
  absl::Status Compile(const parallel::ResolvedRecipe& resolved);
  absl::Status OpenText(const parallel::ResolvedRecipe& resolved, int64_t next_sample);
  absl::StatusOr<v1::Exit::Cause> Loop();
  absl::Status DoStep();
  absl::Status RunStep(int64_t step, absl::Duration data);
  absl::StatusOr<graph::Trace> Record(absl::FunctionRef<absl::StatusOr<TrainStep::Result>()> run);
  absl::Status TellUnmeasured(int64_t step, const absl::Status& why);
  absl::Status TellUntraced(int64_t step, const absl::Status& why);
  absl::Status WriteTrace(int64_t step, const graph::Trace& trace, const comm::StepTimes& times, const StepBreakdown& breakdown);
  bool Traces(int64_t step) const;
  absl::Status CheckFinite();
  absl::Status CheckScaled(const LossScale& loss_scale);
  absl::Status AfterStep(bool last);
  absl::Status Evaluate();
  absl::StatusOr<at::Tensor> HeldOutLoss();
  absl::Status Report();
  absl::Status Save();
  absl::Status AwaitVerdicts();
  absl::StatusOr<launch::TrainerLink::StopRequest> AgreeOnStop();
  absl::StatusOr<v1::Exit::Cause> Export();
  absl::Status MakeRecorder(const parallel::ResolvedRecipe& resolved);
  absl::Status MakeTensorboard();

  launch::TrainerLink& link_;
  const v1::Start& start_;
  v1::Recipe recipe_;  // with its defaults, and with what was derived
  std::unique_ptr<Machine> machine_;
  std::unique_ptr<TrainStep> train_step_;
  StepPrograms programs_;  // run in its place, on its tensors, if there are any
  std::unique_ptr<BatchSource> source_;
  std::unique_ptr<Meter> meter_;
  std::unique_ptr<TensorboardWriter> tensorboard_;  // on rank 0, if wished for
  std::unique_ptr<PendingSaves> pending_;
  int64_t tokens_per_step_ = 0;
  int64_t stage_ = 0;         // of the pipeline
  bool may_trace_ = false;    // is one of metrics.trace_ranks
  int64_t steps_ = 0;
  int64_t step_ = 0;
  int64_t saved_step_ = -1;                              // on the disk; what the launcher says of it may come later
  absl::Status verdict_;                                 // on the last checkpoint that was saved here
  bool told_fault_ = false;                              // of the peak that MFU is counted by
  bool told_unmeasured_ = false;                         // of a step that could not be timed
  bool gave_up_ = false;                                 // a save, since a rank was asked to stop while all waited for room
  double loss_ = 0, grad_norm_ = 0, learning_rate_ = 0;  // of the last step
  int64_t skipped_ = 0;                                  // steps of this attempt that a loss scale skipped
  std::optional<double> validation_loss_;                // of this step
};

}  // namespace legoai::train

#include "worker/train/record_step.h"

#include "proto/status.h"
#include "worker/comm/runtime.h"
#include "worker/comm/status_error.h"

namespace legoai::train {

absl::StatusOr<graph::Trace> RecordStep(graph::Recorder& recorder, TrainStep& step,
                                        absl::FunctionRef<absl::StatusOr<TrainStep::Result>()> run, TrainStep::Result* result) {
  graph::Trace trace;
  RETURN_IF_ERROR(step.GatherParameters());
  RETURN_IF_ERROR(comm::CatchStatus([&] {
    for (const NamedTensor& state : step.State()) recorder.Input(state.name, state.tensor, state.category);
    recorder.SetRecording(true);
    auto ran = run();
    recorder.SetRecording(false);
    if (!ran.ok()) return ran.status();
    recorder.Output("loss", ran->loss);
    if (ran->grad_norm.defined()) recorder.Output("grad_norm", ran->grad_norm);
    *result = *ran;
    trace = recorder.Finish();
    trace.groups = comm::CurrentRuntime().groups();
    return absl::OkStatus();
  }));
  return trace;
}

absl::StatusOr<graph::Trace> RecordEvaluation(graph::Recorder& recorder, TrainStep& step) {
  TrainStep::Result result;
  const auto run = [&]() -> absl::StatusOr<TrainStep::Result> {
    TrainStep::Result evaluated;
    ASSIGN_OR_RETURN(evaluated.loss, step.Evaluate());
    return evaluated;
  };
  return RecordStep(recorder, step, run, &result);
}

}  // namespace legoai::train

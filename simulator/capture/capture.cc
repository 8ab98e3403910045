#include "simulator/capture/capture.h"

#include "worker/train/record_step.h"

namespace legoai::sim {

absl::StatusOr<graph::Trace> RecordStep(graph::Recorder& recorder, train::TrainStep& step, train::TrainStep::Result* result) {
  train::TrainStep::Result unseen;
  return train::RecordStep(recorder, step, [&] { return step.Run(); }, result != nullptr ? result : &unseen);
}

}  // namespace legoai::sim

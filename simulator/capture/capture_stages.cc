#include "simulator/capture/capture_stages.h"

#include <map>
#include <tuple>
#include <utility>

#include "proto/status.h"
#include "simulator/capture/capture.h"
#include "simulator/capture/instance_actions.h"

namespace legoai::sim {
namespace {

class Stages {
 public:
  Stages(const v1::Model& model, const v1::Recipe& recipe, const parallel::ParallelDims& dims)
      : model_(model), recipe_(recipe), dims_(dims) {}

  absl::StatusOr<std::vector<CapturedStage>> Run() {
    ASSIGN_OR_RETURN(auto schedule, parallel::MakeSchedule(dims_.Resolve(recipe_).parallelism().pipeline_parallel_schedule(),
                                                           dims_.pp(), dims_.microbatches()));
    for (int64_t stage = 0; stage < dims_.pp(); ++stage) ++stages_of_[KindOf(stage)];
    std::vector<CapturedStage> stages;
    for (int64_t stage = 0; stage < dims_.pp(); ++stage) {
      ASSIGN_OR_RETURN(auto captured, CaptureStage(schedule, stage));
      stages.push_back(std::move(captured));
    }
    return stages;
  }

 private:
  using Kind = std::tuple<bool, bool, int64_t>;  // first, last, layers
  struct Part {
    int64_t stage = 0;
    std::vector<parallel::LoweredAction> actions;
    graph::Trace trace;
  };

  int64_t RankOf(int64_t stage) const {
    parallel::Coordinates first;
    first.pp = stage;
    return dims_.RankOf(first);
  }
  int64_t FirstLayer(int64_t stage) const { return dims_.LayersOf(RankOf(stage)).first; }
  Kind KindOf(int64_t stage) const {
    const auto [first, last] = dims_.LayersOf(RankOf(stage));
    return {stage == 0, stage + 1 == dims_.pp(), last - first};
  }

  absl::StatusOr<CapturedStage> CaptureStage(const parallel::Schedule& schedule, int64_t stage) {
    if (dims_.microbatches() <= CapturedMicrobatches(dims_.pp()) && stages_of_[KindOf(stage)] == 1) return CaptureAll(stage);
    ASSIGN_OR_RETURN(auto part, PartOf(stage));
    const StageShift shift{stage - part->stage, FirstLayer(stage) - FirstLayer(part->stage)};
    auto trace =
        InstanceActions(part->trace, part->actions, parallel::Lower(schedule, stage), dims_.pp(), dims_.microbatches(), shift);
    if (absl::IsFailedPrecondition(trace.status())) return CaptureAll(stage);
    if (!trace.ok()) return trace.status();
    trace->groups = dims_.Groups(RankOf(stage));
    return CapturedStage{RankOf(stage), *std::move(trace), true};
  }

  absl::StatusOr<CapturedStage> CaptureAll(int64_t stage) const {
    ASSIGN_OR_RETURN(auto captured, CaptureStep(model_, recipe_, dims_, RankOf(stage)));
    return CapturedStage{RankOf(stage), std::move(captured.trace), false};
  }

  // What was captured of the first stage of this one's kind, or of this stage where another's does not serve.
  absl::StatusOr<const Part*> PartOf(int64_t stage) {
    auto [found, fresh] = parts_.try_emplace(KindOf(stage));
    Part& part = found->second;
    if (!fresh && (FirstLayer(stage) == FirstLayer(part.stage) || ServesOtherLayers(part.trace))) return &part;
    part.stage = stage;
    part.actions = ActionsToCapture(dims_.pp(), stage, dims_.microbatches());
    ASSIGN_OR_RETURN(auto captured, CaptureStep(model_, recipe_, dims_, RankOf(stage), part.actions));
    part.trace = std::move(captured.trace);
    return &part;
  }

  const v1::Model& model_;
  const v1::Recipe& recipe_;
  const parallel::ParallelDims& dims_;
  std::map<Kind, int64_t> stages_of_;
  std::map<Kind, Part> parts_;
};

}  // namespace

absl::StatusOr<std::vector<CapturedStage>> CaptureStages(const v1::Model& model, const v1::Recipe& recipe,
                                                         const parallel::ParallelDims& dims) {
  return Stages(model, recipe, dims).Run();
}

}  // namespace legoai::sim

#include "simulator/capture/capture_stages.h"

#include <map>
#include <utility>

#include "proto/status.h"
#include "simulator/capture/capture.h"
#include "simulator/capture/instance_actions.h"

namespace legoai::sim {
namespace {

class Stages {
 public:
  explicit Stages(const parallel::ResolvedRecipe& resolved) : resolved_(resolved), mesh_(resolved.mesh()) {}

  absl::StatusOr<std::vector<CapturedStage>> Run() {
    ASSIGN_OR_RETURN(auto schedule, parallel::MakeSchedule(resolved_.recipe().parallelism().pipeline_parallel_schedule(),
                                                           mesh_.pp, resolved_.chunks(), resolved_.microbatches()));
    lowered_ = parallel::Lower(schedule);
    for (int64_t stage = 0; stage < mesh_.pp; ++stage) ++stages_of_[KindOf(stage)];
    std::vector<CapturedStage> stages;
    for (int64_t stage = 0; stage < mesh_.pp; ++stage) {
      ASSIGN_OR_RETURN(auto captured, CaptureStage(stage));
      stages.push_back(std::move(captured));
    }
    return stages;
  }

 private:
  using Kind = std::vector<int64_t>;
  struct Part {
    int64_t stage = 0;
    std::vector<parallel::LoweredAction> actions;
    std::shared_ptr<const graph::Trace> trace;
  };

  int64_t FirstLayer(int64_t stage) const { return resolved_.LayersOf(stage).first; }
  // Whether it is the first or the last one, where the layers of its chunks are, counted from the first of them, and which of
  // them are computed again.
  Kind KindOf(int64_t stage) const {
    Kind kind = {stage == 0, stage + 1 == mesh_.pp};
    for (int64_t chunk = stage; chunk < resolved_.chunks(); chunk += mesh_.pp) {
      const auto [first, last] = resolved_.LayersOf(chunk);
      kind.insert(kind.end(), {first - FirstLayer(stage), last - FirstLayer(stage)});
      for (int64_t layer = first; layer < last; ++layer) kind.push_back(resolved_.RecomputedBlocks(layer, layer + 1));
    }
    return kind;
  }

  absl::StatusOr<CapturedStage> CaptureStage(int64_t stage) {
    if (resolved_.microbatches() <= CapturedMicrobatches(mesh_.pp) && stages_of_[KindOf(stage)] == 1) return CaptureAll(stage);
    ASSIGN_OR_RETURN(auto part, PartOf(stage));
    auto instances = InstanceActions(*part->trace, part->actions, lowered_.ranks[stage], mesh_.pp, resolved_.microbatches(),
                                     stage - part->stage);
    if (absl::IsFailedPrecondition(instances.status())) return CaptureAll(stage);
    if (!instances.ok()) return instances.status();
    instances->layer_shift = FirstLayer(stage) - FirstLayer(part->stage);
    instances->groups = mesh_.Groups(mesh_.FirstRankOfStage(stage));
    return CapturedStage{mesh_.FirstRankOfStage(stage), part->trace, *std::move(instances)};
  }

  absl::StatusOr<CapturedStage> CaptureAll(int64_t stage) const {
    ASSIGN_OR_RETURN(auto captured, CaptureStep(resolved_, mesh_.FirstRankOfStage(stage)));
    return CapturedStage{mesh_.FirstRankOfStage(stage), std::make_shared<const graph::Trace>(std::move(captured.trace))};
  }

  // What was captured of the first stage of this one's kind, or of this stage where another's does not serve.
  absl::StatusOr<const Part*> PartOf(int64_t stage) {
    auto [found, fresh] = parts_.try_emplace(KindOf(stage));
    Part& part = found->second;
    if (!fresh && (FirstLayer(stage) == FirstLayer(part.stage) || ServesOtherLayers(*part.trace))) return &part;
    part.stage = stage;
    const bool parts_backward = parallel::PartsBackward(resolved_.recipe().parallelism().pipeline_parallel_schedule());
    part.actions = ActionsToCapture(mesh_.pp, resolved_.chunks(), stage, resolved_.microbatches(), parts_backward);
    ASSIGN_OR_RETURN(auto captured, CaptureStep(resolved_, mesh_.FirstRankOfStage(stage), part.actions));
    part.trace = std::make_shared<const graph::Trace>(std::move(captured.trace));
    return &part;
  }

  const parallel::ResolvedRecipe& resolved_;
  const mesh::Mesh& mesh_;
  parallel::LoweredSchedule lowered_;
  std::map<Kind, int64_t> stages_of_;
  std::map<Kind, Part> parts_;
};

}  // namespace

absl::StatusOr<std::vector<CapturedStage>> CaptureStages(const parallel::ResolvedRecipe& resolved) {
  return Stages(resolved).Run();
}

}  // namespace legoai::sim

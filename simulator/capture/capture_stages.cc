#include "simulator/capture/capture_stages.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/model/model_facts.h"
#include "core/recipe/keep_policy.h"
#include "proto/status.h"
#include "simulator/capture/capture.h"
#include "simulator/capture/instance_actions.h"

namespace legoai::sim {

class StageCapture::Impl {
 public:
  Impl(const parallel::ResolvedRecipe& resolved, const graph::PassOptions& options, std::vector<graph::PassReport>* reports)
      : resolved_(resolved),
        mesh_(resolved.mesh()),
        options_(options),
        reports_(reports),
        schedule_(resolved.MakeSchedule()),
        lowering_(schedule_) {
    for (int64_t stage = 0; stage < mesh_.pp; ++stage) ++stages_of_[KindOf(stage)];
  }

  int64_t stages() const { return mesh_.pp; }

  absl::StatusOr<CapturedStage> Stage(int64_t stage) {
    ASSIGN_OR_RETURN(auto captured, CaptureStage(stage));
    if (!graph::HasPasses(resolved_) && options_.dump_directory.empty()) return captured;
    graph::PassOptions own = options_;
    if (!own.dump_directory.empty() && mesh_.pp > 1) absl::StrAppend(&own.dump_directory, "/rank", captured.rank);
    ASSIGN_OR_RETURN(auto trace, graph::RunPasses(captured.Flat(), resolved_, own, reports_));
    return CapturedStage{captured.rank, std::make_shared<const graph::Trace>(std::move(trace))};
  }

 private:
  using Kind = std::vector<int64_t>;
  struct Part {
    int64_t stage = 0;
    std::vector<parallel::LoweredAction> actions;
    std::shared_ptr<const graph::Trace> trace;
  };

  int64_t FirstLayer(int64_t stage) const { return resolved_.LayersOf(stage).first; }
  // Whether it is the first or the last one, how it computes backwards, how many layers its chunks have, which of them are
  // computed again and by which rules, and what they attend to.
  Kind KindOf(int64_t stage) const {
    const parallel::Placement& placement = resolved_.placement();
    Kind kind = {stage == 0, stage + 1 == mesh_.pp};
    for (const int64_t variant : CapturedVariants(schedule_, stage)) kind.push_back(variant);
    for (int64_t local = 0; local < placement.locals(); ++local) {
      const auto [first, last] = resolved_.LayersOf(placement.ChunkOf(stage, local));
      kind.push_back(last - first);
      for (int64_t layer = first; layer < last; ++layer) AddLayer(layer, &kind);
    }
    return kind;
  }

  void AddLayer(int64_t layer, Kind* kind) const {
    kind->push_back(resolved_.RecomputedBlocks(layer, layer + 1));
    kind->push_back(model::WindowOf(resolved_.model(), layer));
    const auto rules = parallel::KeepRules(resolved_.recipe().activation_checkpoint());
    for (size_t i = 0; i < rules.size(); ++i) {
      if (rules[i].IsOf(layer)) kind->push_back(static_cast<int64_t>(i) + 2);
    }
  }

  // By chunk, whose layers ascend.
  std::vector<graph::LayerShift> Shifts(int64_t captured, int64_t stage) const {
    const parallel::Placement& placement = resolved_.placement();
    std::vector<graph::LayerShift> shifts;
    for (int64_t local = 0; local < placement.locals(); ++local) {
      const int64_t from = resolved_.LayersOf(placement.ChunkOf(captured, local)).first;
      shifts.push_back({from, resolved_.LayersOf(placement.ChunkOf(stage, local)).first - from});
    }
    return shifts;
  }

  // Whether a listed schedule may let either of two chunks that share a tied weight bring its first gradient.
  bool NeedsAll(int64_t stage) const {
    const bool shares = stage == 0 && mesh_.pp > 1 && resolved_.model().tie_word_embeddings() && !mesh_.ends_talk;
    return shares && !resolved_.recipe().parallelism().pipeline_parallel_schedule_csv().empty();
  }

  absl::StatusOr<CapturedStage> CaptureStage(int64_t stage) {
    const bool few = resolved_.microbatches() <= CapturedMicrobatches(schedule_, stage);
    if ((few && stages_of_[KindOf(stage)] == 1) || NeedsAll(stage)) return CaptureAll(stage);
    ASSIGN_OR_RETURN(auto part, PartOf(stage));
    auto instances = InstanceActions(*part->trace, part->actions, lowering_.Rank(stage), schedule_, stage, stage - part->stage);
    if (absl::IsFailedPrecondition(instances.status())) return CaptureAll(stage);
    if (!instances.ok()) return instances.status();
    instances->layer_shifts = Shifts(part->stage, stage);
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
    part.actions = ActionsToCapture(schedule_, stage);
    ASSIGN_OR_RETURN(auto captured, CaptureStep(resolved_, mesh_.FirstRankOfStage(stage), part.actions));
    part.trace = std::make_shared<const graph::Trace>(std::move(captured.trace));
    return &part;
  }

  const parallel::ResolvedRecipe& resolved_;
  const mesh::Mesh& mesh_;
  const graph::PassOptions options_;
  std::vector<graph::PassReport>* const reports_;
  const parallel::Schedule schedule_;
  const parallel::Lowering lowering_;  // of schedule_
  std::map<Kind, int64_t> stages_of_;
  std::map<Kind, Part> parts_;
};

StageCapture::StageCapture(const parallel::ResolvedRecipe& resolved, const graph::PassOptions& options,
                           std::vector<graph::PassReport>* reports)
    : impl_(std::make_unique<Impl>(resolved, options, reports)) {}
StageCapture::~StageCapture() = default;

int64_t StageCapture::stages() const { return impl_->stages(); }
absl::StatusOr<CapturedStage> StageCapture::Stage(int64_t stage) { return impl_->Stage(stage); }

absl::StatusOr<std::vector<CapturedStage>> CaptureStages(const parallel::ResolvedRecipe& resolved,
                                                         const graph::PassOptions& options,
                                                         std::vector<graph::PassReport>* reports) {
  StageCapture capture(resolved, options, reports);
  std::vector<CapturedStage> stages;
  for (int64_t stage = 0; stage < capture.stages(); ++stage) {
    ASSIGN_OR_RETURN(auto captured, capture.Stage(stage));
    stages.push_back(std::move(captured));
  }
  return stages;
}

}  // namespace legoai::sim

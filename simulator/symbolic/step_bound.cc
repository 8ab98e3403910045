#include "simulator/symbolic/step_bound.h"

#include <algorithm>
#include <vector>

#include "core/hardware/catalog.h"
#include "core/model/model_facts.h"
#include "core/recipe/keep_policy.h"
#include "core/recipe/recipe.h"
#include "core/schedule/schedule.h"
#include "proto/status.h"
#include "simulator/cost/collective_cost.h"
#include "simulator/cost/compute_cost.h"
#include "simulator/symbolic/stage_sizes.h"

namespace legoai::sim {
namespace {

// Of one microbatch.
struct Work {
  double forward = 0, backward = 0;
  double both() const { return forward + backward; }
};

class StepBound {
 public:
  StepBound(const parallel::ResolvedRecipe& resolved, const v1::Cluster& cluster, const RooflineModel& compute)
      : resolved_(resolved),
        model_(resolved.model()),
        mesh_(resolved.mesh()),
        cluster_(cluster),
        compute_(compute),
        collectives_(cluster),
        is_eager_(cluster.device().kind() != v1::CPU && !resolved.recipe().compile().enable()),
        ranks_(static_cast<double>(resolved.mesh().tp)) {}

  absl::StatusOr<double> Seconds() {
    const StageSizes first = SizesOfStage(resolved_, 0);
    tokens_ = static_cast<double>(first.tokens);
    local_tokens_ = static_cast<double>(first.local_tokens);
    element_ = static_cast<double>(first.param_bytes);
    block_ = Block();
    again_ = Seconds({OpClass::kMatmul, dtype(), 2 * tokens_ * ProductsComputedAgain(), 0, 0});
    head_ = Head();
    update_ = Update(first);
    double bound = Links(first, 0);
    double least = -1;  // of a rank's own work
    for (int64_t stage = 0; stage < mesh_.pp; ++stage) {
      const double own = static_cast<double>(resolved_.microbatches()) * OfRank(stage).both();
      bound = std::max(bound, Around(stage) + own);
      least = least < 0 ? own : std::min(least, own);
    }
    // Ranks that share a core take turns.
    bound = std::max(bound, RanksPerCore(cluster_) * least);
    if (!status_.ok()) return status_;
    return bound;
  }

 private:
  v1::DType dtype() const { return resolved_.recipe().training().mixed_precision_param(); }
  double hidden() const { return static_cast<double>(model_.hidden_size()); }
  double inner() const { return static_cast<double>(model_.intermediate_size()); }
  double query() const { return static_cast<double>(model_.num_attention_heads() * model_.head_dim()); }
  double key() const { return static_cast<double>(model_.num_key_value_heads() * model_.head_dim()); }

  double Seconds(const OpFacts& facts) {
    auto seconds = compute_.LeastSeconds(facts);
    if (!seconds.ok()) status_ = seconds.status();
    return seconds.ok() ? *seconds : 0;
  }
  double Collective(Effect kind, double bytes, const mesh::RankLine& line) {
    if (line.size <= 1) return 0;
    auto seconds = collectives_.Time(kind, static_cast<int64_t>(bytes), line);
    if (!seconds.ok()) status_ = seconds.status();
    return seconds.ok() ? *seconds : 0;
  }

  // Elements of a block's matrices, this rank's share on the average, which is no more than that of the rank with most.
  double Products() const {
    const double attention = 2 * hidden() * (query() + key());
    return (attention + (model_.architecture() == v1::GPT2 ? 2 : 3) * hidden() * inner()) / ranks_;
  }
  // Of these, where a block is computed again, those before the last products, whose outputs backward does not need.
  double ProductsComputedAgain() const {
    const v1::ActivationCheckpoint& section = resolved_.recipe().activation_checkpoint();
    if (parallel::KeepsOperators(section)) return 0;  // as its policy says
    const double last = hidden() * (inner() + (model_.parallel_block() ? query() : 0)) / ranks_;
    return Products() - last;
  }

  Work Block() {
    const double flops = 2 * tokens_ * Products();
    Work work{Seconds({OpClass::kMatmul, dtype(), flops, 0, 0}), Seconds({OpClass::kMatmul, dtype(), 2 * flops, 0, 0})};
    AddAttention(&work);
    if (!is_eager_) return work;
    AddFeedForward(&work);
    AddResiduals(&work);
    work.forward += TensorParallel();
    return work;
  }
  // Where a rank has whole sequences. Materialized scores take products of other shapes.
  void AddAttention(Work* work) {
    if (mesh_.cp > 1 || model::MaterializesScores(model_)) return;
    const double sequences = static_cast<double>(resolved_.microbatch_size());
    const double pairs = sequences * CausalPairs(resolved_.seq_len(), model_.sliding_window()) * query() / ranks_;
    work->forward += Seconds({OpClass::kAttention, dtype(), 4 * pairs, 0, 0});
    work->backward += Seconds({OpClass::kAttention, dtype(), 10 * pairs, 0, 0});
  }
  // Activation and, where it is gated, product; each operator reads its inputs and writes its output.
  void AddFeedForward(Work* work) {
    const bool gated = model_.architecture() != v1::GPT2;
    const double values = tokens_ * inner() / ranks_ * element_;
    work->forward += Traffic((gated ? 5 : 2) * values);
    work->backward += Traffic((gated ? 9 : 3) * values);
  }
  // Two sums, and norms: forward reads their input, and backward that and a gradient.
  void AddResiduals(Work* work) {
    const double values = local_tokens_ * hidden() * element_, norms = model_.parallel_block() ? 1 : 2;
    work->forward += Traffic((2 * 3 + norms * 2) * values);
    work->backward += Traffic(norms * 3 * values);
  }
  // Of operators that memory bounds, whatever their class.
  double Traffic(double bytes) {
    double least = -1;
    for (const OpClass op_class : {OpClass::kElementwise, OpClass::kReduction, OpClass::kCopy}) {
      for (const v1::DType type : {dtype(), v1::FLOAT32}) {
        const double seconds = Seconds({op_class, type, 0, static_cast<int64_t>(bytes), 0});
        least = least < 0 ? seconds : std::min(least, seconds);
      }
    }
    return least;
  }
  // A block's collectives in forward, each between two operators.
  double TensorParallel() {
    return mesh_.tp == 1 ? 0 : ForwardEdges() * Edge();
  }
  double ForwardEdges() const {
    return (model_.parallel_block() ? 1 : 2) * (parallel::SplitsTokens(resolved_.recipe().parallelism()) ? 2 : 1);
  }
  double Edge() {
    const bool splits = parallel::SplitsTokens(resolved_.recipe().parallelism());
    return Collective(splits ? Effect::kAllGather : Effect::kAllReduce, tokens_ * hidden() * element_,
                      mesh_.LineOf(mesh::Dim::kTp, 0));
  }
  Work Head() {
    const double logits = tokens_ * static_cast<double>(model_.vocab_size()) / ranks_, flops = 2 * logits * hidden();
    Work work{Seconds({OpClass::kMatmul, dtype(), flops, 0, 0}), Seconds({OpClass::kMatmul, dtype(), 2 * flops, 0, 0})};
    // The loss makes logits into log-probabilities in fp32, and these into gradients of logits.
    if (is_eager_) work.forward += Traffic((element_ + 4) * logits), work.backward += Traffic((4 + element_) * logits);
    return work;
  }

  Work OfChunk(int64_t chunk) const {
    const auto [begin, end] = resolved_.LayersOf(chunk);
    const double blocks = static_cast<double>(end - begin);
    Work work{blocks * block_.forward,
              blocks * block_.backward + static_cast<double>(resolved_.RecomputedBlocks(begin, end)) * again_};
    if (chunk == resolved_.placement().chunks - 1) work.forward += head_.forward, work.backward += head_.backward;
    return work;
  }
  Work OfRank(int64_t stage) const {
    Work work;
    for (int64_t local = 0; local < resolved_.placement().locals(); ++local) {
      const Work one = OfChunk(resolved_.placement().ChunkOf(stage, local));
      work.forward += one.forward, work.backward += one.backward;
    }
    return work;
  }

  // What passes before a rank's first operator and after its last backward. Gradients of weights that are parts of their own may
  // fill the end.
  double Around(int64_t stage) const {
    const parallel::Placement& placement = resolved_.placement();
    const v1::Parallelism& parallelism = resolved_.recipe().parallelism();
    const bool whole = !placement.in_v && !parallel::PartsBackward(parallelism.pipeline_parallel_schedule()) &&
                       parallelism.pipeline_parallel_schedule_csv().empty();
    Work others;
    int64_t first = placement.chunks;  // of its chunks
    for (int64_t local = 0; local < placement.locals(); ++local) first = std::min(first, placement.ChunkOf(stage, local));
    for (int64_t chunk = 0; chunk < first; ++chunk) {
      const Work one = OfChunk(chunk);
      others.forward += one.forward, others.backward += one.backward;
    }
    if (first == 0) return update_;
    return others.forward + (whole ? others.backward : 0);
  }

  // Of AdamW and Adam: parameters and what is kept of them are read and written; in which type, the cheaper one.
  double Update(const StageSizes& sizes) {
    const v1::OptimizerSection& optimizer = resolved_.recipe().optimizer();
    if ((optimizer.name() != "AdamW" && optimizer.name() != "Adam") || optimizer.stochastic_rounding()) return 0;
    const int64_t bytes = 2 * (sizes.held_bytes * sizes.total().held + sizes.optimizer_state_bytes);
    const auto of = [&](v1::DType type) { return Seconds({OpClass::kOptimizer, type, 0, bytes, 0}); };
    return std::min(of(v1::FLOAT32), of(dtype()));
  }

  // Of a stage: by tier, what its link carries alone.
  double Links(const StageSizes& sizes, int64_t rank) {
    std::vector<double> of_tier(static_cast<size_t>(cluster_.tiers_size()));
    const auto add = [&](double times, Effect kind, double bytes, const mesh::RankLine& line) {
      if (line.size > 1 && times > 0) of_tier[collectives_.TierOf(line)] += times * Collective(kind, bytes, line);
    };
    const mesh::RankLine shard = mesh_.LineOf(mesh::Dim::kDpShardCp, rank);
    const double all = static_cast<double>(sizes.total().gathered), microbatches = static_cast<double>(sizes.microbatches);
    const double value_bytes = static_cast<double>(std::min(sizes.param_bytes, sizes.held_bytes));
    const bool gathers_anew = resolved_.reshard_after_forward() && !resolved_.parameters_stay_whole();
    add(gathers_anew ? microbatches : 1, Effect::kAllGather, value_bytes * all, shard);
    if (gathers_anew && is_eager_ && sizes.blocks > 1) {
      const double blocks = static_cast<double>((sizes.blocks - 1) * sizes.block.gathered);
      const mesh::RankLine line = mesh_.reshard > 1 ? mesh_.LineOf(mesh::Dim::kReshard, rank) : shard;
      add(microbatches, Effect::kAllGather, value_bytes * blocks, line);
    }
    const double reduced = all * static_cast<double>(sizes.reduce_bytes);
    add(resolved_.reduce_each_microbatch() ? microbatches : 1, Effect::kReduceScatter, reduced, shard);
    add(1, Effect::kAllReduce, reduced / static_cast<double>(mesh_.Size(mesh::Dim::kDpShardCp)),
        mesh_.LineOf(mesh::Dim::kDpReplicate, rank));
    if (mesh_.tp > 1 && is_eager_) {
      const mesh::RankLine line = mesh_.LineOf(mesh::Dim::kTp, rank);
      of_tier[collectives_.TierOf(line)] += 2 * ForwardEdges() * static_cast<double>(sizes.blocks) * microbatches * Edge();
    }
    return of_tier.empty() ? 0 : *std::max_element(of_tier.begin(), of_tier.end());
  }

  const parallel::ResolvedRecipe& resolved_;
  const v1::Model& model_;
  const mesh::Mesh& mesh_;
  const v1::Cluster& cluster_;
  const RooflineModel& compute_;
  const CollectiveCostModel collectives_;
  const bool is_eager_;  // for certain: graph mode is tried on CPUs
  const double ranks_;  // of tensor parallelism
  double tokens_ = 0, local_tokens_ = 0, element_ = 0;
  Work block_, head_;
  double again_ = 0;   // of a block that is computed again
  double update_ = 0;  // of the first rank
  absl::Status status_;
};

}  // namespace

absl::StatusOr<double> BoundStepSeconds(const parallel::ResolvedRecipe& resolved, const v1::Cluster& cluster) {
  ASSIGN_OR_RETURN(const auto compute, RooflineModel::Create(cluster.device()));
  return StepBound(resolved, cluster, *compute).Seconds();
}

}  // namespace legoai::sim

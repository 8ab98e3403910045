#include "simulator/symbolic/roofline_estimate.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "core/hardware/catalog.h"
#include "core/model/model_facts.h"
#include "core/recipe/keep_policy.h"
#include "core/recipe/recipe.h"
#include "core/schedule/timeline.h"
#include "proto/status.h"
#include "simulator/cost/collective_cost.h"
#include "simulator/cost/compute_cost.h"

namespace legoai::sim {
namespace {

// Operators that a block dispatches forward and backward, and how often its activations pass through memory, as captures of
// Llama and GPT-2 blocks have them, rounded.
constexpr double kForwardOperators = 35, kBackwardOperators = 60, kPassesOverSaved = 3;

// Of the tier's link, in a group with `here` ranks in one of its units.
double SustainedBandwidth(const v1::Cluster& cluster, int tier, int64_t here) {
  const v1::Link& link = cluster.tiers(tier).link();
  const double share = tier == 0 ? NodeBandwidthShare(cluster, here) : 1;
  return link.bandwidth_bytes_per_second() * link.efficiency() * share;
}

struct Models {
  const RooflineModel& compute;
  const CollectiveCostModel& collectives;
};

// One rank's step on one stage.
class StageEstimate {
 public:
  StageEstimate(const parallel::ResolvedRecipe& resolved, const v1::Cluster& cluster, int64_t rank, const Models& models)
      : model_(resolved.model()),
        mesh_(resolved.mesh()),
        resolved_(resolved),
        cluster_(cluster),
        device_(cluster.device()),
        models_(models) {
    s_ = SizesOfStage(resolved, rank);
    again_ = s_.recomputed_blocks;
    tp_ = mesh_.LineOf(mesh::Dim::kTp, rank);
    context_ = mesh_.LineOf(mesh::Dim::kCp, rank);
    shard_ = mesh_.LineOf(mesh::Dim::kDpShardCp, rank);
    reshard_ = mesh_.reshard > 1 ? mesh_.LineOf(mesh::Dim::kReshard, rank) : shard_;
    replicate_ = mesh_.LineOf(mesh::Dim::kDpReplicate, rank);
  }

  absl::Status Run() {
    const double blocks = static_cast<double>(s_.blocks), block = BlockForward(), head = s_.has_head ? Head() : 0;
    const double compute = (3.1 * blocks + again_) * block + 3 * head;
    // On a GPU the host runs ahead; on a CPU it is the one that computes.
    microbatch_ = device_.kind() == v1::CPU ? compute + Dispatch() : std::max(compute, Dispatch());
    blocking_ = TensorParallel() + GatheredAgain() + ContextParallel() + Messages();
    // Gathers and reductions run beside the computation, all but the ends; gathers after the update run alone.
    const bool after_update = resolved_.parameters_stay_whole();
    const double gather = Gather(), beside = (after_update ? 0 : gather) + Reduce();
    exposed_ = std::max(0.0, beside - 0.9 * static_cast<double>(s_.microbatches) * microbatch_) + (after_update ? gather : 0);
    optimizer_ = Optimizer();
    return status_;
  }

  double microbatch() const { return microbatch_ + blocking_; }
  double blocking() const { return blocking_; }
  double exposed() const { return exposed_; }
  double optimizer() const { return optimizer_; }
  // Of the step: of each kind the tier that takes longest, and the seconds of all.
  LinkLoads Loads() const {
    LinkLoads loads;
    for (const auto& [key, link] : carried_) {
      LinkLoad& load = loads[static_cast<size_t>(key.first)];
      const double seconds = load.seconds + link.seconds;
      if (load.tier < 0 || link.bytes * load.bytes_per_second > load.bytes * link.bytes_per_second) load = link;
      load.seconds = seconds;
    }
    return loads;
  }
  int64_t microbatches() const { return s_.microbatches; }

 private:
  v1::DType dtype() const { return resolved_.recipe().training().mixed_precision_param(); }

  double Seconds(const OpFacts& facts) {
    auto seconds = models_.compute.Seconds(facts);
    if (!seconds.ok()) status_ = seconds.status();
    return seconds.ok() ? *seconds : 0;
  }
  // Of `times` collectives of these bytes in a step, each.
  double Collective(LinkUse use, double times, Effect kind, double bytes, const mesh::RankLine& line) {
    if (line.size <= 1) return 0;
    auto seconds = models_.collectives.Time(kind, static_cast<int64_t>(bytes), line);
    if (!seconds.ok()) status_ = seconds.status();
    if (!seconds.ok()) return 0;
    const double ranks = static_cast<double>(line.size), passes = kind == Effect::kAllReduce ? 2 : 1;
    const bool beside = use == LinkUse::kShard || use == LinkUse::kReplicate;
    AddLoad(use, NarrowestLink(cluster_, line, times * passes * (ranks - 1) / ranks * bytes), times * *seconds, beside);
    return *seconds;
  }
  void AddLoad(LinkUse use, const LinkLoad& link, double seconds, bool beside_compute) {
    LinkLoad& load = carried_[{use, link.tier}];
    load.tier = link.tier;
    load.bytes_per_second = link.bytes_per_second;
    load.bytes += link.bytes;
    load.seconds += seconds;
    load.runs_beside_compute = beside_compute;
  }

  double BlockForward() {
    const double tokens = static_cast<double>(s_.tokens);
    OpFacts products{OpClass::kMatmul, dtype(), 2 * tokens * static_cast<double>(s_.block.gathered), 0, 0};
    // Its tensors, as many as it saves without checkpointing.
    const double saved = 34 * tokens * static_cast<double>(model_.hidden_size() / mesh_.tp * s_.param_bytes) / 2;
    OpFacts traffic{OpClass::kElementwise, dtype(), 0, static_cast<int64_t>(kPassesOverSaved * saved), 0};
    return Seconds(products) + AttentionForward() + Seconds(traffic);
  }
  double AttentionForward() {
    const double width = static_cast<double>(model_.num_attention_heads() * model_.head_dim() / mesh_.tp);
    if (model::MaterializesScores(model_)) return WithScores(width);
    const double pairs_of_token =
        CausalPairs(resolved_.seq_len(), model_.sliding_window()) / static_cast<double>(resolved_.seq_len());
    const double pairs = static_cast<double>(s_.tokens) * pairs_of_token * LargestShareOfPairs();
    return Seconds({OpClass::kAttention, dtype(), 4 * pairs * width, 0, 0});
  }
  // Products of all pairs of tokens, masked ones too, and four operators that read scores and write as many.
  double WithScores(double width) {
    const double pairs = static_cast<double>(s_.tokens) * static_cast<double>(resolved_.seq_len());
    const double bytes = pairs * static_cast<double>(model_.num_attention_heads() / mesh_.tp * s_.param_bytes);
    return Seconds({OpClass::kMatmul, dtype(), 4 * pairs * width, 0, 0}) +
           Seconds({OpClass::kElementwise, dtype(), 0, static_cast<int64_t>(4 * bytes), static_cast<int64_t>(4 * bytes)});
  }
  // Of the pairs of tokens that attention looks at, what the rank with most has, times the number of ranks.
  double LargestShareOfPairs() const {
    const bool balanced = resolved_.recipe().parallelism().context_parallel_load_balancer() == v1::BALANCE_HEAD_TAIL;
    return balanced ? 1 : 2 - 1 / static_cast<double>(mesh_.cp);
  }
  double Head() {
    const double elements = static_cast<double>(s_.tokens) * static_cast<double>(s_.vocab);
    OpFacts product{OpClass::kMatmul, dtype(),
                    2 * static_cast<double>(s_.tokens * model_.hidden_size()) * static_cast<double>(model_.vocab_size()) /
                        static_cast<double>(mesh_.tp),
                    0, 0};
    OpFacts loss{OpClass::kReduction, v1::FLOAT32, 0, static_cast<int64_t>(10 * elements), 0};
    return Seconds(product) + Seconds(loss);
  }
  double Dispatch() const {
    const double blocks = static_cast<double>(s_.blocks);
    const double operators = (blocks + again_) * kForwardOperators + blocks * kBackwardOperators;
    return operators * device_.host_dispatch_seconds();
  }

  // Whether attention and feed-forward are one region, so that their communication is one.
  bool IsOneRegion() const { return model_.parallel_block(); }
  // Of a microbatch: a gather and a scatter of each region of a block forward, as many backward; recomputation repeats the
  // forward's. Where tokens are not split, a sum takes the place of a scatter and a gather.
  double TensorParallel() {
    const double bytes = static_cast<double>(s_.tokens * model_.hidden_size() * s_.param_bytes);
    const bool splits = parallel::SplitsTokens(resolved_.recipe().parallelism());
    const double edges = (IsOneRegion() ? 1 : 2) * (splits ? 2 : 1);  // of a block, forward
    const double times = edges * (2 * static_cast<double>(s_.blocks) + again_);
    const double of_step = times * static_cast<double>(s_.microbatches);
    return times * Collective(LinkUse::kTensor, of_step, splits ? Effect::kAllGather : Effect::kAllReduce, bytes, tp_);
  }
  // Of a microbatch: the inputs of a block's column-parallel products, gathered for the gradients of their weights beside the
  // first gradient of an input, which is that of the up and of the value projection; of one region, that of the up projection.
  double GatheredAgain() {
    if (mesh_.tp == 1 || s_.input_tokens == s_.tokens) return 0;
    const double bytes = static_cast<double>(s_.tokens * model_.hidden_size() * s_.param_bytes);
    const double blocks = static_cast<double>(s_.blocks), regions = IsOneRegion() ? 1 : 2;
    const double of_step = regions * blocks * static_cast<double>(s_.microbatches);
    const double gather = Collective(LinkUse::kTensor, of_step, Effect::kAllGather, bytes, tp_);
    std::vector<int64_t> widths = {model_.intermediate_size() / mesh_.tp};
    if (!IsOneRegion()) widths.push_back(std::max<int64_t>(1, model_.num_key_value_heads() / mesh_.tp) * model_.head_dim());
    double exposed = 0;
    for (const int64_t width : widths) {
      const double flops = 2 * static_cast<double>(s_.tokens * model_.hidden_size()) * static_cast<double>(width);
      exposed += std::max(0.0, gather - Seconds({OpClass::kMatmul, dtype(), flops, 0, 0}));
    }
    return blocks * exposed;
  }
  // Of a microbatch: keys and values of a block gathered forward, and once more backward, where their gradients are scattered,
  // too; recomputation repeats the forward's, where it does not keep attention.
  double ContextParallel() {
    if (mesh_.cp == 1) return 0;
    const int64_t width = std::max<int64_t>(1, model_.num_key_value_heads() / mesh_.tp) * model_.head_dim();
    const double bytes = static_cast<double>(s_.tokens * width * s_.param_bytes), blocks = static_cast<double>(s_.blocks);
    const double again = parallel::KeepsOperators(resolved_.recipe().activation_checkpoint()) ? 0 : again_;
    if (resolved_.recipe().parallelism().context_parallel_rotate_method() != v1::ROTATE_BY_ALL_GATHER)
      return Ring(2 * bytes, blocks, again);
    const double times = 6 * blocks + 2 * again, of_step = times * static_cast<double>(s_.microbatches);
    return times * Collective(LinkUse::kContext, of_step, Effect::kAllGather, bytes * static_cast<double>(mesh_.cp), context_);
  }
  // Keys and values of `bytes` go round beside attention's blocks, one of cp at a time; in backward, which takes 2.5 times as
  // long, their gradients as well, whose last hop comes when all is computed.
  double Ring(double bytes, double blocks, double again) {
    auto hop = models_.collectives.Time(Effect::kRotate, static_cast<int64_t>(bytes), context_);
    if (!hop.ok()) status_ = hop.status();
    if (!hop.ok()) return 0;
    const double hops = static_cast<double>(mesh_.cp - 1), block = AttentionForward() / static_cast<double>(mesh_.cp);
    const double times = hops * (3 * blocks + again) * static_cast<double>(s_.microbatches);
    const int tier = models_.collectives.TierOf(context_);
    AddLoad(LinkUse::kContext, {tier, times * bytes, 0, SustainedBandwidth(cluster_, tier, 2)}, times * *hop, true);
    const double forward = hops * std::max(0.0, *hop - block), backward = hops * std::max(0.0, 2 * *hop - 2.5 * block) + *hop;
    return (blocks + again) * forward + blocks * backward;
  }
  // The pipeline's messages of a microbatch on the way of the first one.
  double Messages() {
    if (mesh_.pp <= 1) return 0;
    const int64_t bytes = s_.local_tokens * model_.hidden_size() * s_.param_bytes;
    const mesh::RankLine pair{0, mesh_.FirstRankOfStage(1), 2};
    auto seconds = models_.collectives.MessageTime(bytes, 0, pair.stride);
    if (!seconds.ok()) status_ = seconds.status();
    if (!seconds.ok()) return 0;
    const double messages = static_cast<double>(s_.microbatches * s_.chunks);
    AddLoad(LinkUse::kPipeline, NarrowestLink(cluster_, pair, messages * static_cast<double>(bytes)), 2 * messages * *seconds,
            /*beside_compute=*/false);
    return 2 * static_cast<double>(s_.chunks) * *seconds;
  }
  // Gathers of all units in a step: once, or in each forward and each backward.
  double Gather() {
    if (!resolved_.reshard_after_forward()) return GatherUnits(1, shard_);
    const double times = static_cast<double>(s_.microbatches);
    return GatherUnits(times, shard_) + GatherUnits(times, reshard_);
  }
  double GatherUnits(double times, const mesh::RankLine& line) {
    const auto gather = [&](double units, const UnitElements& unit) {
      return units * Collective(LinkUse::kShard, times * units, Effect::kAllGather,
                                static_cast<double>(unit.gathered * s_.param_bytes), line);
    };
    double seconds = gather(static_cast<double>(s_.blocks), s_.block);
    if (s_.has_embedding) seconds += gather(1, s_.embedding);
    if (s_.has_head) seconds += gather(1, s_.head);
    return times * seconds;
  }
  double Reduce() {
    double times = resolved_.reduce_each_microbatch() ? static_cast<double>(s_.microbatches) : 1;
    double bytes = static_cast<double>(s_.total().gathered * s_.reduce_bytes);
    double scatter = times * Collective(LinkUse::kShard, times, Effect::kReduceScatter, bytes, shard_);
    double replicated = bytes / static_cast<double>(mesh_.Size(mesh::Dim::kDpShardCp));
    return scatter + Collective(LinkUse::kReplicate, 1, Effect::kAllReduce, replicated, replicate_);
  }

  // Masters, gradients and state are read, masters and state are written, and parameters beside masters from these; Muon's
  // matrices travel there and back.
  double Optimizer() {
    const int64_t held = s_.total().held, parameters = s_.held_bytes * held;
    const int64_t changed = (s_.master_bytes > 0 ? s_.master_bytes : parameters) + s_.optimizer_state_bytes;
    double seconds = Seconds({OpClass::kOptimizer, v1::FLOAT32, 0, changed + 4 * held, changed});
    if (s_.master_bytes > 0) {
      seconds += Seconds({OpClass::kCopy, resolved_.recipe().training().dtype(), 0, s_.master_bytes, parameters});
    }
    if (s_.orthogonalize_flops == 0) return seconds;
    const double bytes = 2 * static_cast<double>(s_.blocks * s_.block.matrices);
    seconds += Seconds({OpClass::kMatmul, v1::BFLOAT16, s_.orthogonalize_flops, 0, 0});
    seconds += 2 * Collective(LinkUse::kShard, 2, Effect::kAllToAll, bytes, shard_);
    return seconds + 2 * Collective(LinkUse::kTensor, 2, Effect::kAllToAll, bytes, tp_);
  }

  const v1::Model& model_;
  const mesh::Mesh& mesh_;
  const parallel::ResolvedRecipe& resolved_;
  const v1::Cluster& cluster_;
  const v1::Device& device_;
  const Models& models_;
  StageSizes s_;
  double again_ = 0;  // blocks that are computed again
  mesh::RankLine tp_, context_, shard_, reshard_, replicate_;
  double microbatch_ = 0, blocking_ = 0, exposed_ = 0, optimizer_ = 0;
  std::map<std::pair<LinkUse, int>, LinkLoad> carried_;  // by tier
  absl::Status status_;
};

// Neighbours in the largest unit below the whole cluster: stages that begin at the same place of it have the same groups.
int64_t UnitOf(const v1::Cluster& cluster) {
  const int tiers = cluster.tiers_size();
  return tiers > 1 ? cluster.tiers(tiers - 2).group_size() : 0;
}

// For how many microbatches' work a rank waits. Chunks divide it (Narayanan et al. 2021, section 2.2), and gradients of weights
// fill two thirds (Qi et al. 2024); a listed schedule says itself, for equal chunks.
double Bubble(const parallel::ResolvedRecipe& resolved) {
  const parallel::Placement& placement = resolved.placement();
  const v1::Parallelism& parallelism = resolved.recipe().parallelism();
  if (!parallelism.pipeline_parallel_schedule_csv().empty()) {
    const parallel::Timeline timeline = parallel::TimelineOf(resolved.MakeSchedule());
    const int64_t microbatch = 3 * placement.locals();  // a forward and two gradients of each chunk
    return static_cast<double>(timeline.length - resolved.microbatches() * microbatch) / static_cast<double>(microbatch);
  }
  const bool parts = parallel::PartsBackward(parallelism.pipeline_parallel_schedule());
  return static_cast<double>(placement.ranks - 1) / static_cast<double>(placement.locals() * (parts ? 3 : 1));
}

}  // namespace

absl::StatusOr<RooflineEstimate> EstimateStep(const parallel::ResolvedRecipe& resolved, const v1::Cluster& cluster) {
  ASSIGN_OR_RETURN(auto compute, RooflineModel::Create(cluster.device()));
  CollectiveCostModel collectives(cluster);
  const Models models{*compute, collectives};
  double slowest = 0, blocking = 0, exposed = 0, microbatches = 1;
  RooflineEstimate estimate;
  for (const int64_t stage : DistinctStages(resolved, UnitOf(cluster))) {
    StageEstimate one(resolved, cluster, resolved.mesh().FirstRankOfStage(stage), models);
    absl::Status status = one.Run();
    if (!status.ok()) return status;
    if (one.microbatch() > slowest) slowest = one.microbatch(), blocking = one.blocking();
    exposed = std::max(exposed, one.exposed());
    estimate.optimizer_seconds = std::max(estimate.optimizer_seconds, one.optimizer());
    microbatches = static_cast<double>(one.microbatches());
    const LinkLoads loads = one.Loads();
    for (size_t kind = 0; kind < kLinkUses; ++kind) {
      if (loads[kind].seconds > estimate.loads[kind].seconds) estimate.loads[kind] = loads[kind];
    }
  }
  // Ranks that share a core take turns; while a stage of theirs has nothing to do, the others go on in its place.
  const double turns = RanksPerCore(cluster), others = (turns - 1) * microbatches;
  estimate.compute_seconds = turns * microbatches * (slowest - blocking);
  estimate.communication_seconds = turns * (microbatches * blocking + exposed);
  estimate.bubble_seconds = std::max(0.0, Bubble(resolved) - others) * slowest;
  estimate.optimizer_seconds *= turns;
  for (LinkLoad& load : estimate.loads) load.seconds *= turns;
  estimate.step_seconds =
      estimate.compute_seconds + estimate.communication_seconds + estimate.bubble_seconds + estimate.optimizer_seconds;
  return estimate;
}

LinkLoad NarrowestLink(const v1::Cluster& cluster, const mesh::RankLine& line, double bytes) {
  LinkLoad narrowest;
  double longest = -1;
  int64_t inside = 1;  // ranks of the line in one unit of the tier below
  for (int t = 0; t < cluster.tiers_size() && inside < line.size; ++t) {
    const int64_t unit = cluster.tiers(t).group_size(), end = (line.first / unit + 1) * unit;
    const int64_t here = std::min(line.size, (end - line.first + line.stride - 1) / line.stride);
    if (here <= inside) continue;  // the ring has no hop of this tier
    const double carried = bytes / static_cast<double>(inside);
    const double bandwidth = SustainedBandwidth(cluster, t, here);
    if (carried / bandwidth > longest) {
      longest = carried / bandwidth;
      narrowest = {t, carried, 0, bandwidth};
    }
    inside = here;
  }
  return narrowest;
}

}  // namespace legoai::sim

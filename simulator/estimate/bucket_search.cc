#include "simulator/estimate/bucket_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "core/recipe/fsdp_buckets.h"
#include "core/trace/passes/passes.h"
#include "core/trace/passes/shard_collectives.h"
#include "proto/status.h"
#include "simulator/engine/step_simulation.h"

namespace legoai::sim {
namespace {

using graph::Gather;
using graph::Phase;
using planner::LinkTime;
using planner::WrapBuckets;
using planner::WrapModule;
using planner::WrapPass;
using planner::WrapPlan;
using planner::WrapStage;

// Step times within which the smaller peak is better: predictions do not tell them apart (planner/ranking.h has the same).
constexpr double kNearTie = 0.01;

StageTrace TraceOf(const CapturedStage& stage, size_t number) {
  return {stage.trace.get(), static_cast<int64_t>(number), stage.rank, nullptr};
}

// What the algorithm is told of a stage's step.
class Profiler {
 public:
  Profiler(const StageTrace& stage, const std::vector<double>& seconds, const std::vector<int64_t>& live)
      : stage_(stage), seconds_(seconds), live_(live) {}

  absl::StatusOr<WrapStage> Run(const CollectiveCostModel& collectives) {
    ASSIGN_OR_RETURN(found_, graph::FindShardCollectives(*stage_.trace));
    LinkTime gather, reduce;
    if (!found_.gathers.empty()) {
      ASSIGN_OR_RETURN(gather, LinkOf(found_.gathers[0].collective, collectives));
    }
    if (!found_.reductions.empty()) {
      ASSIGN_OR_RETURN(reduce, ReduceLink(collectives));
    }
    for (const graph::Reduction& reduction : found_.reductions) {
      ASSIGN_OR_RETURN(const int64_t bytes, BytesOf(reduction.collective));
      reduced_[reduction.parameter] = bytes;
    }
    WrapStage profile;
    ASSIGN_OR_RETURN(profile.forward, PassOf(Phase::kForward));
    ASSIGN_OR_RETURN(profile.backward, PassOf(Phase::kBackward));
    for (WrapPass* const pass : {&profile.forward, &profile.backward}) pass->gather = gather, pass->reduce = reduce;
    if (!profile.forward.modules.empty() || found_.reductions.empty()) return profile;
    ASSIGN_OR_RETURN(profile.forward, PassOfReductions());
    profile.forward.gather = reduce;
    return profile;
  }

 private:
  absl::StatusOr<int64_t> BytesOf(uint32_t collective) const {
    ASSIGN_OR_RETURN(const auto call,
                     stage_.CallOf(graph::InstructionView(*stage_.trace, stage_.trace->instructions[collective])));
    return call.bytes;
  }

  // Costs of rings are linear in the bytes.
  absl::StatusOr<LinkTime> LinkOf(uint32_t collective, const CollectiveCostModel& collectives) const {
    constexpr int64_t kMany = int64_t{1} << 30;
    ASSIGN_OR_RETURN(const auto call,
                     stage_.CallOf(graph::InstructionView(*stage_.trace, stage_.trace->instructions[collective])));
    const mesh::RankLine& ranks = stage_.groups()[call.group].ranks;
    ASSIGN_OR_RETURN(const double none, collectives.Time(call.kind, 0, ranks));
    ASSIGN_OR_RETURN(const double many, collectives.Time(call.kind, kMany, ranks));
    return LinkTime{none, (many - none) / static_cast<double>(kMany)};
  }

  // With the sums over replicas, of a shard's bytes, that follow.
  absl::StatusOr<LinkTime> ReduceLink(const CollectiveCostModel& collectives) const {
    ASSIGN_OR_RETURN(LinkTime link, LinkOf(found_.reductions[0].collective, collectives));
    for (const graph::Reduction& reduction : found_.reductions) {
      if (!reduction.replicas) continue;
      ASSIGN_OR_RETURN(const int64_t whole, BytesOf(reduction.collective));
      ASSIGN_OR_RETURN(const int64_t shard, BytesOf(reduction.replicas->collective));
      ASSIGN_OR_RETURN(const LinkTime replicas, LinkOf(reduction.replicas->collective, collectives));
      link.latency_seconds += replicas.latency_seconds;
      link.seconds_per_byte +=
          replicas.seconds_per_byte * static_cast<double>(shard) / static_cast<double>(std::max<int64_t>(1, whole));
      break;
    }
    return link;
  }

  // Parameters that stay whole are not gathered beside computation: only reductions are beside it, each beside what follows it.
  // Backwards in time that is what the algorithm does with gathers.
  absl::StatusOr<WrapPass> PassOfReductions() const {
    std::map<std::string, size_t> last;  // of the step's last microbatch
    for (size_t i = 0; i < found_.reductions.size(); ++i) last[found_.reductions[i].parameter] = i;
    std::vector<size_t> reductions;
    for (const auto& [_, reduction] : last) reductions.push_back(reduction);
    std::sort(reductions.rbegin(), reductions.rend());
    WrapPass pass;
    std::map<std::string, size_t> places;
    for (const size_t i : reductions) {
      const graph::Reduction& reduction = found_.reductions[i];
      const bool is_first = i == 0 || found_.reductions[i - 1].span != reduction.span;
      const uint32_t end = reduction.start.front();
      const uint32_t begin = is_first ? found_.spans[reduction.span].first : found_.reductions[i - 1].start.front();
      ASSIGN_OR_RETURN(const int64_t bytes, BytesOf(reduction.collective));
      Add(parallel::ModuleOfParameter(reduction.parameter), {.gather = bytes}, begin, end, &places, &pass);
    }
    return pass;
  }

  // Until the next gather, or the end of the forward or backward.
  uint32_t EndOf(size_t gather) const {
    const auto& gathers = found_.gathers;
    const bool last = gather + 1 == gathers.size() || gathers[gather + 1].span != gathers[gather].span;
    return last ? found_.spans[gathers[gather].span].second : gathers[gather + 1].start.front();
  }

  // Of the step's last microbatch, which alone may reduce: parameters are gathered in each one alike. In the order of the step.
  std::vector<size_t> LastGathers(Phase phase) const {
    std::map<std::string, size_t> last;
    for (size_t i = 0; i < found_.gathers.size(); ++i) {
      if (found_.gathers[i].phase == phase) last[found_.gathers[i].parameter] = i;
    }
    std::vector<size_t> gathers;
    for (const auto& [parameter, gather] : last) gathers.push_back(gather);
    std::sort(gathers.begin(), gathers.end());
    return gathers;
  }

  absl::StatusOr<WrapPass> PassOf(Phase phase) const {
    WrapPass pass;
    std::map<std::string, size_t> places;
    for (const size_t i : LastGathers(phase)) {
      const Gather& gather = found_.gathers[i];
      const uint32_t begin = gather.start.front(), end = EndOf(i);
      ASSIGN_OR_RETURN(const int64_t bytes, BytesOf(gather.collective));
      const auto reduced = phase == Phase::kBackward ? reduced_.find(gather.parameter) : reduced_.end();
      const int64_t reduce_bytes = reduced == reduced_.end() ? 0 : reduced->second;
      Add(parallel::ModuleOfParameter(gather.parameter), {.gather = bytes, .reduce = reduce_bytes}, begin, end, &places, &pass);
    }
    return pass;
  }

  struct Sent {
    int64_t gather = 0, reduce = 0;  // bytes
  };
  // A parameter's part of its module: what it sends, and the instructions [begin, end) that are computed with it.
  void Add(const std::string& name, const Sent& sent, uint32_t begin, uint32_t end, std::map<std::string, size_t>* places,
           WrapPass* pass) const {
    const auto [found, fresh] = places->try_emplace(name, pass->modules.size());
    if (fresh) pass->modules.emplace_back().name = name;
    WrapModule& module = pass->modules[found->second];
    module.gather_bytes += sent.gather;
    module.reduce_bytes += sent.reduce;
    module.held_bytes += sent.gather + sent.reduce;
    module.compute_seconds += std::accumulate(seconds_.begin() + begin, seconds_.begin() + end, 0.0);
    if (begin == end) return;
    module.peak_bytes = std::max(module.peak_bytes, *std::max_element(live_.begin() + begin, live_.begin() + end));
  }

  const StageTrace& stage_;
  const std::vector<double>& seconds_;  // by instruction, of the compute stream
  const std::vector<int64_t>& live_;    // bytes after each instruction
  graph::ShardCollectives found_;
  std::map<std::string, int64_t> reduced_;  // bytes by parameter
};

std::vector<parallel::FsdpBucket> FsdpBucketsOf(const WrapBuckets& buckets) { return {buckets.begin(), buckets.end()}; }

v1::Recipe WithBuckets(v1::Recipe recipe, const WrapPlan& plan) {
  v1::CompileSection* const compile = recipe.mutable_compile();
  compile->set_fsdp_bucketing(plan.forward.empty() ? v1::BUCKET_NOTHING : v1::BUCKET_BY_MODULES);
  compile->clear_fsdp_buckets();
  compile->clear_fsdp_backward_buckets();
  for (const auto& bucket : plan.forward) {
    v1::ModelPart* const part = compile->add_fsdp_buckets();
    for (const std::string& name : bucket) part->add_modules(name);
  }
  for (const auto& bucket : plan.backward) {
    v1::ModelPart* const part = compile->add_fsdp_backward_buckets();
    for (const std::string& name : bucket) part->add_modules(name);
  }
  return recipe;
}

// The forward of one plan with the backward of another.
WrapPlan Mixed(const WrapPlan& forward, const WrapPlan& backward) {
  const WrapBuckets& back = backward.backward.empty() ? backward.forward : backward.backward;
  return {forward.forward, planner::JoinTheSame(forward.forward, back) ? WrapBuckets() : back};
}

absl::StatusOr<parallel::ResolvedRecipe> Resolve(const parallel::ResolvedRecipe& resolved, v1::Recipe recipe) {
  return parallel::ResolvedRecipe::Create(std::move(recipe), resolved.model(), resolved.mesh().world());
}

// The index of the best; `outcomes` has at least one.
size_t BestOf(const std::vector<BucketSearch::Outcome>& outcomes) {
  double fastest = std::numeric_limits<double>::infinity();  // of those that fit
  for (const auto& outcome : outcomes) {
    if (outcome.fits) fastest = std::min(fastest, outcome.step_seconds);
  }
  const bool none_fits = std::isinf(fastest);
  size_t best = outcomes.size();
  for (size_t i = 0; i < outcomes.size(); ++i) {
    if (!none_fits && (!outcomes[i].fits || outcomes[i].step_seconds > fastest * (1 + kNearTie))) continue;
    if (best == outcomes.size() || outcomes[i].peak_bytes < outcomes[best].peak_bytes) best = i;
  }
  return best;
}

}  // namespace

absl::StatusOr<BucketSearch> BucketSearch::Create(const parallel::ResolvedRecipe& resolved, const v1::Cluster& cluster,
                                                  const MemoryOptions& memory) {
  BucketSearch search;
  search.cluster_ = cluster;
  search.memory_ = memory;
  search.reorder_ = resolved.recipe().compile().fsdp_reorder();
  ASSIGN_OR_RETURN(search.compute_, RooflineModel::Create(cluster.device()));
  search.collectives_ = std::make_shared<CollectiveCostModel>(cluster);
  v1::Recipe alone = WithBuckets(resolved.recipe(), {});
  alone.mutable_compile()->set_fsdp_reorder(false);
  ASSIGN_OR_RETURN(const auto vanilla, Resolve(resolved, std::move(alone)));
  ASSIGN_OR_RETURN(search.captured_, CaptureStages(vanilla));
  for (size_t i = 0; i < search.captured_.size(); ++i) {
    const StageTrace stage = TraceOf(search.captured_[i], i);
    ASSIGN_OR_RETURN(const auto seconds, ComputeStreamSeconds(stage, *search.compute_, *search.collectives_));
    ASSIGN_OR_RETURN(const auto profile, SimulateMemory(*stage.trace, memory));
    ASSIGN_OR_RETURN(auto told, Profiler(stage, seconds, profile.live_bytes).Run(*search.collectives_));
    search.profiles_.push_back(std::move(told));
  }
  return search;
}

absl::StatusOr<BucketSearch::Outcome> BucketSearch::Evaluate(const WrapBuckets& forward, const WrapBuckets& backward) const {
  const auto ahead = FsdpBucketsOf(forward), back = backward.empty() ? ahead : FsdpBucketsOf(backward);
  const v1::Device& device = cluster_.device();
  Outcome outcome{.fits = true};
  std::vector<graph::Trace> traces(captured_.size());
  std::vector<StageTrace> stages;
  for (size_t i = 0; i < captured_.size(); ++i) {
    ASSIGN_OR_RETURN(graph::Trace trace, graph::BucketCollectives(*captured_[i].trace, ahead, back));
    if (reorder_) {
      ASSIGN_OR_RETURN(trace, graph::ReorderCollectives(std::move(trace)));
    }
    traces[i] = std::move(trace);
    ASSIGN_OR_RETURN(const auto profile, SimulateMemory(traces[i], memory_));
    outcome.peak_bytes = std::max(outcome.peak_bytes, profile.peak_allocated_bytes);
    stages.push_back({&traces[i], static_cast<int64_t>(i), captured_[i].rank, nullptr});
  }
  outcome.fits = outcome.peak_bytes + device.reserve_bytes() <= device.memory_bytes();
  ASSIGN_OR_RETURN(const auto step, SimulateStep(stages, cluster_, *compute_, *collectives_));
  outcome.step_seconds = step.step_seconds;
  outcome.exposed_seconds = step.breakdown.exposed_communication_seconds();
  return outcome;
}

absl::StatusOr<WrapPlan> BucketSearch::Best() const {
  const v1::Device& device = cluster_.device();
  const auto proposals = planner::ProposePlans(profiles_, device.memory_bytes() - device.reserve_bytes());
  std::vector<WrapPlan> plans;
  std::vector<Outcome> outcomes;
  const auto evaluate = [&](WrapPlan plan) -> absl::Status {
    if (std::find(plans.begin(), plans.end(), plan) != plans.end()) return absl::OkStatus();
    ASSIGN_OR_RETURN(outcomes.emplace_back(), Evaluate(plan.forward, plan.backward));
    plans.push_back(std::move(plan));
    return absl::OkStatus();
  };
  for (const WrapPlan& plan : proposals) RETURN_IF_ERROR(evaluate(plan));
  // Forward and backward hardly know of each other: beside the best one's forward all backwards, then beside its backward all
  // forwards.
  for (const bool of_backward : {true, false}) {
    const WrapPlan best = plans[BestOf(outcomes)];
    for (const WrapPlan& other : proposals) RETURN_IF_ERROR(evaluate(of_backward ? Mixed(best, other) : Mixed(other, best)));
  }
  return plans[BestOf(outcomes)];
}

absl::StatusOr<parallel::ResolvedRecipe> WithPlannedBuckets(const parallel::ResolvedRecipe& resolved, const v1::Cluster& cluster,
                                                            const MemoryOptions& memory) {
  ASSIGN_OR_RETURN(const auto search, BucketSearch::Create(resolved, cluster, memory));
  ASSIGN_OR_RETURN(const auto plan, search.Best());
  return Resolve(resolved, WithBuckets(resolved.recipe(), plan));
}

}  // namespace legoai::sim

#include "planner/plan_result.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/hardware/catalog.h"
#include "core/hardware/host.h"
#include "planner/explain.h"
#include "planner/plan.h"
#include "planner/ranking.h"
#include "proto/text.h"

namespace legoai::planner {
namespace {

bool Gains(const Outcomes& outcomes, const Attempt& attempt) {
  const auto with = outcomes.simulated.find(attempt.with), without = outcomes.simulated.find(attempt.without);
  return with != outcomes.simulated.end() && without != outcomes.simulated.end() && GainsTime(with->second, without->second);
}

std::vector<size_t> Order(const Outcomes& outcomes, const std::set<size_t>& left_out, v1::Objective objective) {
  std::vector<size_t> fitting;
  std::vector<Standing> standings;
  for (const auto& [i, estimate] : outcomes.simulated) {
    if (!estimate.fits() || left_out.count(i) > 0) continue;
    fitting.push_back(i);
    const auto& stage = FullestStage(estimate);
    standings.push_back({estimate.step_time_seconds(), HeadroomBytes(stage), stage.peak_allocated_bytes()});
  }
  std::vector<size_t> order;
  for (const size_t place : RankOrder(standings, objective)) order.push_back(fitting[place]);
  return order;
}

constexpr int64_t kRejectedShown = 20;

v1::RejectedRecipe Reject(const v1::Recipe& recipe, const std::string& rule, std::string reason) {
  v1::RejectedRecipe rejected;
  *rejected.mutable_recipe() = recipe;
  rejected.set_rule(rule);
  rejected.set_reason(std::move(reason));
  return rejected;
}

v1::RejectedRecipe RejectUnfit(const v1::Recipe& recipe, const v1::Estimate& estimate) {
  const auto& stage = FullestStage(estimate);
  // Another stage may need more: nobody looked.
  const bool alone = estimate.stages_size() < recipe.parallelism().pipeline_parallel_degree();
  auto rejected = Reject(recipe, "out_of_memory",
                         absl::StrCat("stage ", stage.stage(), alone ? " alone" : "", " needs ",
                                      BytesText(stage.peak_allocated_bytes()), " at ", stage.peak_at(), ", ",
                                      BytesText(UsableBytes(stage)), " are usable"));
  rejected.set_peak_memory_bytes(stage.peak_allocated_bytes());
  rejected.set_is_bound(alone);
  return rejected;
}

v1::RejectedRecipe RejectBounded(const BoundedRecipe& bounded, int64_t usable_bytes) {
  auto rejected = Reject(bounded.recipe, "out_of_memory",
                         absl::StrCat("needs at least ", BytesText(bounded.bound_bytes), " by the closed-form bound, ",
                                      BytesText(usable_bytes), " are usable"));
  rejected.set_peak_memory_bytes(bounded.bound_bytes);
  rejected.set_is_bound(true);
  return rejected;
}

// The result of what was simulated: all but `seconds`. Takes the space to pieces.
class ResultMaker {
 public:
  ResultMaker(const v1::PlanRequest& request, LegalSpace space, const Outcomes& outcomes)
      : request_(request), space_(std::move(space)), outcomes_(outcomes) {}

  v1::PlanResult Make() {
    CollectFacts();
    AddCounts();
    AddRanked();
    AddRejected();
    if (facts_.ranked.empty() && result_.not_reached() == 0 && result_.captured() + result_.bounded_out() > 0) FindLarger();
    result_.set_explanation(Explain(facts_, result_));
    if (request_.min_headroom_bytes() > 0) {
      absl::StrAppend(result_.mutable_explanation(), "\n- ", BytesText(request_.min_headroom_bytes()),
                      " of each device are left free, as asked for: they are not counted as usable.");
    }
    if (!outcomes_.of_fused.empty()) absl::StrAppend(result_.mutable_explanation(), "\n- ", outcomes_.of_fused);
    result_.set_stopped_early(facts_.stopped_early);
    const std::string assumed = sim::AssumedEfficiencies(request_.cluster().device());
    if (!facts_.ranked.empty() && !assumed.empty()) absl::StrAppend(result_.mutable_explanation(), "\n", assumed);
    const std::string busy = sim::MeasuredBusyText(request_.cluster().device());
    if (!facts_.ranked.empty() && !busy.empty()) absl::StrAppend(result_.mutable_explanation(), "\n- ", busy, ".");
    return std::move(result_);
  }

 private:
  void CollectFacts() {
    facts_.request = &request_;
    facts_.space = &space_;
    facts_.planned = outcomes_.planned;
    facts_.slower = outcomes_.slower;
    facts_.stopped_early = outcomes_.stopped_early;
    facts_.policies = outcomes_.policies;
    const auto simulated = [&](size_t i) {
      const auto gain = outcomes_.gains.find(i);
      return SimulatedRecipe{&outcomes_.simulated.at(i), &space_.survivors[i],
                             gain == outcomes_.gains.end() ? nullptr : &gain->second};
    };
    for (const size_t i : RankedOrder(outcomes_, request_.objective())) facts_.ranked.push_back(simulated(i));
    const auto find = [&](size_t i) -> const v1::Estimate* {
      const auto found = outcomes_.simulated.find(i);
      return found == outcomes_.simulated.end() ? nullptr : &found->second;
    };
    for (const Outcomes::Bucketed& one : outcomes_.bucketed)
      facts_.bucketed.push_back({find(one.planned), find(one.by_block), find(one.alone)});
    for (const Attempt& one : outcomes_.attempts) {
      facts_.attempts.push_back({one.choice, find(one.without), find(one.with)});
      tried_.insert(&space_.survivors[one.with]);
    }
    for (size_t i = 0; i < space_.survivors.size(); ++i) {
      const auto found = outcomes_.simulated.find(i);
      if (found != outcomes_.simulated.end()) {
        if (!found->second.fits()) facts_.unfit.push_back(simulated(i));
      } else if (outcomes_.failed.count(i) == 0) {
        facts_.not_simulated.push_back(&space_.survivors[i]);
      }
    }
    if (request_.objective() == v1::MEMORY) {
      std::stable_sort(facts_.not_simulated.begin(), facts_.not_simulated.end(),
                       [](const Survivor* a, const Survivor* b) { return a->bound_bytes < b->bound_bytes; });
    }
  }

  void AddCounts() {
    result_.set_model(request_.model().name());
    result_.set_cluster(request_.cluster().name());
    result_.set_global_batch(request_.global_batch());
    result_.set_seq_len(request_.seq_len());
    result_.set_space(space_.size);
    for (const auto& [rule, count] : space_.pruned) (*result_.mutable_pruned())[rule] = count;
    result_.set_bounded_out(space_.bounded_out);
    result_.set_captured(outcomes_.simulated.size());
    result_.set_captured_unfit(facts_.unfit.size());
    result_.set_failed(outcomes_.failed.size());
    result_.set_not_reached(space_.undecided + facts_.not_simulated.size());
  }

  // What was simulated first; the rest of the places go to what was not, by the closed-form estimate.
  void AddRanked() {
    const int64_t top = request_.top() > 0 ? request_.top() : kDefaultTop;
    const auto add = [&](v1::RankedRecipe ranked) {
      ranked.set_rank(result_.ranked_size() + 1);
      ranked.set_headroom_bytes(ranked.headroom_bytes() + request_.min_headroom_bytes());
      *result_.add_ranked() = std::move(ranked);
    };
    for (size_t i = 0; i < facts_.ranked.size() && result_.ranked_size() < top; ++i)
      add(RankSimulated(*facts_.ranked[i].estimate));
    for (size_t i = 0; i < facts_.not_simulated.size() && result_.ranked_size() < top; ++i) {
      // The same with collectives by block is among them, and of those that were to be tried last the same without.
      if (facts_.not_simulated[i]->recipe.compile().fsdp_bucketing() == v1::BUCKET_BY_PLAN) continue;
      if (tried_.count(facts_.not_simulated[i]) > 0) continue;
      add(RankEstimated(request_, *facts_.not_simulated[i]));
    }
  }

  void AddRejected() {
    std::vector<v1::RejectedRecipe> by_memory;
    for (const SimulatedRecipe& one : facts_.unfit) by_memory.push_back(RejectUnfit(one.estimate->recipe(), *one.estimate));
    const int64_t usable = UsableBytes(request_.cluster());
    for (const auto& bounded : space_.closest) by_memory.push_back(RejectBounded(bounded, usable));
    std::stable_sort(by_memory.begin(), by_memory.end(),
                     [](const auto& a, const auto& b) { return a.peak_memory_bytes() < b.peak_memory_bytes(); });
    for (v1::RejectedRecipe& rejected : by_memory) {
      if (request_.all_rejected() || result_.rejected_size() < kRejectedShown) *result_.add_rejected() = std::move(rejected);
    }
    // A failure is never hidden behind what does not fit.
    for (const auto& [i, reason] : outcomes_.failed)
      *result_.add_rejected() = Reject(space_.survivors[i].recipe, "failed", reason);
    for (PrunedCandidate& pruned : space_.pruned_candidates) {
      *result_.add_rejected() = Reject(pruned.recipe, pruned.rule, std::move(pruned.reason));
    }
  }

  // An error would be one of the request, which has been pruned already.
  void FindLarger() {
    if (auto larger = SmallestThatMayFit(request_); larger.ok()) facts_.larger = *std::move(larger);
  }

  const v1::PlanRequest& request_;
  LegalSpace space_;
  const Outcomes& outcomes_;
  PlanFacts facts_;
  std::set<const Survivor*> tried_;  // of space_, by the last choices
  v1::PlanResult result_;
};

}  // namespace

std::vector<size_t> FittingOrder(const Outcomes& outcomes, v1::Objective objective) { return Order(outcomes, {}, objective); }

std::vector<size_t> RankedOrder(const Outcomes& outcomes, v1::Objective objective) {
  std::set<size_t> left_out;
  for (const Attempt& attempt : outcomes.attempts) {
    if (!Gains(outcomes, attempt)) left_out.insert(attempt.with);
  }
  return Order(outcomes, left_out, objective);
}

v1::PlanResult MakeResult(const v1::PlanRequest& request, LegalSpace space, const Outcomes& outcomes) {
  return ResultMaker(request, std::move(space), outcomes).Make();
}

}  // namespace legoai::planner

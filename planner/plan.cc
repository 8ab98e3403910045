#include "planner/plan.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/choice.h"
#include "planner/explain.h"
#include "planner/headroom.h"
#include "planner/legal.h"
#include "planner/ranking.h"
#include "proto/errors.h"
#include "proto/quantity_text.h"
#include "simulator/hardware/catalog.h"

namespace legoai::planner {
namespace {

constexpr int64_t kRejectedShown = 20;
// Between two looks at `cancel` and at the clock.
constexpr absl::Duration kPatience = absl::Milliseconds(100);
constexpr double kReportSeconds = 1;

absl::Duration SteadyNow() { return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); }

v1::RejectedRecipe Reject(const v1::Recipe& recipe, const std::string& rule, std::string reason) {
  v1::RejectedRecipe rejected;
  *rejected.mutable_recipe() = recipe;
  rejected.set_rule(rule);
  rejected.set_reason(std::move(reason));
  return rejected;
}

// One planning run: captures the survivors, sorts what comes back.
class Run {
 public:
  Run(const v1::PlanRequest& request, Estimator& estimator, const std::function<void(const PlanProgress&)>& progress,
      const std::function<bool()>& cancel, const std::function<absl::Duration()>& steady)
      : request_(request),
        estimator_(estimator),
        progress_(progress),
        cancel_(cancel),
        steady_(steady ? steady : SteadyNow),
        started_(steady_()) {}

  absl::StatusOr<v1::PlanResult> Execute() {
    // Quick, and all that follows rests on it: only the last limit ends it.
    auto space = PruneSpace(request_, cancel_, [this] { return TimeLeft(kFirstFitLimit) <= absl::ZeroDuration(); });
    if (!space.ok()) return space.status();
    space_ = *std::move(space);
    PrepareOrders();
    Report();
    absl::Status status = Capture();
    estimator_.StopAll();
    if (!status.ok()) return status;
    return Result();
  }

 private:
  double Elapsed() const { return absl::ToDoubleSeconds(steady_() - started_); }
  // Of the budget, with `extra` added to it; without a budget endless.
  absl::Duration TimeLeft(absl::Duration extra) const {
    if (request_.budget_seconds() <= 0) return absl::InfiniteDuration();
    return absl::Seconds(request_.budget_seconds() - Elapsed()) + extra;
  }
  // Beyond the budget, what goes on while no recipe is known to fit; afterwards what is under way gets a little more.
  bool MayStart() const { return TimeLeft(fitting_.empty() ? kFirstFitLimit : absl::ZeroDuration()) > absl::ZeroDuration(); }
  absl::Duration MayWait() const { return std::max(TimeLeft(fitting_.empty() ? kFirstFitLimit : kGrace), absl::ZeroDuration()); }

  void PrepareOrders() {
    const auto& survivors = space_.survivors;
    taken_.assign(survivors.size(), false);
    done_.assign(survivors.size(), false);
    for (size_t i = 0; i < survivors.size(); ++i) smallest_.push_back(i);
    std::stable_sort(smallest_.begin(), smallest_.end(),
                     [&](size_t a, size_t b) { return survivors[a].bound_bytes < survivors[b].bound_bytes; });
  }

  // What to capture next: the fastest by the roofline estimate. With a budget, one recipe for each choice goes first as soon as
  // something fits, so that the explanation has a number for it. If half the budget is gone and nothing fits yet, every other one
  // is the smallest by the memory bound: a slow recipe is better than none.
  std::optional<size_t> Next() {
    if (const auto alternative = NextAlternative()) return alternative;
    const absl::Duration half = -absl::Seconds(request_.budget_seconds() / 2);
    const bool for_memory =
        fitting_.empty() && !unfit_.empty() && TimeLeft(half) < absl::ZeroDuration() && started_count_ % 2 == 0;
    size_t& at = for_memory ? next_smallest_ : next_fastest_;
    auto candidate = [&] { return for_memory ? smallest_[at] : at; };
    while (at < taken_.size() && taken_[candidate()]) ++at;
    if (at == taken_.size()) return std::nullopt;
    return candidate();
  }

  // The fastest by the roofline estimate that decides a choice otherwise than the first that fits and needs no more memory than
  // that one by the bound, so that it is likely to fit; if all of them need more, the smallest.
  std::optional<size_t> NextAlternative() {
    if (request_.budget_seconds() <= 0 || fitting_.empty()) return std::nullopt;
    if (!compared_) compared_ = fitting_.begin()->first;
    for (; next_choice_ < kChoiceCount; ++next_choice_) {
      if (const auto found = Alternative(kChoices[next_choice_], space_.survivors[*compared_])) {
        ++next_choice_;
        return found;
      }
    }
    return std::nullopt;
  }

  std::optional<size_t> Alternative(const Choice& choice, const Survivor& compared) const {
    const int64_t chosen = choice.value(compared.recipe);
    std::optional<size_t> smallest;
    for (size_t i = 0; i < taken_.size(); ++i) {
      const Survivor& survivor = space_.survivors[i];
      if (taken_[i] || choice.value(survivor.recipe) == chosen) continue;
      if (survivor.bound_bytes <= compared.bound_bytes) return i;
      if (!smallest || survivor.bound_bytes < space_.survivors[*smallest].bound_bytes) smallest = i;
    }
    return smallest;
  }

  void Report() {
    reported_seconds_ = Elapsed();
    if (!progress_) return;
    PlanProgress progress;
    progress.space = space_.size;
    progress.to_capture = space_.survivors.size();
    progress.captured = finished_;
    for (const auto& [_, estimate] : fitting_) {
      if (progress.best_step_seconds == 0 || estimate.step_time_seconds() < progress.best_step_seconds) {
        progress.best_step_seconds = estimate.step_time_seconds();
      }
    }
    progress.elapsed_seconds = Elapsed();
    progress_(progress);
  }

  v1::SimRequest MakeRequest(size_t index) const {
    v1::SimRequest sim;
    sim.set_id(index);
    *sim.mutable_model() = request_.model();
    *sim.mutable_cluster() = request_.cluster();
    *sim.mutable_recipe() = space_.survivors[index].recipe;
    sim.set_cost_mode(v1::COST_ROOFLINE);
    return sim;
  }

  // Keeps the estimator's slots full until nothing is left or the time is over.
  absl::Status Capture() {
    for (;;) {
      if (cancel_ && cancel_()) return absl::CancelledError("planning was cancelled");
      while (started_count_ - finished_ < estimator_.Slots() && MayStart()) {
        const std::optional<size_t> next = Next();
        if (!next) break;
        taken_[*next] = true;
        ++started_count_;
        if (absl::Status status = estimator_.Start(MakeRequest(*next)); !status.ok()) return status;
      }
      if (started_count_ == finished_) return absl::OkStatus();
      // When the time is over, what has come already still counts.
      const absl::Duration left = MayWait();
      auto answer = estimator_.Wait(std::min(left, kPatience));
      if (!answer.ok()) return answer.status();
      if (!*answer && left == absl::ZeroDuration()) return absl::OkStatus();
      if (Elapsed() - reported_seconds_ >= kReportSeconds) Report();
      if (!*answer || (*answer)->has_progress()) continue;
      ++finished_;
      Keep(**answer);
      Report();
    }
  }

  void Keep(const v1::SimResponse& response) {
    done_[response.id()] = true;
    const v1::Recipe& recipe = space_.survivors[response.id()].recipe;
    if (response.has_error()) {
      failed_[response.id()] = Reject(recipe, "failed", response.error().message());
      return;
    }
    const v1::Estimate& estimate = response.estimate();
    if (estimate.fits()) {
      fitting_[response.id()] = estimate;
      return;
    }
    const auto& stage = FullestStage(estimate);
    auto rejected = Reject(recipe, "out_of_memory",
                           absl::StrCat("stage ", stage.stage(), " needs ", BytesText(stage.peak_allocated_bytes()), " at ",
                                        stage.peak_at(), ", ", BytesText(UsableBytes(stage)), " are usable"));
    rejected.set_peak_memory_bytes(stage.peak_allocated_bytes());
    unfit_[response.id()] = std::move(rejected);
  }

  v1::PlanResult Result() {
    v1::PlanResult result;
    result.set_model(request_.model().name());
    result.set_cluster(request_.cluster().name());
    result.set_global_batch(request_.global_batch());
    result.set_seq_len(request_.seq_len());
    result.set_space(space_.size);
    for (const auto& [rule, count] : space_.pruned) (*result.mutable_pruned())[rule] = count;
    result.set_bounded_out(space_.bounded_out);
    result.set_captured(fitting_.size() + unfit_.size());
    result.set_captured_unfit(unfit_.size());
    result.set_failed(failed_.size());
    result.set_not_reached(space_.undecided + space_.survivors.size() - finished_);
    std::vector<v1::Estimate> ranked;
    const std::vector<size_t> order = Order();
    for (size_t index : order) ranked.push_back(fitting_[index]);
    AddRanked(ranked, &result);
    AddRejected(&result);
    result.set_explanation(Explain(ranked, result, order.empty() ? NotReached() : NotReachedFrom(order[0]), space_.reasons));
    const std::string assumed = sim::AssumedEfficiencies(request_.cluster().device());
    if (!ranked.empty() && !assumed.empty()) absl::StrAppend(result.mutable_explanation(), "\n", assumed);
    result.set_seconds(Elapsed());
    return result;
  }

  // Equal times by headroom, and then as in the space: not as answers happened to come. Gives indices of survivors.
  std::vector<size_t> Order() const {
    std::vector<size_t> order;
    for (const auto& [index, _] : fitting_) order.push_back(index);
    std::stable_sort(order.begin(), order.end(), [this](size_t i, size_t j) {
      const v1::Estimate &a = fitting_.at(i), &b = fitting_.at(j);
      if (a.step_time_seconds() != b.step_time_seconds()) return a.step_time_seconds() < b.step_time_seconds();
      return HeadroomBytes(FullestStage(a)) > HeadroomBytes(FullestStage(b));
    });
    return order;
  }

  NotReached NotReachedFrom(size_t winner) const {
    NotReached not_reached;
    not_reached.budget_seconds = request_.budget_seconds();
    const double best = space_.survivors[winner].roofline.step_seconds;
    for (size_t i = 0; i < done_.size(); ++i) {
      const Survivor& survivor = space_.survivors[i];
      if (!done_[i]) not_reached.entries.push_back({&survivor.recipe, survivor.roofline.step_seconds / best});
    }
    return not_reached;
  }

  // What was simulated first; the rest of the places go to what was not, by the closed-form estimate.
  void AddRanked(const std::vector<v1::Estimate>& estimates, v1::PlanResult* result) const {
    const int64_t top = request_.top() > 0 ? request_.top() : kDefaultTop;
    auto add = [&](v1::RankedRecipe ranked) {
      ranked.set_rank(result->ranked_size() + 1);
      *result->add_ranked() = std::move(ranked);
    };
    for (size_t i = 0; i < estimates.size() && result->ranked_size() < top; ++i) add(RankSimulated(estimates[i]));
    for (size_t i = 0; i < done_.size() && result->ranked_size() < top; ++i) {
      if (!done_[i]) add(RankEstimated(request_, space_.survivors[i]));
    }
  }

  void AddRejected(v1::PlanResult* result) {
    std::vector<v1::RejectedRecipe> by_memory;
    for (auto& [_, rejected] : unfit_) by_memory.push_back(std::move(rejected));
    for (const auto& bounded : space_.closest) {
      auto rejected = Reject(bounded.recipe, "out_of_memory",
                             absl::StrCat("needs at least ", BytesText(bounded.bound_bytes), " by the closed-form bound, ",
                                          BytesText(UsableBytes(request_.cluster())), " are usable"));
      rejected.set_peak_memory_bytes(bounded.bound_bytes);
      rejected.set_is_bound(true);
      by_memory.push_back(std::move(rejected));
    }
    std::stable_sort(by_memory.begin(), by_memory.end(),
                     [](const auto& a, const auto& b) { return a.peak_memory_bytes() < b.peak_memory_bytes(); });
    auto add = [&](v1::RejectedRecipe& rejected) {
      if (request_.all_rejected() || result->rejected_size() < kRejectedShown) *result->add_rejected() = std::move(rejected);
    };
    for (auto& rejected : by_memory) add(rejected);
    // A failure is never hidden behind what does not fit.
    for (auto& [_, rejected] : failed_) *result->add_rejected() = std::move(rejected);
    for (auto& pruned : space_.pruned_candidates) *result->add_rejected() = Reject(pruned.recipe, pruned.rule, pruned.reason);
  }

  const v1::PlanRequest& request_;
  Estimator& estimator_;
  const std::function<void(const PlanProgress&)>& progress_;
  const std::function<bool()>& cancel_;
  const std::function<absl::Duration()> steady_;
  const absl::Duration started_;
  double reported_seconds_ = 0;
  LegalSpace space_;
  // Of space_.survivors, by index:
  std::vector<bool> taken_, done_;
  std::vector<size_t> smallest_;  // ascending by memory bound
  size_t next_fastest_ = 0, next_smallest_ = 0;
  std::optional<size_t> compared_;  // the first that was seen to fit; from it alternatives differ
  size_t next_choice_ = 0;          // of kChoices, the next without an alternative
  int64_t started_count_ = 0, finished_ = 0;
  std::map<size_t, v1::Estimate> fitting_;
  std::map<size_t, v1::RejectedRecipe> unfit_, failed_;
};

// Larger numbers than any job has: products of a few of them fit.
constexpr int64_t kMost = 1'000'000'000;

absl::Status CheckRequest(const v1::PlanRequest& request) {
  if (request.global_batch() <= 0 || request.global_batch() > kMost) {
    return FieldError("global_batch", absl::StrCat(request.global_batch()),
                      absl::StrCat("give a positive number of sequences, at most ", kMost));
  }
  if (request.seq_len() <= 0 || request.seq_len() > kMost) {
    return FieldError("seq_len", absl::StrCat(request.seq_len()),
                      absl::StrCat("give a positive number of tokens, at most ", kMost));
  }
  if (std::isnan(request.budget_seconds())) return FieldError("budget_seconds", "nan", "give seconds, or 0 for no limit");
  if (absl::Status status = sim::CheckCluster(request.cluster()); !status.ok()) return Annotate(status, "cluster");
  if (request.model().num_hidden_layers() <= 0) return FieldError("model", request.model().name(), "give a model with layers");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::PlanResult> Plan(const v1::PlanRequest& request, Estimator& estimator,
                                    const std::function<void(const PlanProgress&)>& progress, const std::function<bool()>& cancel,
                                    const std::function<absl::Duration()>& steady) {
  if (absl::Status status = CheckRequest(request); !status.ok()) return status;
  return Run(request, estimator, progress, cancel, steady).Execute();
}

}  // namespace legoai::planner

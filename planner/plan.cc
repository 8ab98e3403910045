#include "planner/plan.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "planner/explain.h"
#include "planner/headroom.h"
#include "planner/legal.h"
#include "proto/errors.h"
#include "worker/parallel/recipe.h"

namespace legoai::planner {
namespace {

constexpr int64_t kDefaultTop = 10;
constexpr int64_t kRejectedShown = 20;

std::string GiB(int64_t bytes) { return absl::StrFormat("%.2f GiB", bytes / 1073741824.0); }

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
      const std::function<bool()>& cancel)
      : request_(request), estimator_(estimator), progress_(progress), cancel_(cancel), started_(absl::Now()) {}

  absl::StatusOr<v1::PlanResult> Execute() {
    auto space = PruneSpace(request_);
    if (!space.ok()) return space.status();
    space_ = *std::move(space);
    Report();
    if (absl::Status status = Capture(); !status.ok()) return status;
    return Result();
  }

 private:
  double Elapsed() const { return absl::ToDoubleSeconds(absl::Now() - started_); }
  bool OutOfTime() const { return request_.budget_seconds() > 0 && Elapsed() >= request_.budget_seconds(); }

  void Report() {
    if (!progress_) return;
    PlanProgress progress;
    progress.space = space_.size;
    progress.to_capture = space_.survivors.size();
    progress.captured = finished_;
    for (const auto& estimate : fitting_) {
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

  // Keeps the estimator's slots full until nothing is left or the time is over; what is under way then is waited for.
  absl::Status Capture() {
    int64_t under_way = 0;
    while (next_ < space_.survivors.size() || under_way > 0) {
      if (cancel_ && cancel_()) return absl::CancelledError("planning was cancelled");
      while (next_ < space_.survivors.size() && under_way < estimator_.Slots() && !OutOfTime()) {
        if (absl::Status status = estimator_.Start(MakeRequest(next_)); !status.ok()) return status;
        ++next_;
        ++under_way;
      }
      if (under_way == 0) break;
      auto answer = estimator_.Wait(absl::Milliseconds(500));
      if (!answer.ok()) return answer.status();
      if (!*answer) continue;
      --under_way;
      ++finished_;
      Keep(**answer);
      Report();
    }
    return absl::OkStatus();
  }

  void Keep(const v1::SimResponse& response) {
    const v1::Recipe& recipe = space_.survivors[response.id()].recipe;
    if (response.has_error()) {
      failed_.push_back(Reject(recipe, "failed", response.error().message()));
      return;
    }
    const v1::Estimate& estimate = response.estimate();
    if (estimate.fits()) {
      fitting_.push_back(estimate);
      return;
    }
    const auto& stage = FullestStage(estimate);
    auto rejected = Reject(recipe, "out_of_memory",
                           absl::StrCat("stage ", stage.stage(), " needs ", GiB(stage.peak_allocated_bytes()), " at ",
                                        stage.peak_at(), ", ", GiB(UsableBytes(stage)), " are usable"));
    rejected.set_peak_memory_bytes(stage.peak_allocated_bytes());
    unfit_.push_back(std::move(rejected));
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
    result.set_not_reached(space_.survivors.size() - next_);
    std::stable_sort(fitting_.begin(), fitting_.end(),
                     [](const auto& a, const auto& b) { return a.step_time_seconds() < b.step_time_seconds(); });
    AddRanked(&result);
    AddRejected(&result);
    result.set_explanation(Explain(fitting_, result));
    result.set_seconds(Elapsed());
    return result;
  }

  void AddRanked(v1::PlanResult* result) {
    const size_t top = request_.top() > 0 ? request_.top() : kDefaultTop;
    for (size_t i = 0; i < std::min(top, fitting_.size()); ++i) {
      const v1::Estimate& estimate = fitting_[i];
      const auto& stage = FullestStage(estimate);
      auto* ranked = result->add_ranked();
      ranked->set_rank(i + 1);
      *ranked->mutable_recipe() = estimate.recipe();
      ranked->set_recipe_toml(parallel::RecipeToToml(estimate.recipe()));
      ranked->set_step_time_seconds(estimate.step_time_seconds());
      ranked->set_tokens_per_second_per_gpu(estimate.tokens_per_second_per_gpu());
      ranked->set_mfu(estimate.mfu());
      ranked->set_peak_memory_bytes(stage.peak_allocated_bytes());
      ranked->set_headroom_bytes(HeadroomBytes(stage));
    }
  }

  void AddRejected(v1::PlanResult* result) {
    std::vector<v1::RejectedRecipe> by_memory = std::move(unfit_);
    for (const auto& bounded : space_.closest) {
      auto rejected = Reject(bounded.recipe, "out_of_memory",
                             absl::StrCat("needs at least ", GiB(bounded.bound_bytes), " by the closed-form bound, ",
                                          GiB(UsableBytes(request_.cluster())), " are usable"));
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
    for (auto& rejected : failed_) *result->add_rejected() = std::move(rejected);
    for (auto& pruned : space_.pruned_candidates) *result->add_rejected() = Reject(pruned.recipe, pruned.rule, pruned.reason);
  }

  const v1::PlanRequest& request_;
  Estimator& estimator_;
  const std::function<void(const PlanProgress&)>& progress_;
  const std::function<bool()>& cancel_;
  const absl::Time started_;
  LegalSpace space_;
  size_t next_ = 0;  // of space_.survivors
  int64_t finished_ = 0;
  std::vector<v1::Estimate> fitting_;
  std::vector<v1::RejectedRecipe> unfit_, failed_;
};

absl::Status CheckRequest(const v1::PlanRequest& request) {
  if (request.global_batch() <= 0)
    return FieldError("global_batch", absl::StrCat(request.global_batch()), "give a positive number of sequences");
  if (request.seq_len() <= 0) return FieldError("seq_len", absl::StrCat(request.seq_len()), "give a positive number of tokens");
  if (request.model().num_hidden_layers() <= 0) return FieldError("model", request.model().name(), "give a model with layers");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::PlanResult> Plan(const v1::PlanRequest& request, Estimator& estimator,
                                    const std::function<void(const PlanProgress&)>& progress,
                                    const std::function<bool()>& cancel) {
  if (absl::Status status = CheckRequest(request); !status.ok()) return status;
  return Run(request, estimator, progress, cancel).Execute();
}

}  // namespace legoai::planner

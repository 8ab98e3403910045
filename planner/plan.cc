#include "planner/plan.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/hardware/catalog.h"
#include "planner/legal.h"
#include "planner/ranking.h"
#include "planner/schedule.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "proto/text.h"

namespace legoai::planner {
namespace {

// Between two looks at `cancel` and at the clock.
constexpr absl::Duration kPatience = absl::Milliseconds(100);
constexpr double kReportSeconds = 1;

absl::Duration SteadyNow() { return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); }

// One planning run: captures what the schedule says, round by round.
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
    schedule_.emplace(space_.survivors, /*everything=*/request_.budget_seconds() <= 0, request_.objective());
    Report();
    absl::Status status = Capture();
    estimator_.StopAll();
    if (!status.ok()) return status;
    outcomes_.planned = schedule_->total();
    outcomes_.stopped_early = space_.undecided > 0 || finished_ < outcomes_.planned;
    v1::PlanResult result = MakeResult(request_, std::move(space_), outcomes_);
    result.set_seconds(Elapsed());
    return result;
  }

 private:
  double Elapsed() const { return absl::ToDoubleSeconds(steady_() - started_); }
  // Of the budget, with `extra` added to it; without a budget endless.
  absl::Duration TimeLeft(absl::Duration extra) const {
    if (request_.budget_seconds() <= 0) return absl::InfiniteDuration();
    return absl::Seconds(request_.budget_seconds() - Elapsed()) + extra;
  }
  // Beyond the budget, what goes on while no recipe is known to fit; afterwards what is under way gets a little more.
  bool MayStart() const { return TimeLeft(any_fits_ ? absl::ZeroDuration() : kFirstFitLimit) > absl::ZeroDuration(); }
  absl::Duration MayWait() const { return std::max(TimeLeft(any_fits_ ? kGrace : kFirstFitLimit), absl::ZeroDuration()); }

  std::vector<v1::RankedRecipe> BestSoFar() const {
    std::vector<v1::RankedRecipe> best;
    for (const size_t i : FittingOrder(outcomes_.simulated, request_.objective())) {
      if (static_cast<int64_t>(best.size()) == kBestSoFar) break;
      v1::RankedRecipe& ranked = best.emplace_back(RankSimulatedSoFar(outcomes_.simulated.at(i)));
      ranked.set_rank(static_cast<int64_t>(best.size()));
      ranked.set_headroom_bytes(ranked.headroom_bytes() + request_.min_headroom_bytes());  // as in the result
    }
    return best;
  }

  void Report() {
    reported_seconds_ = Elapsed();
    if (!progress_) return;
    PlanProgress progress;
    progress.space = space_.size;
    progress.to_capture = schedule_->total();
    progress.captured = finished_;
    for (const auto& [_, estimate] : outcomes_.simulated) {
      if (!estimate.fits()) continue;
      const double best = progress.best_step_seconds, seconds = estimate.step_time_seconds();
      progress.best_step_seconds = best == 0 ? seconds : std::min(best, seconds);
    }
    progress.elapsed_seconds = Elapsed();
    progress.best = BestSoFar();
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

  // Until the schedule or the time is over.
  absl::Status Capture() {
    for (;;) {
      const std::vector<size_t> round = schedule_->NextRound(FittingOrder(outcomes_.simulated, request_.objective()));
      if (round.empty()) return absl::OkStatus();
      ASSIGN_OR_RETURN(const auto complete, CaptureRound(round));
      if (!complete) return absl::OkStatus();
    }
  }

  // Keeps the estimator's slots full until all of the round are done, which is what it gives, or the time is over.
  absl::StatusOr<bool> CaptureRound(const std::vector<size_t>& round) {
    size_t next = 0;
    int64_t under_way = 0;
    for (;;) {
      if (cancel_ && cancel_()) return absl::CancelledError("planning was cancelled");
      for (; next < round.size() && under_way < estimator_.Slots() && MayStart(); ++next, ++under_way) {
        RETURN_IF_ERROR(estimator_.Start(MakeRequest(round[next])));
      }
      if (under_way == 0) return next == round.size();
      // When the time is over, what has come already still counts.
      const absl::Duration left = MayWait();
      ASSIGN_OR_RETURN(auto answer, estimator_.Wait(std::min(left, kPatience)));
      if (!answer && left == absl::ZeroDuration()) return false;
      if (Elapsed() - reported_seconds_ >= kReportSeconds) Report();
      if (!answer || answer->has_progress()) continue;
      --under_way;
      Keep(*answer);
      Report();
    }
  }

  void Keep(const v1::SimResponse& response) {
    ++finished_;
    if (response.has_error()) {
      outcomes_.failed[response.id()] = response.error().message();
      return;
    }
    any_fits_ = any_fits_ || response.estimate().fits();
    outcomes_.simulated[response.id()] = response.estimate();
  }

  const v1::PlanRequest& request_;
  Estimator& estimator_;
  const std::function<void(const PlanProgress&)>& progress_;
  const std::function<bool()>& cancel_;
  const std::function<absl::Duration()> steady_;
  const absl::Duration started_;
  double reported_seconds_ = 0;
  LegalSpace space_;
  std::optional<Schedule> schedule_;  // of space_
  Outcomes outcomes_;
  int64_t finished_ = 0;
  bool any_fits_ = false;
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
  if (!v1::Objective_IsValid(request.objective()))
    return FieldError("objective", absl::StrCat(request.objective()), "must be step_time or memory");
  if (request.min_headroom_bytes() < 0 || request.min_headroom_bytes() >= request.cluster().device().memory_bytes()) {
    return FieldError("min_headroom_bytes", absl::StrCat(request.min_headroom_bytes()),
                      absl::StrCat("must be at least 0, and less than the device's memory, ",
                                   BytesText(static_cast<double>(request.cluster().device().memory_bytes()))));
  }
  if (request.model().num_hidden_layers() <= 0) return FieldError("model", request.model().name(), "give a model with layers");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::PlanResult> Plan(const v1::PlanRequest& request, Estimator& estimator,
                                    const std::function<void(const PlanProgress&)>& progress, const std::function<bool()>& cancel,
                                    const std::function<absl::Duration()>& steady) {
  RETURN_IF_ERROR(CheckRequest(request));
  // Room that is asked for is a reserve like the device's own: bounds, simulations and ranking leave it free alike.
  v1::PlanRequest roomy = request;
  v1::Device* const device = roomy.mutable_cluster()->mutable_device();
  device->set_reserve_bytes(device->reserve_bytes() + request.min_headroom_bytes());
  return Run(roomy, estimator, progress, cancel, steady).Execute();
}

}  // namespace legoai::planner

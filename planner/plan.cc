#include "planner/plan.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/hardware/catalog.h"
#include "core/model/model_facts.h"
#include "core/recipe/recipe.h"
#include "core/recipe/resolved_recipe.h"
#include "planner/auto_sac.h"
#include "planner/last_choices.h"
#include "planner/legal.h"
#include "planner/open_choices.h"
#include "planner/plan_facts.h"
#include "planner/plan_result.h"
#include "planner/ranking.h"
#include "planner/schedule.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "proto/text.h"
#include "proto/toml/toml.h"

namespace legoai::planner {
namespace {

// Of the best recipes, so many are simulated with gathers two layers ahead too: what that hides the closed forms do not tell.
constexpr size_t kGatheredFurther = 4;
constexpr int64_t kLayersAhead = 2;
// What must be exposed for it to be worth a try, as a share of the step.
constexpr double kWorthHiding = 0.01;

// Whether each forward and backward gathers parameters, and something is left to hide.
bool MayGatherFurther(const v1::Estimate& estimate) {
  const v1::Parallelism& p = estimate.recipe().parallelism();
  const bool gathers = HasShards(estimate.recipe()) && p.zero_stage() == 3 && p.pipeline_parallel_degree() == 1 &&
                       p.fsdp_reshard_after_forward() != v1::RESHARD_NEVER;
  return gathers && estimate.breakdown().exposed_communication_seconds() > kWorthHiding * estimate.step_time_seconds();
}

// Of the best recipes that shard parameters, so many are simulated with their collectives in planned buckets.
constexpr size_t kBucketed = 4;

// Each of the last choices is tried on so many of the best recipes that it may change.
constexpr size_t kTried = 4;

// Policies are made for so many layouts: each takes up to a dozen simulations.
constexpr size_t kPolicies = 4;

// What tells layouts apart from their checkpointing.
std::string LayoutKey(v1::Recipe recipe) {
  recipe.clear_activation_checkpoint();
  return recipe.SerializeAsString();
}

// Between two looks at `cancel` and at the clock.
constexpr absl::Duration kPatience = absl::Milliseconds(100);
constexpr double kReportSeconds = 1;

absl::Duration SteadyNow() { return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); }

// One planning run: captures what the schedule says, round by round.
class Run {
 public:
  Run(const v1::PlanRequest& request, const OpenChoices& open, Estimator& estimator,
      const std::function<void(const PlanProgress&)>& progress, const std::function<bool()>& cancel,
      const std::function<absl::Duration()>& steady)
      : request_(request),
        open_(open),
        estimator_(estimator),
        progress_(progress),
        cancel_(cancel),
        steady_(steady ? steady : SteadyNow),
        started_(steady_()) {}

  absl::StatusOr<v1::PlanResult> Execute() {
    estimator_.Prepare();
    // Quick, and all that follows rests on it: only the last limit ends it.
    auto space = PruneSpace(request_, cancel_, [this] { return TimeLeft(kFirstFitLimit) <= absl::ZeroDuration(); });
    if (!space.ok()) return space.status();
    space_ = *std::move(space);
    schedule_.emplace(space_.survivors, /*everything=*/request_.budget_seconds() <= 0, request_.objective());
    Report();
    absl::Status status = Capture();
    estimator_.StopAll();
    if (!status.ok()) return status;
    outcomes_.planned = Planned();
    outcomes_.slower = CountSlower();
    outcomes_.of_fused = open_.of_fused;
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
    for (const size_t i : RankedOrder(outcomes_, request_.objective())) {
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
    progress.to_capture = Planned();
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
    sim.set_unfit_time_below_seconds(unfit_time_below_seconds_);
    return sim;
  }

  // Until the schedule or the time is over.
  absl::Status Capture() {
    for (;;) {
      const std::vector<size_t> fitting = FittingOrder(outcomes_, request_.objective());
      const std::vector<size_t> round = schedule_->NextRound(fitting, SlowerThan(fitting));
      if (round.empty()) break;
      SetUnfitTimeBelow(fitting);
      ASSIGN_OR_RETURN(const auto complete, CaptureRound(round));
      if (!complete) return absl::OkStatus();
    }
    if (open_.depth) {
      ASSIGN_OR_RETURN(const auto complete, GatherFurther());
      if (!complete) return absl::OkStatus();
    }
    if (open_.policies) RETURN_IF_ERROR(MakePolicies());
    for (const LastChoice* const choice : LastChoices(open_)) {
      ASSIGN_OR_RETURN(const auto complete, Try(*choice));
      if (!complete) return absl::OkStatus();
    }
    return open_.buckets ? PlanBuckets() : absl::OkStatus();
  }

  // How many of the fastest are certain to be: those that are shown, among which are those that anything is tried on.
  size_t Certain() const { return static_cast<size_t>(std::max<int64_t>(kDefaultTop, request_.top())); }

  // Whether a recipe cannot be among these, whatever is tried on it: a lower bound of its step time is above theirs by more than
  // a near tie. Nothing: it is not known of any. Policies look for layouts that recomputation makes slow.
  std::function<bool(size_t)> SlowerThan(const std::vector<size_t>& fitting) const {
    if (request_.objective() == v1::MEMORY || open_.policies || open_.buckets || fitting.size() < Certain()) return {};
    std::vector<double> seconds;
    for (const size_t i : fitting) seconds.push_back(Seconds(i));
    const auto last = seconds.begin() + static_cast<std::ptrdiff_t>(Certain()) - 1;
    std::nth_element(seconds.begin(), last, seconds.end());
    return [this, slowest = *last](size_t i) {
      const auto bound = BoundTime(request_, space_.survivors[i].recipe);
      return bound.ok() && !IsNearTie(*bound, slowest);
    };
  }

  // Of those that were not simulated.
  int64_t CountSlower() const {
    const auto is_slower = SlowerThan(FittingOrder(outcomes_, request_.objective()));
    int64_t slower = 0;
    for (size_t i = 0; is_slower && i < space_.survivors.size(); ++i)
      slower += outcomes_.simulated.count(i) == 0 && outcomes_.failed.count(i) == 0 && is_slower(i);
    return slower;
  }

  // The best, with gathers further ahead: recipes that the space gets besides. False: the time is over.
  absl::StatusOr<bool> GatherFurther() {
    std::vector<size_t> round;
    for (const size_t i : FittingOrder(outcomes_, request_.objective())) {
      if (round.size() == kGatheredFurther) break;
      if (!MayGatherFurther(outcomes_.simulated.at(i))) continue;
      round.push_back(space_.survivors.size());
      Survivor further = space_.survivors[i];
      further.recipe.mutable_parallelism()->set_fsdp_prefetch_depth(kLayersAhead);
      space_.survivors.push_back(std::move(further));
    }
    return CaptureMore(round);
  }

  // Recipes that the space has got besides.
  absl::StatusOr<bool> CaptureMore(const std::vector<size_t>& round) {
    space_.size += static_cast<int64_t>(round.size());
    further_ += static_cast<int64_t>(round.size());
    return CaptureRound(round);
  }

  size_t AddSurvivor(Survivor survivor) {
    space_.survivors.push_back(std::move(survivor));
    return space_.survivors.size() - 1;
  }

  // The best again with the choice made. False: the time is over.
  absl::StatusOr<bool> Try(const LastChoice& choice) {
    std::vector<size_t> round;
    const std::vector<size_t> order = FittingOrder(outcomes_, request_.objective());
    for (const size_t i : order) {
      if (round.size() == kTried) break;
      if (!choice.may(space_.survivors[i].recipe) || IsSlowerThanWithout(i)) continue;
      if (Seconds(i) * (1 - choice.most_gain) > Seconds(order.front())) continue;
      Survivor with = space_.survivors[i];
      choice.make(open_, &with.recipe);
      if (!IsLegal(with.recipe) || Find(with.recipe)) continue;
      round.push_back(AddSurvivor(std::move(with)));
      outcomes_.attempts.push_back({&choice, i, round.back()});
      if (const auto gain = outcomes_.gains.find(i); gain != outcomes_.gains.end()) outcomes_.gains[round.back()] = gain->second;
    }
    return CaptureMore(round);
  }

  double Seconds(size_t simulated) const { return outcomes_.simulated.at(simulated).step_time_seconds(); }

  // Of an attempt: what it was made of is the better one to go on with.
  bool IsSlowerThanWithout(size_t with) const {
    return std::any_of(outcomes_.attempts.begin(), outcomes_.attempts.end(), [&](const Attempt& attempt) {
      return attempt.with == with && outcomes_.simulated.at(with).step_time_seconds() >
                                         outcomes_.simulated.at(attempt.without).step_time_seconds();
    });
  }

  // The best again, with their collectives in planned buckets, and of each parameter alone.
  absl::Status PlanBuckets() {
    std::vector<size_t> round;
    for (const size_t i : RankedOrder(outcomes_, request_.objective())) {
      if (outcomes_.bucketed.size() == kBucketed) break;
      Survivor planned = space_.survivors[i];
      if (!HasShards(planned.recipe)) continue;
      v1::CompileSection* const compile = planned.recipe.mutable_compile();
      compile->set_fsdp_bucketing(v1::BUCKET_BY_PLAN);
      compile->set_fsdp_reorder(open_.reorders);
      if (!IsLegal(planned.recipe)) continue;
      Survivor alone = planned;
      alone.recipe.mutable_compile()->set_fsdp_bucketing(v1::BUCKET_NOTHING);
      const Outcomes::Bucketed one{i, AddSurvivor(std::move(planned)), AddSurvivor(std::move(alone))};
      outcomes_.bucketed.push_back(one);
      if (const auto gain = outcomes_.gains.find(i); gain != outcomes_.gains.end()) {
        outcomes_.gains[one.planned] = outcomes_.gains[one.alone] = gain->second;
      }
      round.insert(round.end(), {one.planned, one.alone});
    }
    return CaptureMore(round).status();
  }

  bool IsLegal(const v1::Recipe& recipe) const {
    const int64_t world = request_.cluster().devices_per_node() * request_.cluster().nodes();
    return parallel::ResolvedRecipe::Create(recipe, request_.model(), world).ok();
  }

  // Recipes of the most promising layouts that keep what the budget allows: the space gets them besides.
  absl::Status MakePolicies() {
    const std::vector<size_t> layouts = LayoutsHeldBack();
    outcomes_.policies = static_cast<int64_t>(layouts.size());
    for (const size_t layout : layouts) {
      if (!MayStart()) return absl::OkStatus();
      v1::SimRequest sim = MakeRequest(layout);
      sim.clear_unfit_time_below_seconds();
      const SacOptions options = {.budget_bytes = UsableBytes(request_.cluster()), .cancel = [this] { return Ends(); }};
      const absl::StatusOr<SacResult> found = AutoSac(sim, options, estimator_);
      if (absl::IsCancelled(found.status())) {
        return cancel_ && cancel_() ? absl::CancelledError("planning was cancelled") : absl::OkStatus();
      }
      ++finished_;
      KeepPolicy(layout, found);
      Report();
    }
    return absl::OkStatus();
  }

  // Polled while a policy is made. True: planning was cancelled, or its time is over.
  bool Ends() {
    if (Elapsed() - reported_seconds_ >= kReportSeconds) Report();
    return (cancel_ && cancel_()) || MayWait() == absl::ZeroDuration();
  }

  // One recipe of each layout that memory makes recompute, or keeps from fitting, and that would be the fastest without: those
  // that fit with more recomputation first.
  std::vector<size_t> LayoutsHeldBack() const {
    std::vector<size_t> order = FittingOrder(outcomes_, request_.objective()), unfit;
    if (order.empty()) return {};  // then full checkpointing fits in none
    const double fastest = outcomes_.simulated.at(order[0]).step_time_seconds();
    for (const auto& [i, estimate] : outcomes_.simulated) {
      if (!estimate.fits() && estimate.step_time_seconds() > 0) unfit.push_back(i);
    }
    std::stable_sort(unfit.begin(), unfit.end(), [&](size_t a, size_t b) {
      return outcomes_.simulated.at(a).step_time_seconds() < outcomes_.simulated.at(b).step_time_seconds();
    });
    order.insert(order.end(), unfit.begin(), unfit.end());
    std::set<std::string> seen;
    std::vector<size_t> layouts;
    for (const size_t i : order) {
      if (layouts.size() == kPolicies) break;
      const bool fresh = seen.insert(LayoutKey(space_.survivors[i].recipe)).second;
      const bool is_free =
          outcomes_.simulated.at(i).fits() && space_.survivors[i].recipe.activation_checkpoint().mode() == v1::AC_NONE;
      if (fresh && !is_free && WithoutRecomputation(i) < fastest) layouts.push_back(i);
    }
    return layouts;
  }

  // A simulated recipe's step time with nothing recomputed: the closed forms say how much of it that is.
  double WithoutRecomputation(size_t i) const {
    const Survivor& survivor = space_.survivors[i];
    v1::Recipe none = survivor.recipe;
    none.mutable_activation_checkpoint()->set_mode(v1::AC_NONE);
    const double seconds = outcomes_.simulated.at(i).step_time_seconds();
    const auto roofline = EstimateTime(request_, none);
    return roofline.ok() ? seconds * roofline->step_seconds / survivor.roofline.step_seconds : seconds;
  }

  // A layout in which not even full checkpointing fits gets no policy.
  void KeepPolicy(size_t layout, const absl::StatusOr<SacResult>& found) {
    const bool none_fits = absl::IsResourceExhausted(found.status()) && GetFieldViolation(found.status());
    if (none_fits) return;
    Survivor with = space_.survivors[layout];
    v1::ActivationCheckpoint* const section = with.recipe.mutable_activation_checkpoint();
    *section = parallel::DefaultRecipe().activation_checkpoint();
    section->set_mode(v1::AC_AUTO);
    if (found.ok()) section->MergeFrom(found->section);
    if (auto roofline = EstimateTime(request_, with.recipe); roofline.ok()) with.roofline = *std::move(roofline);
    const size_t index = IndexOf(std::move(with));
    if (!found.ok()) {
      outcomes_.failed[index] = absl::StrCat("no policy could be made for it: ", found.status().message());
      return;
    }
    any_fits_ = any_fits_ || found->chosen.fits();
    outcomes_.failed.erase(index);
    outcomes_.simulated.emplace(index, found->chosen);
    if (found->section.mode() == v1::AC_SELECTIVE) outcomes_.gains[index] = GainOf(*found);
  }

  // Where a recipe is among the survivors.
  std::optional<size_t> Find(const v1::Recipe& recipe) const {
    const std::string text = recipe.SerializeAsString();
    const auto same = std::find_if(space_.survivors.begin(), space_.survivors.end(),
                                   [&](const Survivor& other) { return other.recipe.SerializeAsString() == text; });
    if (same == space_.survivors.end()) return std::nullopt;
    return static_cast<size_t>(same - space_.survivors.begin());
  }

  // Of a recipe among the survivors, which get it if they lack it.
  size_t IndexOf(Survivor one) {
    if (const auto known = Find(one.recipe)) return *known;
    space_.survivors.push_back(std::move(one));
    ++space_.size;
    return space_.survivors.size() - 1;
  }

  int64_t Planned() const { return schedule_->total() + further_ + outcomes_.policies.value_or(0); }

  // More memory is only worth a word where it gives a shorter step than the winner's, which is no longer than the fastest one's
  // so far, up to a near tie, within which nothing is said. By MEMORY the winner may be slow.
  void SetUnfitTimeBelow(const std::vector<size_t>& fitting) {
    if (request_.objective() == v1::MEMORY) return;
    for (const size_t i : fitting) {
      const double seconds = outcomes_.simulated.at(i).step_time_seconds();
      unfit_time_below_seconds_ = unfit_time_below_seconds_ > 0 ? std::min(unfit_time_below_seconds_, seconds) : seconds;
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
  const OpenChoices open_;
  Estimator& estimator_;
  const std::function<void(const PlanProgress&)>& progress_;
  const std::function<bool()>& cancel_;
  const std::function<absl::Duration()> steady_;
  const absl::Duration started_;
  double reported_seconds_ = 0;
  LegalSpace space_;
  std::optional<Schedule> schedule_;  // of space_
  Outcomes outcomes_;
  int64_t further_ = 0;  // recipes of GatherFurther, Try and PlanBuckets
  int64_t finished_ = 0;
  bool any_fits_ = false;
  double unfit_time_below_seconds_ = 0;  // of whole rounds: SimRequest
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
  return model::CheckWindow(request.model(), request.seq_len(), request.cluster().device().kind());
}

}  // namespace

absl::StatusOr<v1::PlanResult> Plan(const v1::PlanRequest& request, Estimator& estimator,
                                    const std::function<void(const PlanProgress&)>& progress, const std::function<bool()>& cancel,
                                    const std::function<absl::Duration()>& steady) {
  RETURN_IF_ERROR(CheckRequest(request));
  v1::PlanRequest roomy = request;
  ASSIGN_OR_RETURN(const OpenChoices open, TakeOpenChoices(&roomy));
  // Room that is asked for is a reserve like the device's own: bounds, simulations and ranking leave it free alike.
  v1::Device* const device = roomy.mutable_cluster()->mutable_device();
  device->set_reserve_bytes(device->reserve_bytes() + roomy.min_headroom_bytes());
  return Run(roomy, open, estimator, progress, cancel, steady).Execute();
}

}  // namespace legoai::planner

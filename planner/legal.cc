#include "planner/legal.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/hardware/catalog.h"
#include "core/model/model_facts.h"
#include "core/recipe/recipe.h"
#include "core/recipe/resolved_recipe.h"
#include "proto/enum_text.h"
#include "proto/errors.h"
#include "proto/json/reflect.h"
#include "proto/status.h"
#include "proto/toml/toml.h"
#include "simulator/symbolic/memory_bound.h"
#include "simulator/symbolic/roofline_estimate.h"
#include "simulator/symbolic/step_bound.h"

namespace legoai::planner {
namespace {

constexpr size_t kClosestKept = 20;
constexpr char kConstraint[] = "constraint", kSomethingElse[] = "a constraint asks for something else";
constexpr char kPrecisionAskedFor[] = "precision_asked_for", kFloat32IfAsked[] = "float32_only_if_asked_for";
// Of the search for a larger cluster: far enough for every model of the catalog, and seconds at most.
constexpr int64_t kMostNodes = 1024, kMostCandidates = 1'000'000;

using Override = std::pair<std::string, std::string>;

absl::StatusOr<std::vector<Override>> ParseConstraints(const v1::PlanRequest& request) {
  std::vector<Override> overrides;
  for (const std::string& text : request.constraints()) {
    std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
    if (parts.size() != 2)
      return FieldError("--constraint", text, "write KEY=VALUE, for instance parallelism.tensor_parallel_degree=2");
    v1::Recipe recipe = parallel::DefaultRecipe();
    RETURN_IF_ERROR(ApplyOverride(&recipe, parts[0], parts[1]));
    if (const auto fault = GetFieldViolation(parallel::CheckRecipe(recipe)))
      return FieldError("--constraint", text, fault->remedy());
    overrides.emplace_back(parts[0], parts[1]);
  }
  return overrides;
}

int64_t World(const v1::Cluster& cluster) { return cluster.devices_per_node() * cluster.nodes(); }

template <class Message>
bool SameText(const Message& a, const Message& b) {
  return a.SerializeAsString() == b.SerializeAsString();
}

// Decides candidate by candidate; what all candidates share is done once.
class Pruner {
 public:
  Pruner(const v1::PlanRequest& request, const std::function<bool()>& cancel, const std::function<bool()>& out_of_time)
      : request_(request), cancel_(cancel), out_of_time_(out_of_time) {}

  absl::StatusOr<LegalSpace> Prune() {
    RETURN_IF_ERROR(Prepare());
    const int64_t world = World(request_.cluster());
    const std::vector<Candidate> candidates = Enumerate(request_, world);
    space_.size = candidates.size();
    for (const Candidate& candidate : candidates) {
      if (cancel_ && cancel_()) return absl::CancelledError("planning was cancelled");
      if (out_of_time_ && out_of_time_()) {
        ++space_.undecided;
        continue;
      }
      RETURN_IF_ERROR(Decide(candidate, world));
    }
    if (space_.undecided == 0 && space_.pruned.count(kConstraint) > 0) space_.reasons[kConstraint] = Unmet(candidates);
    Sort();
    return std::move(space_);
  }

  // The first candidate that may fit, and how many there are up to it.
  absl::StatusOr<std::optional<BoundedRecipe>> FirstThatMayFit(int64_t* decided) {
    RETURN_IF_ERROR(Prepare());
    const int64_t world = World(request_.cluster());
    for (const Candidate& candidate : Enumerate(request_, world)) {
      ++*decided;
      Broken broken;
      const auto resolved = Resolve(candidate, world, &broken);
      if (!resolved) continue;
      const int64_t bound = sim::LargestBound(*resolved);
      if (bound <= UsableBytes(request_.cluster())) return BoundedRecipe{ToRecipe(candidate, request_), bound};
    }
    return std::nullopt;
  }

 private:
  struct Broken {
    std::string rule, reason;
  };
  absl::Status Prepare() {
    ASSIGN_OR_RETURN(auto overrides, ParseConstraints(request_));
    overrides_ = std::move(overrides);
    met_.assign(overrides_.size(), false);
    v1::Recipe resumed = request_.resume_from();
    parallel::FillDefaults(&resumed);
    if (request_.has_resume_from()) {
      const auto& old = request_.resume_from().training();
      if (old.global_batch_size() != request_.global_batch()) {
        return FieldError("global_batch", absl::StrCat(request_.global_batch()),
                          absl::StrCat("the checkpoint was trained with ", old.global_batch_size(), "; a resumed job keeps it"));
      }
      if (old.seq_len() != request_.seq_len()) {
        return FieldError("seq_len", absl::StrCat(request_.seq_len()),
                          absl::StrCat("the checkpoint was trained with ", old.seq_len(), "; a resumed job keeps it"));
      }
      *request_.mutable_base()->mutable_optimizer() = request_.resume_from().optimizer();
      request_.mutable_base()->mutable_training()->set_dtype(resumed.training().dtype());
    }
    // A key that no candidate decides is set in all of them; a wrong key or value shows here.
    for (const auto& [key, value] : overrides_) {
      RETURN_IF_ERROR(ApplyOverride(request_.mutable_base(), key, value));
    }
    parallel::FillDefaults(request_.mutable_base());
    if (request_.has_resume_from() && request_.base().training().dtype() != resumed.training().dtype()) {
      return FieldError("--constraint", absl::StrJoin(request_.constraints(), " "),
                        "asks for another training.dtype than the checkpoint was trained with; a resumed job keeps it");
    }
    if (request_.has_resume_from() && !SameText(request_.base().optimizer(), resumed.optimizer())) {
      return FieldError("--constraint", absl::StrJoin(request_.constraints(), " "),
                        "asks for another optimizer than the checkpoint was trained with; a resumed job keeps it");
    }
    return absl::OkStatus();
  }

  // The candidate's recipe where nothing forbids it; `broken` gets the first rule that does. Most candidates break a rule of the
  // planner's own, which need no recipe.
  std::optional<parallel::ResolvedRecipe> Resolve(const Candidate& candidate, int64_t world, Broken* broken) {
    if (auto rule = BrokenByPlanner(candidate)) {
      *broken = *std::move(rule);
      return std::nullopt;
    }
    parallel::Violation violation;
    auto resolved = parallel::ResolvedRecipe::Create(ToRecipe(candidate, request_), request_.model(), world, &violation);
    if (resolved.ok()) return *std::move(resolved);
    *broken = {violation.rule, absl::StrCat(violation.field, " = ", violation.value, ": ", violation.remedy)};
    return std::nullopt;
  }

  // The first of the planner's own rules that forbids it.
  std::optional<Broken> BrokenByPlanner(const Candidate& candidate) {
    if (!MeetsConstraints(candidate)) return Broken{kConstraint, kSomethingElse};
    if (request_.has_resume_from() && candidate.precision != request_.resume_from().training().mixed_precision_param())
      return Broken{"resume_keeps_precision", "a resumed job keeps the checkpoint's precision"};
    // Groups of neighbours: they lie inside nodes where the degree divides a node's devices.
    if (request_.cluster().devices_per_node() % candidate.tensor != 0)
      return Broken{"tp_inside_node", "tensor parallel ranks must share a node"};
    return BrokenPrecision(candidate.precision);
  }

  // bfloat16 unless float32 is asked for; both where bfloat16 is not the faster one.
  std::optional<Broken> BrokenPrecision(v1::DType precision) const {
    const v1::Device& device = request_.cluster().device();
    if (!(sim::PeakFlops(device, precision) > 0)) {
      return Broken{"device_has_precision", absl::StrCat("the device names no peak_flops for ", EnumText(precision))};
    }
    if (precision == v1::FLOAT16) return std::nullopt;  // only where it is asked for (space.cc)
    const bool asked = request_.has_resume_from() || request_.base().training().mixed_precision_param() == v1::FLOAT32;
    if (asked) {
      if (request_.has_resume_from() || precision == v1::FLOAT32) return std::nullopt;
      return Broken{kPrecisionAskedFor, "the base recipe asks for training.mixed_precision_param = float32"};
    }
    if (precision == v1::FLOAT32 && sim::PeakFlops(device, v1::BFLOAT16) > sim::PeakFlops(device, v1::FLOAT32)) {
      return Broken{kFloat32IfAsked,
                    "the device is faster in bfloat16; --constraint training.mixed_precision_param=float32 asks "
                    "for float32"};
    }
    return std::nullopt;
  }

  absl::Status Decide(const Candidate& candidate, int64_t world) {
    Broken broken;
    const auto resolved = Resolve(candidate, world, &broken);
    if (!resolved) {
      Drop(candidate, broken.rule, std::move(broken.reason));
      return absl::OkStatus();
    }
    const int64_t bound = sim::LargestBound(*resolved);
    if (bound > UsableBytes(request_.cluster())) {
      BoundOut(candidate, bound);
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(auto estimate, sim::EstimateStep(*resolved, request_.cluster()));
    space_.survivors.push_back({ToRecipe(candidate, request_), std::move(estimate), bound});
    return absl::OkStatus();
  }

  // Of many the closest alone are kept, and what is further away than all of these is not even written down.
  void BoundOut(const Candidate& candidate, int64_t bound) {
    ++space_.bounded_out;
    if (!request_.all_rejected() && bound >= kept_below_) return;
    space_.closest.push_back({ToRecipe(candidate, request_), bound});
    if (request_.all_rejected() || space_.closest.size() <= 4 * kClosestKept) return;
    KeepClosest();
    kept_below_ = space_.closest.back().bound_bytes;
  }

  bool MeetsConstraints(const Candidate& candidate) {
    if (overrides_.empty()) return true;
    const v1::Recipe recipe = ToRecipe(candidate, request_);
    bool all = true;
    for (size_t i = 0; i < overrides_.size(); ++i) {
      v1::Recipe wanted = recipe;
      const bool met = ApplyOverride(&wanted, overrides_[i].first, overrides_[i].second).ok() && SameText(wanted, recipe);
      if (met) met_[i] = true;
      all = all && met;
    }
    return all;
  }

  // What no recipe has, and what they have instead.
  std::string Unmet(const std::vector<Candidate>& candidates) const {
    std::vector<std::string> unmet;
    for (size_t i = 0; i < overrides_.size(); ++i) {
      const auto& [key, value] = overrides_[i];
      if (met_[i]) continue;
      unmet.push_back(absl::StrCat("none has ", key, "=", value, ": use one of ", Values(key, candidates)));
    }
    return unmet.empty() ? kSomethingElse : absl::StrJoin(unmet, "; ");
  }

  // The values of a key that is in all recipes, "1, 2, 4".
  std::string Values(const std::string& key, const std::vector<Candidate>& candidates) const {
    const std::pair<std::string, std::string> parts = absl::StrSplit(key, absl::MaxSplits('.', 1));
    const auto* section = v1::Recipe::descriptor()->FindFieldByName(parts.first);
    const auto* field = section->message_type()->FindFieldByName(parts.second);
    std::set<Tree> values;
    for (const Candidate& candidate : candidates) {
      const v1::Recipe recipe = ToRecipe(candidate, request_);
      values.insert(ToTree(recipe.GetReflection()->GetMessage(recipe, section), field));
    }
    return absl::StrJoin(values, ", ", [](std::string* out, const Tree& value) {
      absl::StrAppend(out, value.is_string() ? value.get<std::string>() : value.dump());
    });
  }

  void Drop(const Candidate& candidate, const std::string& rule, std::string reason) {
    ++space_.pruned[rule];
    space_.reasons.emplace(rule, reason);
    if (request_.all_rejected()) space_.pruned_candidates.push_back({ToRecipe(candidate, request_), rule, std::move(reason)});
  }

  void KeepClosest() {
    std::stable_sort(space_.closest.begin(), space_.closest.end(),
                     [](const auto& a, const auto& b) { return a.bound_bytes < b.bound_bytes; });
    if (!request_.all_rejected() && space_.closest.size() > kClosestKept) space_.closest.resize(kClosestKept);
  }

  void Sort() {
    KeepClosest();
    std::stable_sort(space_.survivors.begin(), space_.survivors.end(),
                     [](const auto& a, const auto& b) { return a.roofline.step_seconds < b.roofline.step_seconds; });
  }

  v1::PlanRequest request_;
  const std::function<bool()>&cancel_, &out_of_time_;
  std::vector<Override> overrides_;
  std::vector<bool> met_;  // of overrides_, by some candidate
  LegalSpace space_;
  int64_t kept_below_ = INT64_MAX;  // bounds of what can still be among the closest
};

// Of a parameter: its master and at least what the optimizer keeps of it, none where a constraint may name another one.
int64_t LeastStateBytes(const v1::PlanRequest& request) {
  const auto constrained = [&](const char* key) {
    return std::any_of(request.constraints().begin(), request.constraints().end(),
                       [&](const std::string& constraint) { return absl::StartsWith(constraint, key); });
  };
  const bool open = request.has_resume_from();
  const v1::OptimizerSection& optimizer = request.base().optimizer();
  const bool masters = optimizer.master_weights() && !constrained("optimizer.");
  const bool narrow = request.base().training().dtype() == v1::BFLOAT16 || request.base().training().dtype() == v1::FLOAT16;
  const int64_t bytes = open || constrained("training.dtype") || (narrow && !masters) ? 2 : 4;
  if (open || constrained("optimizer.") || optimizer.name() == "SGD") return bytes;
  return optimizer.name() == "Muon" ? 2 * bytes : 3 * bytes;
}

// No recipe keeps more of its state on a device than there is room for, however split.
bool StateMayFit(const v1::PlanRequest& request) {
  const double state = static_cast<double>(LeastStateBytes(request) * model::ParameterCount(request.model()));
  return state / static_cast<double>(World(request.cluster())) <= static_cast<double>(UsableBytes(request.cluster()));
}

}  // namespace

int64_t UsableBytes(const v1::Cluster& cluster) { return cluster.device().memory_bytes() - cluster.device().reserve_bytes(); }

absl::StatusOr<LegalSpace> PruneSpace(const v1::PlanRequest& request, const std::function<bool()>& cancel,
                                      const std::function<bool()>& out_of_time) {
  return Pruner(request, cancel, out_of_time).Prune();
}

absl::StatusOr<sim::RooflineEstimate> EstimateTime(const v1::PlanRequest& request, const v1::Recipe& recipe) {
  ASSIGN_OR_RETURN(const auto resolved, parallel::ResolvedRecipe::Create(recipe, request.model(), World(request.cluster())));
  return sim::EstimateStep(resolved, request.cluster());
}

absl::StatusOr<double> BoundTime(const v1::PlanRequest& request, const v1::Recipe& recipe) {
  ASSIGN_OR_RETURN(const auto resolved, parallel::ResolvedRecipe::Create(recipe, request.model(), World(request.cluster())));
  return sim::BoundStepSeconds(resolved, request.cluster());
}

absl::StatusOr<LargerCluster> SmallestThatMayFit(v1::PlanRequest request) {
  v1::Cluster* const cluster = request.mutable_cluster();
  LargerCluster larger{.nodes = cluster->nodes(), .fitting = std::nullopt};
  for (int64_t decided = 0; cluster->nodes() < kMostNodes && decided < kMostCandidates;) {
    cluster->set_nodes(cluster->nodes() + 1);
    larger.nodes = cluster->nodes();
    if (!StateMayFit(request)) continue;
    ASSIGN_OR_RETURN(larger.fitting, Pruner(request, {}, {}).FirstThatMayFit(&decided));
    if (larger.fitting) break;
  }
  return larger;
}

}  // namespace legoai::planner

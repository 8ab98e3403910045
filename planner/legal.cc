#include "planner/legal.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/enum_text.h"
#include "proto/errors.h"
#include "proto/json/reflect.h"
#include "proto/toml/toml.h"
#include "simulator/hardware/catalog.h"
#include "simulator/symbolic/memory_bound.h"
#include "simulator/symbolic/roofline_estimate.h"
#include "worker/parallel/legality.h"
#include "worker/parallel/parallel_dims.h"
#include "worker/parallel/recipe.h"

namespace legoai::planner {
namespace {

constexpr size_t kClosestKept = 20;
constexpr char kConstraint[] = "constraint", kSomethingElse[] = "a constraint asks for something else";

using Override = std::pair<std::string, std::string>;

absl::StatusOr<std::vector<Override>> ParseConstraints(const v1::PlanRequest& request) {
  std::vector<Override> overrides;
  for (const std::string& text : request.constraints()) {
    std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
    if (parts.size() != 2)
      return FieldError("--constraint", text, "write KEY=VALUE, for instance parallelism.tensor_parallel_degree=2");
    v1::Recipe recipe = parallel::DefaultRecipe();
    if (absl::Status status = ApplyOverride(&recipe, parts[0], parts[1]); !status.ok()) return status;
    if (const auto fault = GetFieldViolation(parallel::CheckRecipe(recipe)))
      return FieldError("--constraint", text, fault->remedy());
    overrides.emplace_back(parts[0], parts[1]);
  }
  return overrides;
}

template <class Message>
bool SameText(const Message& a, const Message& b) {
  return a.SerializeAsString() == b.SerializeAsString();
}

v1::Recipe WithDefaults(v1::Recipe recipe) {
  parallel::FillDefaults(&recipe);
  return recipe;
}

// Decides candidate by candidate; what all candidates share is done once.
class Pruner {
 public:
  Pruner(const v1::PlanRequest& request, const std::function<bool()>& cancel, const std::function<bool()>& out_of_time)
      : request_(request), cancel_(cancel), out_of_time_(out_of_time) {}

  absl::StatusOr<LegalSpace> Prune() {
    if (absl::Status status = Prepare(); !status.ok()) return status;
    const int64_t world = request_.cluster().devices_per_node() * request_.cluster().nodes();
    const std::vector<Candidate> candidates = Enumerate(request_, world);
    space_.size = candidates.size();
    for (const Candidate& candidate : candidates) {
      if (cancel_ && cancel_()) return absl::CancelledError("planning was cancelled");
      if (out_of_time_ && out_of_time_()) {
        ++space_.undecided;
        continue;
      }
      if (absl::Status status = Decide(candidate, world); !status.ok()) return status;
    }
    if (space_.undecided == 0 && space_.pruned.count(kConstraint) > 0) space_.reasons[kConstraint] = Unmet(candidates);
    Sort();
    return std::move(space_);
  }

 private:
  absl::Status Prepare() {
    auto overrides = ParseConstraints(request_);
    if (!overrides.ok()) return overrides.status();
    overrides_ = *std::move(overrides);
    met_.assign(overrides_.size(), false);
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
    }
    // A key that no candidate decides is set in all of them; a wrong key or value shows here.
    for (const auto& [key, value] : overrides_) {
      if (absl::Status status = ApplyOverride(request_.mutable_base(), key, value); !status.ok()) return status;
    }
    parallel::FillDefaults(request_.mutable_base());
    if (request_.has_resume_from() && !SameText(request_.base().optimizer(), WithDefaults(request_.resume_from()).optimizer())) {
      return FieldError("--constraint", absl::StrJoin(request_.constraints(), " "),
                        "asks for another optimizer than the checkpoint was trained with; a resumed job keeps it");
    }
    return absl::OkStatus();
  }

  absl::Status Decide(const Candidate& candidate, int64_t world) {
    v1::Recipe recipe = ToRecipe(candidate, request_);
    if (!MeetsConstraints(recipe)) return Drop(recipe, kConstraint, kSomethingElse);
    if (request_.has_resume_from() && candidate.precision != request_.resume_from().training().mixed_precision_param()) {
      return Drop(recipe, "resume_keeps_precision", "a resumed job keeps the checkpoint's precision");
    }
    // Groups of neighbours: they lie inside nodes where the degree divides a node's devices.
    if (request_.cluster().devices_per_node() % candidate.tensor != 0) {
      return Drop(recipe, "tp_inside_node", "tensor parallel ranks must share a node");
    }
    if (!(sim::PeakFlops(request_.cluster().device(), candidate.precision) > 0)) {
      return Drop(recipe, "device_has_precision",
                  absl::StrCat("the device names no peak_flops for ", EnumText(candidate.precision)));
    }
    if (auto violation = parallel::FirstViolation(recipe, request_.model(), world)) {
      return Drop(recipe, violation->rule, absl::StrCat(violation->field, " = ", violation->value, ": ", violation->remedy));
    }
    auto dims = parallel::ParallelDims::Create(recipe, request_.model(), world);
    if (!dims.ok()) return dims.status();
    const int64_t bound = sim::LargestBound(request_.model(), *dims, recipe);
    if (bound > UsableBytes(request_.cluster())) {
      ++space_.bounded_out;
      space_.closest.push_back({std::move(recipe), bound});
      if (!request_.all_rejected() && space_.closest.size() > 4 * kClosestKept) KeepClosest();
      return absl::OkStatus();
    }
    auto estimate = sim::EstimateStep(request_.model(), *dims, recipe, request_.cluster());
    if (!estimate.ok()) return estimate.status();
    space_.survivors.push_back({std::move(recipe), *estimate, bound});
    return absl::OkStatus();
  }

  bool MeetsConstraints(const v1::Recipe& recipe) {
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

  absl::Status Drop(v1::Recipe& recipe, const std::string& rule, std::string reason) {
    ++space_.pruned[rule];
    space_.reasons.emplace(rule, reason);
    if (request_.all_rejected()) space_.pruned_candidates.push_back({std::move(recipe), rule, std::move(reason)});
    return absl::OkStatus();
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
};

}  // namespace

int64_t UsableBytes(const v1::Cluster& cluster) { return cluster.device().memory_bytes() - cluster.device().reserve_bytes(); }

absl::StatusOr<LegalSpace> PruneSpace(const v1::PlanRequest& request, const std::function<bool()>& cancel,
                                      const std::function<bool()>& out_of_time) {
  return Pruner(request, cancel, out_of_time).Prune();
}

}  // namespace legoai::planner

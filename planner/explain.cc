#include "planner/explain.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/recipe/recipe.h"
#include "planner/compare.h"
#include "planner/plan_facts.h"
#include "planner/ranking.h"
#include "proto/enum_text.h"
#include "proto/text.h"

namespace legoai::planner {
namespace {

// A device with less room than this is called full.
constexpr double kSafeHeadroom = 0.05;

std::string Share(double part, double whole) { return absl::StrFormat("%.0f %%", whole > 0 ? 100 * part / whole : 0); }

// "93 % compute, 7 % exposed communication": what would read "0 %" is left out.
std::string PartsText(const v1::Breakdown& parts, double step) {
  const std::pair<double, const char*> named[] = {{parts.compute_seconds(), "compute"},
                                                  {parts.exposed_communication_seconds(), "exposed communication"},
                                                  {parts.bubble_seconds(), "pipeline bubble"},
                                                  {parts.launch_seconds(), "launch"},
                                                  {parts.optimizer_seconds(), "optimizer"}};
  std::vector<std::string> texts;
  for (const auto& [seconds, name] : named) {
    if (const std::string share = Share(seconds, step); share != "0 %") texts.push_back(absl::StrCat(share, " ", name));
  }
  return absl::StrJoin(texts, ", ");
}

// What the times rest on.
std::string CostModels(const v1::Estimate& estimate) {
  std::vector<std::string> shares;
  for (const auto& model : estimate.cost_models()) {
    shares.push_back(absl::StrCat(model.name(), " (", Share(model.share_of_compute_time(), 1), ")"));
  }
  return shares.empty() ? "" : absl::StrCat(" Operators are timed by ", absl::StrJoin(shares, ", "), ".");
}

// "Another checkpointing, number of stages or precision"
std::string Another(const std::vector<std::string>& names) {
  const std::string last = names.size() > 1 ? " or " + names.back() : "";
  return absl::StrCat("Another ", absl::StrJoin(names.begin(), names.end() - (names.size() > 1 ? 1 : 0), ", "), last);
}

// Puts the lines together, and remembers which recipes were named.
class Explainer {
 public:
  Explainer(const PlanFacts& facts, const v1::PlanResult& result)
      : facts_(facts),
        result_(result),
        winner_(facts.ranked[0]),
        step_(winner_.estimate->step_time_seconds()),
        by_memory_(facts.request->objective() == v1::MEMORY) {}

  std::string Text() {
    const std::string choices = Choices(), memory = MoreMemory(), headroom = Headroom(), next = Next(), policies = Policies();
    return absl::StrCat(Winner(), policies, Links(), Buckets(), LastChoices(), headroom, next, choices, memory, NearTies());
  }

 private:
  std::string Winner() const {
    const v1::Estimate& winner = *winner_.estimate;
    const auto& stage = FullestStage(winner);
    return absl::StrCat(by_memory_ ? "The recipe with the smallest peak memory is " : "The fastest recipe that fits is ",
                        Summarize(winner.recipe()),
                        IsFirst() ? ": " : ", within the noise of the prediction: ", absl::StrFormat("%.4g", step_),
                        " s a step, of which ", PartsText(winner.breakdown(), step_), ". On its fullest device ",
                        BytesText(stage.peak_allocated_bytes()), " of ", BytesText(UsableBytes(stage)),
                        " usable are allocated (not reserved), at ", stage.peak_at(), ".", CostModels(winner));
  }

  // By what the plan ranks by: near ties may be a little better.
  bool IsFirst() const {
    const int64_t peak = FullestStage(*winner_.estimate).peak_allocated_bytes();
    return std::all_of(facts_.ranked.begin(), facts_.ranked.end(), [&](const auto& one) {
      return by_memory_ ? FullestStage(*one.estimate).peak_allocated_bytes() >= peak : one.estimate->step_time_seconds() >= step_;
    });
  }

  // What its own links carry, and its bubble.
  std::string Links() const {
    std::string text;
    const auto& loads = winner_.survivor->roofline.loads;
    for (size_t kind = 0; kind < sim::kLinkUses; ++kind) {
      if (loads[kind].tier < 0) continue;
      absl::StrAppend(&text, text.empty() ? "\n- Its links: " : "; ",
                      LinkText(facts_.request->cluster(), static_cast<sim::LinkUse>(kind), loads[kind],
                               winner_.estimate->breakdown().compute_seconds()));
    }
    if (!text.empty()) text += ".";
    const std::string bubble = BubbleText(winner_.estimate->recipe(), facts_.request->model().num_hidden_layers());
    return bubble.empty() ? text : absl::StrCat(text, "\n- Its bubble: ", bubble, ".");
  }

  // What joining its collectives differently is predicted to give.
  std::string Buckets() const {
    const auto of_winner = std::find_if(facts_.bucketed.begin(), facts_.bucketed.end(), [&](const BucketedRecipe& one) {
      const v1::Estimate* const winner = winner_.estimate;
      return one.planned == winner || one.by_block == winner || one.alone == winner;
    });
    if (of_winner == facts_.bucketed.end()) return "";
    std::vector<std::string> texts;
    const auto add = [&](const char* how, const v1::Estimate* estimate) {
      if (estimate == nullptr) return;
      texts.push_back(absl::StrFormat("%s %.4g s a step with %.4g s of exposed communication and %s of memory", how,
                                      estimate->step_time_seconds(), estimate->breakdown().exposed_communication_seconds(),
                                      BytesText(FullestStage(*estimate).peak_allocated_bytes())));
    };
    const bool differs =
        of_winner->planned != nullptr && of_winner->planned->recipe().compile().fsdp_backward_buckets_size() > 0;
    add(differs ? "in planned buckets, others in backward than in forward," : "in planned buckets", of_winner->planned);
    add("by block", of_winner->by_block);
    add("of each parameter alone", of_winner->alone);
    return absl::StrCat("\n- FSDP's collectives: ", absl::StrJoin(texts, "; "), ".");
  }

  // What the last choices bought on the way to the winner, and what others would have; of each choice one attempt.
  std::string LastChoices() const {
    std::vector<std::string> texts;
    bool spares_host = false;
    for (const TriedChoice* tried : AttemptsOfWinner()) {
      texts.push_back(absl::StrCat(tried->choice->name, ": ", Bought(*tried)));
      spares_host = spares_host || tried->choice->spares_host;
    }
    if (texts.empty()) return "";
    return absl::StrCat("\n- Tried last: ", absl::StrJoin(texts, "; "), ".", spares_host ? SparedText() : "");
  }

  // Those that led to the winner; of the other choices those that were tried on it or on what led to it, on the fastest of these.
  std::vector<const TriedChoice*> AttemptsOfWinner() const {
    std::set<const v1::Estimate*> way = {winner_.estimate};
    for (auto tried = facts_.attempts.rbegin(); tried != facts_.attempts.rend(); ++tried) {
      if (tried->with != nullptr && way.count(tried->with) > 0) way.insert(tried->without);
    }
    std::set<const v1::Estimate*> reached = way;  // with what gained nothing and only opened the way for others
    std::vector<const TriedChoice*> told;
    for (const TriedChoice& tried : facts_.attempts) {
      if (reached.count(tried.without) == 0) continue;
      if (tried.with != nullptr && !GainsTime(*tried.with, *tried.without)) reached.insert(tried.with);
      const auto same = std::find_if(told.begin(), told.end(), [&](const auto* other) { return other->choice == tried.choice; });
      if (same == told.end()) {
        told.push_back(&tried);
      } else if (const bool leads = way.count(tried.with) > 0;
                 way.count((*same)->with) == 0 &&
                 (leads || tried.without->step_time_seconds() < (*same)->without->step_time_seconds())) {
        *same = &tried;
      }
    }
    return told;
  }

  // "saves 300 ms of 2.214 s a step and takes 56.2 MiB more memory"
  static std::string Bought(const TriedChoice& tried) {
    if (tried.with == nullptr) return "was not simulated to its end";
    const int64_t more = FullestStage(*tried.with).peak_allocated_bytes() - FullestStage(*tried.without).peak_allocated_bytes();
    const std::string memory =
        more == 0 ? "as much memory" : absl::StrCat(BytesText(std::abs(more)), more > 0 ? " more memory" : " less memory");
    if (!tried.with->fits()) return absl::StrCat("does not fit: it takes ", memory);
    const double before = tried.without->step_time_seconds(), saved = before - tried.with->step_time_seconds();
    if (saved == 0) return absl::StrCat("changes no time, takes ", memory, " and is left out");
    return absl::StrCat(saved > 0 ? "saves " : "costs ", SecondsText(std::abs(saved)), " of ", SecondsText(before),
                        " a step and takes ", memory, GainsTime(*tried.with, *tried.without) ? "" : ", and is left out");
  }

  // Graph mode's gain is one figure of the device, for each operator.
  std::string SparedText() const {
    const v1::Device& device = facts_.request->cluster().device();
    const auto source = std::find_if(device.sources().begin(), device.sources().end(),
                                     [](const std::string& text) { return absl::StrContains(text, "dispatch"); });
    return absl::StrCat(" A program spares the host ", SecondsText(device.host_dispatch_seconds()), " an operator",
                        source == device.sources().end() ? "" : absl::StrCat(" (", *source, ")"), ".");
  }

  // What the policies that were asked for bought.
  std::string Policies() {
    if (winner_.gain != nullptr) return GainText(*winner_.gain);
    if (!facts_.policies) return "";
    if (*facts_.policies == 0) return "\n- No policy was made: memory holds back no layout that would be faster.";
    const auto best =
        std::find_if(facts_.ranked.begin(), facts_.ranked.end(), [](const auto& one) { return one.gain != nullptr; });
    const std::string made = absl::StrCat("\n- Policies were made for ", *facts_.policies,
                                          *facts_.policies == 1 ? " layout" : " layouts", " that memory holds back");
    if (best == facts_.ranked.end()) return absl::StrCat(made, "; none keeps more than a recipe without one.");
    const size_t i = best - facts_.ranked.begin();
    return absl::StrCat(made, "; of these the first is ", told_.count(i) > 0 ? absl::StrCat("rank ", i + 1, ".") : Loses(i));
  }

  std::string GainText(const PolicyGain& gain) const {
    return absl::StrCat(
        "\n- Its policy (activation_checkpoint.selective_ac_policy) saves ", Share(gain.saved_share, 1),
        " of the recomputation of full checkpointing: ", SecondsText(gain.seconds), " a step are left of ",
        SecondsText(gain.full_seconds), ". With everything recomputed its fullest device would need ",
        BytesText(gain.full_peak_bytes), ", with nothing recomputed ", BytesText(gain.none_peak_bytes), ".");
  }

  static std::string Key(const v1::Recipe& recipe) { return recipe.SerializeAsString(); }

  // Of a ranked one, by its index: "rank 3 (...) is 12 % slower, mostly ...".
  std::string Loses(size_t i) {
    const SimulatedRecipe& other = facts_.ranked[i];
    told_.insert(i);
    const bool slower = !by_memory_ || other.estimate->step_time_seconds() > step_;
    return absl::StrCat("rank ", i + 1, " (", Summarize(other.estimate->recipe()), ") ", by_memory_ ? MoreBytes(other) : "",
                        StepTimeText(other.estimate->step_time_seconds() / step_),
                        slower ? CauseText(*facts_.request, winner_, other) : "", ".");
  }

  // "needs 3.50 GiB more on its fullest device and "; of a near tie that needs less, nothing.
  std::string MoreBytes(const SimulatedRecipe& other) const {
    const int64_t more =
        FullestStage(*other.estimate).peak_allocated_bytes() - FullestStage(*winner_.estimate).peak_allocated_bytes();
    return more > 0 ? absl::StrCat("needs ", BytesText(more), " more on its fullest device and ") : "";
  }

  // Of one that does not fit, what more memory would give; empty if it is not faster.
  std::string WithMoreMemory(const SimulatedRecipe& other) const {
    const double ratio = other.estimate->step_time_seconds() / step_;
    if (ratio <= 0 || IsNearTie(1, ratio)) return "";
    return absl::StrCat("with ", BytesText(-HeadroomBytes(FullestStage(*other.estimate))), " more on each device it fits and ",
                        StepTimeText(ratio));
  }

  // The best that decides this choice otherwise: of those that were simulated and fit; else of those that were not simulated; if
  // all are known, the one closest to fitting; if none is known, nothing.
  std::string Otherwise(const Choice& choice) {
    const int64_t chosen = choice.value(winner_.estimate->recipe());
    const auto differs = [&](const v1::Recipe& recipe) { return choice.value(recipe) != chosen; };
    for (size_t i = 1; i < facts_.ranked.size(); ++i) {
      if (differs(facts_.ranked[i].estimate->recipe())) return Loses(i);
    }
    const auto& open = facts_.not_simulated;
    const auto best = std::find_if(open.begin(), open.end(), [&](const Survivor* one) { return differs(one->recipe); });
    if (best != open.end()) return NotSimulated(**best, differs);
    const auto large = std::find_if(result_.rejected().begin(), result_.rejected().end(), [&](const auto& rejected) {
      return rejected.rule() == "out_of_memory" && differs(rejected.recipe());
    });
    return large == result_.rejected().end() ? "" : TooLarge(*large);
  }

  template <class Differs>
  std::string NotSimulated(const Survivor& best, const Differs& differs) const {
    const bool any =
        std::any_of(facts_.unfit.begin(), facts_.unfit.end(), [&](const auto& one) { return differs(one.estimate->recipe()); });
    const char* const known = any ? "none that was simulated fits" : "none was simulated";
    if (by_memory_) {
      return absl::StrCat(known, "; by the closed-form bound the smallest of the others, ", Summarize(best.recipe),
                          ", needs at least ", BytesText(best.bound_bytes), ".");
    }
    return absl::StrCat(known, "; by the closed-form estimate the best of the others, ", Summarize(best.recipe), ", ",
                        StepTimeText(best.roofline.step_seconds / winner_.survivor->roofline.step_seconds), ".");
  }

  std::string TooLarge(const v1::RejectedRecipe& rejected) {
    // Failures and what was not even looked at may be of this kind.
    const bool all_known = result_.failed() == 0 && result_.not_reached() == static_cast<int64_t>(facts_.not_simulated.size());
    std::string faster;
    for (const SimulatedRecipe& one : facts_.unfit) {
      if (Key(one.estimate->recipe()) != Key(rejected.recipe())) continue;
      too_large_.insert(one.survivor);
      faster = WithMoreMemory(one);
    }
    return absl::StrCat(all_known ? "none fits; " : "none that was looked at fits; ", Summarize(rejected.recipe()), ": ",
                        rejected.reason(), faster.empty() ? "" : "; ", faster, ".");
  }

  // A recipe that answers several choices is named once.
  std::string Choices() {
    std::vector<std::pair<std::string, std::vector<std::string>>> answers;
    for (const Choice& choice : kChoices) {
      const std::string answer = Otherwise(choice);
      if (answer.empty()) continue;
      const auto same = std::find_if(answers.begin(), answers.end(), [&](const auto& known) { return known.first == answer; });
      if (same == answers.end()) {
        answers.push_back({answer, {choice.name}});
      } else {
        same->second.push_back(choice.name);
      }
    }
    std::string text;
    for (const auto& [answer, names] : answers) absl::StrAppend(&text, "\n- ", Another(names), ": ", answer);
    return text;
  }

  // What a little more memory would give, of all that do not fit.
  std::string MoreMemory() const {
    if (by_memory_) return "";  // it asks for less
    const SimulatedRecipe* least = nullptr;
    for (const SimulatedRecipe& one : facts_.unfit) {
      if (too_large_.count(one.survivor) > 0 || WithMoreMemory(one).empty()) continue;
      const auto short_of = [](const SimulatedRecipe& of) { return -HeadroomBytes(FullestStage(*of.estimate)); };
      if (least == nullptr || short_of(one) < short_of(*least)) least = &one;
    }
    if (least == nullptr) return "";
    return absl::StrCat("\n- More memory: ", Summarize(least->estimate->recipe()), " does not fit; ", WithMoreMemory(*least),
                        ".");
  }

  // A winner that fills its device to the brim may fail where the allocator fragments: the fastest that leaves more.
  std::string Headroom() {
    const int64_t asked_for = facts_.request->min_headroom_bytes();  // which is left free too
    const auto share = [asked_for](const SimulatedRecipe& one) {
      const auto& stage = FullestStage(*one.estimate);
      return static_cast<double>(HeadroomBytes(stage) + asked_for) /
             static_cast<double>(std::max<int64_t>(1, UsableBytes(stage) + asked_for));
    };
    if (share(winner_) >= kSafeHeadroom) return "";
    std::string text = absl::StrFormat("\n- It leaves %.1f %% of the memory, which fragmentation may take", 100 * share(winner_));
    const auto safe =
        std::find_if(facts_.ranked.begin(), facts_.ranked.end(), [&](const auto& one) { return share(one) >= kSafeHeadroom; });
    const std::string least = Share(kSafeHeadroom, 1);
    if (safe == facts_.ranked.end()) return absl::StrCat(text, "; none that was simulated leaves more than ", least, ".");
    const size_t i = safe - facts_.ranked.begin();
    const bool told = told_.count(i) > 0;
    absl::StrAppend(&text, "; of those that leave at least ", least, " the first is ");
    return told ? absl::StrCat(text, "rank ", i + 1, ", below.") : absl::StrCat(text, "this: ", Loses(i));
  }

  std::string Next() {
    if (facts_.ranked.size() < 2 || told_.count(1) > 0) return "";
    return absl::StrCat("\n- The next one: ", Loses(1));
  }

  // Of the first ones, those that no prediction tells apart.
  std::string NearTies() const {
    if (by_memory_) return "";
    double fastest = step_;
    for (const auto& one : facts_.ranked) fastest = std::min(fastest, one.estimate->step_time_seconds());
    const auto ties = std::count_if(facts_.ranked.begin(), facts_.ranked.end(),
                                    [&](const auto& one) { return IsNearTie(one.estimate->step_time_seconds(), fastest); });
    if (ties < 2) return "";
    return absl::StrCat("\n- ", ties, " recipes lie within ", absl::StrFormat("%.0f %%", 100 * kNearTie),
                        " of the shortest step, ", absl::StrFormat("%.4g s", fastest),
                        ", which is less than these predictions are sure of: the one that leaves most memory is first.");
  }

  const PlanFacts& facts_;
  const v1::PlanResult& result_;
  const SimulatedRecipe& winner_;
  const double step_;
  const bool by_memory_;
  std::set<size_t> told_;                // of facts_.ranked
  std::set<const Survivor*> too_large_;  // named as too large
};

// What was not simulated, why, and what that means for the ranking.
std::string NotSimulated(const PlanFacts& facts, const v1::PlanResult& result) {
  if (result.not_reached() == 0) return "";
  const bool by_memory = facts.request->objective() == v1::MEMORY;
  const int64_t done = result.captured() + result.failed();
  std::string text = facts.ranked.empty() ? " " : "\n- ";
  if (facts.stopped_early) {
    absl::StrAppend(&text, "Stopped early after ", done, " of ", facts.planned, " simulations by the budget of ",
                    absl::StrFormat("%g s", facts.request->budget_seconds()),
                    "; the ranking may change with more time. They were taken in the order of the closed-form ",
                    by_memory ? "memory bound." : "estimate.");
  } else {
    absl::StrAppend(&text, done, done == 1 ? " recipe was" : " recipes were", " simulated, ",
                    by_memory ? "the smallest by the closed-form bound" : "the fastest by the closed-form estimate",
                    " and one for each choice; ", result.not_reached(),
                    " more may fit (`lego plan --budget-seconds 0` simulates all).");
  }
  const bool all_bounded = result.not_reached() == static_cast<int64_t>(facts.not_simulated.size());
  if (by_memory && !facts.ranked.empty() && !facts.not_simulated.empty()) {
    if (all_bounded)
      absl::StrAppend(&text, " Of those not simulated none needs less than ", BytesText(facts.not_simulated[0]->bound_bytes),
                      " on its fullest device, by the bound.");
  } else if (!facts.ranked.empty() && !facts.not_simulated.empty()) {
    absl::StrAppend(&text, " By that estimate the fastest that was not simulated ",
                    StepTimeText(facts.not_simulated[0]->roofline.step_seconds / facts.ranked[0].survivor->roofline.step_seconds),
                    ".");
  }
  const auto count = std::count_if(result.ranked().begin(), result.ranked().end(), [](const auto& r) { return r.estimated(); });
  if (count == 0) return text;
  return absl::StrCat(text, " ", count, " of them ", count == 1 ? "is" : "are",
                      " ranked by the closed-form estimate, marked as estimated: with a lower bound of the memory, and they may "
                      "not fit.");
}

std::string CheckpointingText(const v1::ActivationCheckpoint& section) {
  switch (section.mode()) {
    case v1::AC_FULL: return "full checkpointing";
    case v1::AC_SELECTIVE:
      if (section.selective_ac_option() == "op") return "checkpointing but for every second product";
      if (section.selective_ac_option() == "policy") return "checkpointing by a policy";
      return absl::StrCat("checkpointing of every ", section.selective_ac_option(), ". block");
    case v1::AC_AUTO: return "a policy of checkpointing";
    default: return "no checkpointing";
  }
}

std::string BucketingText(const v1::CompileSection& section) {
  switch (section.fsdp_bucketing()) {
    case v1::BUCKET_NOTHING: return "collectives of each parameter";
    case v1::BUCKET_BY_MODULES:
      return section.fsdp_backward_buckets_size() > 0 ? "collectives in buckets of modules, others in backward"
                                                      : "collectives in buckets of modules";
    case v1::BUCKET_BY_PLAN: return "collectives in planned buckets";
    default: return "";
  }
}

// The rules that leave nothing, those that drop most first.
std::string ExplainIllegal(const PlanFacts& facts, const v1::PlanResult& result) {
  std::vector<std::pair<std::string, int64_t>> rules(result.pruned().begin(), result.pruned().end());
  std::sort(rules.begin(), rules.end(),
            [](const auto& a, const auto& b) { return std::tie(b.second, a.first) < std::tie(a.second, b.first); });
  std::string text = absl::StrCat("No recipe of the space is legal for this model, batch and cluster. Of ", result.space(), ":");
  for (const auto& [rule, count] : rules) {
    const auto reason = facts.space->reasons.find(rule);
    absl::StrAppend(&text, "\n- ", count, " dropped by ", rule,
                    reason == facts.space->reasons.end() ? "" : absl::StrCat(", for instance: ", reason->second));
  }
  return text;
}

std::string DevicesText(const v1::Cluster& cluster, int64_t nodes) {
  const int64_t devices = nodes * cluster.devices_per_node();
  if (cluster.devices_per_node() == 1) return absl::StrCat(devices, " devices");
  return absl::StrCat(devices, " devices (", nodes, " nodes of ", cluster.devices_per_node(), ")");
}

// How many devices would do, by the closed forms.
std::string ExplainLarger(const PlanFacts& facts) {
  if (!facts.larger) return "";
  const v1::Cluster& cluster = facts.request->cluster();
  const LargerCluster& larger = *facts.larger;
  if (!larger.fitting) {
    return absl::StrCat(" By the closed-form bound nothing fits on any cluster of up to ", DevicesText(cluster, larger.nodes),
                        " like these either: a smaller batch, a shorter sequence or fewer constraints would help.");
  }
  return absl::StrCat(" At least ", DevicesText(cluster, larger.nodes),
                      " like these are needed, by the closed-form bound: ", Summarize(larger.fitting->recipe), " needs at least ",
                      BytesText(larger.fitting->bound_bytes), " of each there, ", BytesText(UsableBytes(cluster)),
                      " are usable. `lego plan` for that cluster says whether it fits.");
}

}  // namespace

std::string Summarize(const v1::Recipe& recipe) {
  const auto& p = recipe.parallelism();
  std::vector<std::string> parts;
  auto degree = [&](const char* name, int64_t value) {
    if (value != 1) parts.push_back(absl::StrCat(name, " ", value));
  };
  degree("replicate", p.data_parallel_replicate_degree());
  degree("shard", p.data_parallel_shard_degree());
  if (p.has_zero_stage() && p.zero_stage() != 3) parts.push_back(absl::StrCat("ZeRO-", p.zero_stage()));
  if (p.fsdp_reshard_after_forward_size() > 0)
    parts.push_back(absl::StrCat("resharded over ", p.fsdp_reshard_after_forward_size()));
  if (p.has_fsdp_prefetch_depth() && p.fsdp_prefetch_depth() != 1)
    parts.push_back(absl::StrCat("gathered ", p.fsdp_prefetch_depth(), " layers ahead"));
  if (p.has_context_parallel_degree()) degree("cp", p.context_parallel_degree());
  degree("tp", p.tensor_parallel_degree());
  if (p.tensor_parallel_degree() > 1 && !parallel::SplitsTokens(p)) parts.push_back("no sequence parallel");
  if (p.tensor_parallel_degree() > 1 && p.enable_async_tensor_parallel()) parts.push_back("asynchronous");
  if (p.sequence_parallel_gather_in_backward()) parts.push_back("inputs gathered again");
  if (p.pipeline_parallel_degree() > 1) {
    const std::string chunks = p.has_pipeline_parallel_layers_per_stage()
                                   ? absl::StrCat(", ", p.pipeline_parallel_layers_per_stage(), " layers a chunk,")
                                   : "";
    const bool is_listed = !p.pipeline_parallel_schedule_csv().empty();
    const std::string order = is_listed ? "a listed schedule" : EnumText(p.pipeline_parallel_schedule());
    parts.push_back(absl::StrCat(order, " over ", p.pipeline_parallel_degree(), " stages", chunks, " with microbatches of ",
                                 p.pipeline_parallel_microbatch_size()));
  }
  const int64_t per_pass =
      recipe.training().local_batch_size() * p.data_parallel_replicate_degree() * p.data_parallel_shard_degree();
  const int64_t passes = per_pass > 0 ? recipe.training().global_batch_size() / per_pass : 1;
  parts.push_back(absl::StrCat("local batch ", recipe.training().local_batch_size(),
                               passes > 1 ? absl::StrCat(" accumulated ", passes, " times") : ""));
  parts.push_back(CheckpointingText(recipe.activation_checkpoint()));
  if (recipe.compile().enable()) parts.push_back(recipe.compile().fuse() ? "graph mode with fused operators" : "graph mode");
  if (recipe.optimizer().master_weights()) parts.push_back("masters beside the parameters");
  if (const std::string bucketing = BucketingText(recipe.compile()); !bucketing.empty()) parts.push_back(bucketing);
  const v1::DType precision = recipe.training().mixed_precision_param();
  parts.push_back(precision == v1::FLOAT16 ? "float16" : precision == v1::BFLOAT16 ? "bfloat16" : "float32");
  return absl::StrJoin(parts, ", ");
}

std::string Explain(const PlanFacts& facts, const v1::PlanResult& result) {
  const std::string text = facts.ranked.empty() ? ExplainNone(facts, result) : Explainer(facts, result).Text();
  return text + NotSimulated(facts, result);
}

std::string ExplainNone(const PlanFacts& facts, const v1::PlanResult& result) {
  const int64_t legal = result.bounded_out() + result.captured() + result.failed() + result.not_reached();
  if (legal == 0) return ExplainIllegal(facts, result);
  const bool has_closest = result.rejected_size() > 0 && result.rejected(0).rule() == "out_of_memory";
  const bool none_simulated = result.not_reached() > 0 && result.captured() == 0;
  if (none_simulated || !has_closest) return "Nothing was simulated to its end.";
  return absl::StrCat(
      result.not_reached() > 0 ? "Nothing that was simulated fits. The closest is " : "Nothing fits. The closest is ",
      Summarize(result.rejected(0).recipe()), ": ", result.rejected(0).reason(), ".", ExplainLarger(facts));
}

}  // namespace legoai::planner

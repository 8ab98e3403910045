#include "planner/auto_sac.h"

#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "core/recipe/recipe.h"
#include "core/trace/trace_file.h"
#include "planner/autosac/policy_text.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::planner {
namespace {

constexpr int kMostSimulations = 10;
constexpr double kFull = 0.985;  // of the budget: enough

v1::SimRequest With(const v1::SimRequest& request, const v1::ActivationCheckpoint& section) {
  v1::SimRequest changed = request;
  *changed.mutable_recipe()->mutable_activation_checkpoint() = section;
  return changed;
}

v1::ActivationCheckpoint Mode(v1::ActivationCheckpointMode mode) {
  v1::ActivationCheckpoint section;
  section.set_mode(mode);
  return section;
}

// A new folder, which is removed with everything in it.
class TemporaryFolder {
 public:
  static absl::StatusOr<std::unique_ptr<TemporaryFolder>> Create() {
    std::string pattern = (std::filesystem::temp_directory_path() / "legoai-sac-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) return absl::ErrnoToStatus(errno, absl::StrCat("no folder for traces: ", pattern));
    return std::unique_ptr<TemporaryFolder>(new TemporaryFolder(pattern));
  }
  ~TemporaryFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  const std::string& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

// Keeps nothing: no block has so many products.
constexpr char kKeepsNothing[] = "* aten::mm 1000";

// What facts are read from: all is recomputed. Where all ranks of tensor parallel have all tokens, the sum of a product over them
// is written into the product's own output, which could then not be kept, unless a policy asks for outputs to be kept.
v1::ActivationCheckpoint RecomputesAll(const v1::Parallelism& p) {
  if (p.tensor_parallel_degree() <= 1 || parallel::SplitsTokens(p)) return Mode(v1::AC_FULL);
  v1::ActivationCheckpoint section = Mode(v1::AC_SELECTIVE);
  section.set_selective_ac_option("policy");
  section.set_selective_ac_policy(kKeepsNothing);
  return section;
}

// By stage; each Trace is let go when its facts are known.
absl::StatusOr<std::vector<StageModel>> ModelsOf(v1::SimRequest request, const SacOptions& options, Estimator& estimator) {
  ASSIGN_OR_RETURN(const auto folder, TemporaryFolder::Create());
  request.set_stages_directory(folder->path());
  // Policies act on the step as it is captured; this pass would cut its products first.
  request.mutable_recipe()->mutable_parallelism()->set_enable_async_tensor_parallel(false);
  ASSIGN_OR_RETURN(const auto estimate, EstimateOne(request, estimator, options.cancel));
  std::vector<StageModel> stages;
  for (int i = 0; i < estimate.stages_size(); ++i) {
    ASSIGN_OR_RETURN(const auto trace, graph::ReadTrace(absl::StrCat(folder->path(), "/stage-", i, ".trace")));
    ASSIGN_OR_RETURN(auto facts, FactsOf(trace, request.cluster()));
    ASSIGN_OR_RETURN(auto stage, ModelOf(std::move(facts)));
    stages.push_back(std::move(stage));
  }
  return stages;
}

std::string GiB(int64_t bytes) { return absl::StrFormat("%.2f GiB", static_cast<double>(bytes) / (int64_t{1} << 30)); }

// What the program is told, between budgets whose policies fit and do not.
struct Bracket {
  int64_t now = 0;
  std::optional<int64_t> fits, too_much;

  // Whether there is another one to try.
  bool Move(int64_t peak, int64_t budget) {
    (peak <= budget ? fits : too_much) = now;
    int64_t next = now + (budget - peak);
    const bool outside = (fits && next <= *fits) || (too_much && next >= *too_much);
    if (outside && fits && too_much) next = *fits + (*too_much - *fits) / 2;
    const bool moves = next != now && !(fits && next == *fits);
    now = next;
    return moves;
  }
};

class Search {
 public:
  Search(const v1::SimRequest& request, const SacOptions& options, Estimator& estimator, SacResult* result)
      : request_(request), options_(options), estimator_(estimator), result_(*result) {}

  absl::Status Run() {
    result_.chosen = result_.full;
    result_.section = Mode(v1::AC_FULL);
    for (const StageModel& stage : result_.stages) {
      brackets_.push_back({options_.budget_bytes, {}, {}});
      result_.policies.emplace_back(stage.facts.blocks.size());
      for (size_t i = 0; i < stage.facts.blocks.size(); ++i)
        result_.policies.back()[i].local.keeps.assign(stage.groups[i].size(), false);
    }
    std::set<std::string> tried;
    for (int i = 0; i < kMostSimulations; ++i) {
      const absl::StatusOr<bool> goes_on = Try(&tried);
      const bool may_stop = found_ && !absl::IsCancelled(goes_on.status());  // with what earlier ones found
      if (!goes_on.ok()) return may_stop ? absl::OkStatus() : goes_on.status();
      if (!*goes_on) break;
    }
    return absl::OkStatus();
  }

 private:
  // One more policy. False: there is nothing left to try.
  absl::StatusOr<bool> Try(std::set<std::string>* tried) {
    ASSIGN_OR_RETURN(auto policies, Solve());
    const auto section = SectionFor(policies);
    if (!tried->insert(section.SerializeAsString()).second) return false;
    ASSIGN_OR_RETURN(const auto estimate, EstimateOne(With(request_, section), estimator_, options_.cancel));
    ++result_.simulations;
    Take(section, estimate, std::move(policies));
    return Move(estimate);
  }

  absl::StatusOr<std::vector<std::vector<BlockPolicy>>> Solve() {
    const absl::Time start = absl::Now();
    std::vector<std::vector<BlockPolicy>> policies;
    for (size_t s = 0; s < result_.stages.size(); ++s) {
      const StageModel& stage = result_.stages[s];
      int64_t least = 0;
      for (const MemoryState& state : stage.facts.states) least = std::max(least, state.bytes);
      ASSIGN_OR_RETURN(const auto budgets, BudgetBlocks(stage, std::max(least, brackets_[s].now)));
      ASSIGN_OR_RETURN(auto solved, SolveBlocks(stage, budgets, options_.solver));
      policies.push_back(std::move(solved));
    }
    result_.solver_seconds = absl::ToDoubleSeconds(absl::Now() - start);
    return policies;
  }

  v1::ActivationCheckpoint SectionFor(const std::vector<std::vector<BlockPolicy>>& policies) const {
    std::map<int64_t, KeptOfBlock> kept;
    for (size_t s = 0; s < policies.size(); ++s) {
      const StageModel& stage = result_.stages[s];
      for (size_t i = 0; i < policies[s].size(); ++i) {
        const BlockFacts& facts = stage.facts.blocks[i];
        kept[facts.block] = KeptOf(policies[s][i], stage.groups[i], facts);
      }
    }
    return SectionOf(kept, request_.model().num_hidden_layers());
  }

  // The fastest of those that fit.
  void Take(const v1::ActivationCheckpoint& section, const v1::Estimate& estimate,
            std::vector<std::vector<BlockPolicy>> policies) {
    const bool fits = PeakOf(estimate) <= options_.budget_bytes;
    if (!fits || estimate.step_time_seconds() >= result_.chosen.step_time_seconds()) return;
    found_ = true;
    result_.section = section;
    result_.chosen = estimate;
    result_.policies = std::move(policies);
  }

  // False: every stage is full, or there is nothing left to try.
  bool Move(const v1::Estimate& estimate) {
    bool moves = false;
    for (int s = 0; s < estimate.stages_size(); ++s) {
      const int64_t peak = estimate.stages(s).peak_allocated_bytes(), budget = options_.budget_bytes;
      const bool is_full = peak <= budget && static_cast<double>(peak) >= kFull * static_cast<double>(budget);
      if (!is_full) moves = brackets_[s].Move(peak, budget) || moves;
    }
    return moves;
  }

  const v1::SimRequest& request_;
  const SacOptions& options_;
  Estimator& estimator_;
  SacResult& result_;
  std::vector<Bracket> brackets_;  // by stage
  bool found_ = false;             // a policy that fits and is faster than full checkpointing
};

}  // namespace

int64_t PeakOf(const v1::Estimate& estimate) {
  int64_t peak = 0;
  for (const auto& stage : estimate.stages()) peak = std::max(peak, stage.peak_allocated_bytes());
  return peak;
}

double RecomputationSeconds(const SacResult& result, const v1::Estimate& estimate) {
  return estimate.step_time_seconds() - result.none.step_time_seconds();
}

double SavedShare(const SacResult& result) {
  const double full = RecomputationSeconds(result, result.full);
  return full > 0 ? 1 - RecomputationSeconds(result, result.chosen) / full : 0;
}

PolicyGain GainOf(const SacResult& result) {
  return {.seconds = RecomputationSeconds(result, result.chosen),
          .full_seconds = RecomputationSeconds(result, result.full),
          .saved_share = SavedShare(result),
          .none_peak_bytes = PeakOf(result.none),
          .full_peak_bytes = PeakOf(result.full)};
}

absl::StatusOr<SacResult> AutoSac(const v1::SimRequest& asked, const SacOptions& options, Estimator& estimator) {
  SacResult result;
  v1::SimRequest request = asked;
  if (request.recipe().compile().fsdp_bucketing() == v1::BUCKET_BY_PLAN) {  // buckets, too, have what the budget allows
    v1::Device* const device = request.mutable_cluster()->mutable_device();
    device->set_memory_bytes(std::min(device->memory_bytes(), options.budget_bytes + device->reserve_bytes()));
  }
  ASSIGN_OR_RETURN(auto both,
                   EstimateAll({With(request, Mode(v1::AC_NONE)), With(request, Mode(v1::AC_FULL))}, estimator, options.cancel));
  RETURN_IF_ERROR(both[0].status());
  RETURN_IF_ERROR(both[1].status());
  result.none = *std::move(both[0]), result.full = *std::move(both[1]);
  result.simulations = 2;
  if (PeakOf(result.none) <= options.budget_bytes) {
    result.section = Mode(v1::AC_NONE);
    result.chosen = result.none;
    return result;
  }
  if (PeakOf(result.full) > options.budget_bytes) {
    return FieldError("--budget", GiB(options.budget_bytes),
                      absl::StrCat("is below the least that any policy reaches, ", GiB(PeakOf(result.full)),
                                   " (activation_checkpoint.mode = \"full\"): give more, or shard further"),
                      absl::StatusCode::kResourceExhausted);
  }
  ASSIGN_OR_RETURN(result.stages, ModelsOf(With(request, RecomputesAll(request.recipe().parallelism())), options, estimator));
  RETURN_IF_ERROR(Search(request, options, estimator, &result).Run());
  return result;
}

}  // namespace legoai::planner

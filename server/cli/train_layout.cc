#include "server/cli/train_layout.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "core/checkpoint/directory.h"
#include "core/hardware/catalog.h"
#include "core/hardware/host.h"
#include "core/process/run_directory.h"
#include "core/recipe/recipe.h"
#include "core/recipe/resolved_recipe.h"
#include "planner/explain.h"
#include "planner/plan.h"
#include "planner/ranking.h"
#include "proto/errors.h"
#include "proto/json/reflect.h"
#include "proto/legoai/v1/plan.pb.h"
#include "proto/status.h"
#include "proto/toml/toml.h"
#include "server/cli/job.h"
#include "server/cli/output.h"
#include "server/jobs/plan_base.h"

namespace legoai::cli {
namespace {

constexpr char kShardDegree[] = "parallelism.data_parallel_shard_degree";
constexpr char kSchedule[] = "parallelism.pipeline_parallel_schedule";
constexpr char kAuto[] = "auto";  // of activation_checkpoint.mode and compile.fsdp_bucketing: asks the planner
constexpr char kBucketing[] = "compile.fsdp_bucketing";

// What planner/space.h decides, and planner/last_choices.h.
struct Key {
  const char *section, *name;
  bool of_pipeline = false;  // says nothing without one
};
constexpr Key kPlanned[] = {{"training", "local_batch_size"},
                            {"training", "mixed_precision_param"},
                            {"parallelism", "data_parallel_replicate_degree"},
                            {"parallelism", "data_parallel_shard_degree"},
                            {"parallelism", "zero_stage"},
                            {"parallelism", "fsdp_reshard_after_forward_size"},
                            {"parallelism", "fsdp_prefetch_depth"},
                            {"parallelism", "sequence_parallel_gather_in_backward"},
                            {"parallelism", "context_parallel_degree"},
                            {"parallelism", "context_parallel_rotate_method"},
                            {"parallelism", "tensor_parallel_degree"},
                            {"parallelism", "pipeline_parallel_degree"},
                            {"parallelism", "pipeline_parallel_schedule", true},
                            {"parallelism", "pipeline_parallel_layers_per_stage", true},
                            {"parallelism", "pipeline_parallel_microbatch_size", true},
                            {"activation_checkpoint", "mode"},
                            {"activation_checkpoint", "selective_ac_option"},
                            {"parallelism", "enable_async_tensor_parallel"},
                            {"compile", "enable"},
                            {"compile", "fsdp_bucketing"}};

std::string PathOf(const Key& key) { return absl::StrCat(key.section, ".", key.name); }

// As the file would say it: text without quotes. Empty where it is not said.
std::string ValueOf(const v1::Recipe& recipe, const Key& key) {
  const auto* section = v1::Recipe::descriptor()->FindFieldByName(key.section);
  const auto& message = recipe.GetReflection()->GetMessage(recipe, section);
  const Tree value = ToTree(message, section->message_type()->FindFieldByName(key.name));
  return value.is_null() ? "" : value.is_string() ? value.get<std::string>() : value.dump();
}

bool IsOpen(const v1::Recipe& recipe, const Key& key) {
  const std::string value = ValueOf(recipe, key);
  const bool derived = PathOf(key) == kShardDegree && value == "-1";
  return value.empty() || value == kAuto || derived || (key.of_pipeline && recipe.parallelism().pipeline_parallel_degree() <= 1);
}

int64_t Ranks(const v1::Cluster& cluster) { return cluster.devices_per_node() * cluster.nodes(); }

v1::Recipe WithDefaults(v1::Recipe recipe) {
  parallel::FillDefaults(&recipe);
  return recipe;
}

// Of the attempt whose checkpoints lie in the run's folder; nothing where there are none, or they do not count.
std::optional<v1::Recipe> KeptRecipe(const LayoutRequest& request) {
  const std::string folder = WithDefaults(request.spec.recipe()).job().dump_folder();
  const auto steps = checkpoint::ListCheckpoints(launch::CheckpointsPath(folder));
  if (request.fresh || !steps.ok() || steps->empty()) return std::nullopt;
  auto kept = parallel::LoadRecipe(launch::RecipePath(folder));
  return kept.ok() ? std::optional<v1::Recipe>(*std::move(kept)) : std::nullopt;
}

bool IsPlanned(const std::string& path) {
  return std::any_of(std::begin(kPlanned), std::end(kPlanned), [&](const Key& key) { return PathOf(key) == path; });
}

// `recipe` with what planning.constraints says; nothing where one names no key or value, or contradicts what was planned.
std::optional<v1::Recipe> Constrained(const v1::JobSpec& spec, v1::Recipe recipe) {
  for (const std::string& text : spec.planning().constraints()) {
    const std::pair<std::string, std::string> constraint = absl::StrSplit(text, absl::MaxSplits('=', 1));
    if (IsPlanned(constraint.first) && constraint.second == kAuto) continue;  // the plan answered it
    v1::Recipe wanted = recipe;
    if (!ApplyOverride(&wanted, constraint.first, constraint.second).ok()) return std::nullopt;
    if (IsPlanned(constraint.first) && wanted.SerializeAsString() != recipe.SerializeAsString()) return std::nullopt;
    recipe = std::move(wanted);
  }
  return recipe;
}

// Whether the file or a constraint leaves FSDP's buckets to the plan.
bool LeavesBuckets(const v1::JobSpec& spec) {
  const auto& constraints = spec.planning().constraints();
  return IsOpen(spec.recipe(), {"compile", "fsdp_bucketing"}) ||
         std::find(constraints.begin(), constraints.end(), absl::StrCat(kBucketing, "=", kAuto)) != constraints.end();
}

// What is open as `kept` has it; nothing where that does not suit the rest, or other ranks.
std::optional<v1::Recipe> AsBefore(const LayoutRequest& request, const v1::Recipe& kept) {
  v1::Recipe open = WithDefaults(request.spec.recipe());
  if (!request.spec.recipe().activation_checkpoint().has_selective_ac_option())
    open.mutable_activation_checkpoint()->set_selective_ac_policy(kept.activation_checkpoint().selective_ac_policy());
  for (const Key& key : kPlanned) {
    if (!IsOpen(request.spec.recipe(), key)) continue;
    const std::string value = ValueOf(kept, key);
    if (!value.empty() && !ApplyOverride(&open, PathOf(key), value).ok()) return std::nullopt;
  }
  if (LeavesBuckets(request.spec)) {
    v1::CompileSection& compile = *open.mutable_compile();
    compile.set_fsdp_bucketing(kept.compile().fsdp_bucketing());
    compile.set_fsdp_reorder(kept.compile().fsdp_reorder());
    *compile.mutable_fsdp_buckets() = kept.compile().fsdp_buckets();
  }
  auto recipe = Constrained(request.spec, std::move(open));
  if (!recipe) return std::nullopt;
  const auto resolved = parallel::ResolvedRecipe::Create(*recipe, request.model, Ranks(request.cluster));
  return resolved.ok() ? recipe : std::nullopt;
}

bool IsMeasured(const v1::Device& device) { return sim::AssumedEfficiencies(device).empty(); }

// The catalog's cpu has all precisions; this machine's processor need not.
v1::Cluster WithoutEmulation(v1::Cluster cluster) {
  v1::Device* device = cluster.mutable_device();
  if (device->kind() != v1::CPU || IsMeasured(*device) || sim::HostHasBfloat16()) return cluster;
  auto* peaks = device->mutable_peak_flops();
  peaks->erase(std::remove_if(peaks->begin(), peaks->end(),
                              [](const auto& peak) { return peak.dtype() == v1::BFLOAT16 || peak.dtype() == v1::FLOAT16; }),
               peaks->end());
  return cluster;
}

absl::StatusOr<v1::PlanRequest> MakeRequest(const LayoutRequest& request, const std::optional<v1::Recipe>& kept) {
  const v1::Recipe& recipe = request.spec.recipe();
  const v1::Training& training = recipe.training();
  if (training.global_batch_size() < 1) {
    return FieldError("training.global_batch_size", "",
                      "is needed where the planner chooses the layout: sequences per optimizer step");
  }
  v1::PlanRequest plan;
  *plan.mutable_model() = request.model;
  *plan.mutable_cluster() = WithoutEmulation(request.cluster);
  *plan.mutable_base() = recipe;
  server::FillBaseDefaults(plan.mutable_base());
  plan.set_global_batch(training.global_batch_size());
  plan.set_seq_len(plan.base().training().seq_len());
  *plan.mutable_constraints() = request.spec.planning().constraints();
  for (const Key& key : kPlanned) {
    if (!IsOpen(recipe, key)) plan.add_constraints(absl::StrCat(PathOf(key), "=", ValueOf(recipe, key)));
  }
  plan.set_budget_seconds(request.spec.planning().has_budget_seconds() ? request.spec.planning().budget_seconds()
                                                                       : absl::ToDoubleSeconds(planner::kDefaultBudget));
  plan.set_objective(request.spec.planning().objective());
  plan.set_min_headroom_bytes(request.spec.planning().min_headroom_bytes());
  if (kept) *plan.mutable_resume_from() = *kept;
  return plan;
}

absl::StatusOr<v1::PlanResult> PlanHere(const v1::PlanRequest& request, InterruptGuard* guard) {
  ASSIGN_OR_RETURN(const auto pool, SimProcesses());
  ProgressLine line;
  auto result = planner::Plan(
      request, *pool,
      [&](const planner::PlanProgress& progress) {
        line.Show(absl::StrCat("planning: ", WithCommas(progress.space), " recipes, ", WithCommas(progress.captured), " of ",
                               WithCommas(progress.to_capture), " that may fit are simulated"));
      },
      [guard] { return guard->interrupted(); });
  line.Clear();
  return result;
}

std::string KeysText(const v1::Recipe& given, const v1::Recipe& chosen) {
  std::string text;
  for (const Key& key : kPlanned) {
    if (!IsOpen(given, key) || (key.of_pipeline && chosen.parallelism().pipeline_parallel_degree() <= 1)) continue;
    if (PathOf(key) == kSchedule && !chosen.parallelism().pipeline_parallel_schedule_csv().empty()) continue;  // that one runs
    const std::string value = ValueOf(chosen, key);
    if (!value.empty()) absl::StrAppend(&text, "\n  ", PathOf(key), " = ", value);
  }
  return text;
}

std::string PlannedText(const LayoutRequest& request, const v1::PlanResult& result) {
  const v1::RankedRecipe& best = result.ranked(0);
  const int64_t fit = result.captured() - result.captured_unfit();
  const bool by_memory = request.spec.planning().objective() == v1::MEMORY;
  std::string text =
      absl::StrCat("planned for ", result.cluster(), ", as the file leaves it open: ", planner::Summarize(best.recipe()), "; ",
                   SecondsText(best.step_time_seconds()), " a step predicted, ",
                   fit == 1 ? "the only recipe that was simulated and fits"
                            : absl::StrCat(by_memory ? "the one with the smallest peak memory of " : "the fastest of ", fit,
                                           " recipes that were simulated and fit"),
                   " (", SecondsText(result.seconds()), ")", KeysText(request.spec.recipe(), best.recipe()));
  if (IsMeasured(request.cluster.device()) || request.cluster.device().kind() != v1::CPU) return text;
  return absl::StrCat(text,
                      "\nnote: this machine was not measured, so the plan rests on the catalog's cpu: `lego hardware --measure`, "
                      "ten seconds, makes it rest on this one");
}

// Nothing legal, nothing simulated to its end, or nothing simulated that fits: the first two are errors.
absl::StatusOr<ChosenLayout> Judge(const LayoutRequest& request, const v1::PlanResult& result) {
  ChosenLayout chosen;
  if (planner::HasRecipe(result)) {
    // The planner keeps a checkpoint's optimizer; what the file says otherwise is refused by name, not passed over.
    v1::Recipe recipe = result.ranked(0).recipe();
    *recipe.mutable_optimizer() = WithDefaults(request.spec.recipe()).optimizer();
    chosen.recipe = Constrained(request.spec, recipe).value_or(recipe);
    *chosen.recipe->mutable_compile() = recipe.compile();  // buckets that a constraint leaves to the plan are planned
    chosen.text = PlannedText(request, result);
    return chosen;
  }
  const int64_t legal = result.captured() + result.bounded_out() + result.not_reached() + result.failed();
  if (legal == 0) return FieldError("recipe", "", result.explanation());
  if (result.failed() > 0 && result.captured() == 0) {
    const auto first = std::find_if(result.rejected().begin(), result.rejected().end(),
                                    [](const auto& rejected) { return rejected.rule() == "failed"; });
    return absl::InternalError(absl::StrCat("all ", result.failed(), " simulations failed, the first of them: ",
                                            first == result.rejected().end() ? "" : first->reason()));
  }
  if (result.ranked_size() > 0) {
    return absl::DeadlineExceededError(absl::StrCat(
        "in ", SecondsText(result.seconds()), " no recipe was simulated that fits; give planning.budget_seconds a larger value"));
  }
  chosen.text = result.explanation();
  return chosen;
}

}  // namespace

bool LeavesLayoutOpen(const v1::JobSpec& spec) {
  const v1::Training& training = spec.recipe().training();
  return spec.has_planning() || (training.global_batch_size() > 0 && !training.has_local_batch_size());
}

std::vector<std::string> OpenKeys(const v1::Recipe& recipe) {
  std::vector<std::string> keys;
  for (const Key& key : kPlanned) {
    if (IsOpen(recipe, key)) keys.push_back(PathOf(key));
  }
  return keys;
}

absl::StatusOr<ChosenLayout> ChooseLayout(const LayoutRequest& request, InterruptGuard* guard) {
  const std::optional<v1::Recipe> kept = KeptRecipe(request);
  if (const auto before = kept ? AsBefore(request, *kept) : std::nullopt) {
    return ChosenLayout{before, absl::StrCat("as it was planned before: ", planner::Summarize(*before),
                                             KeysText(request.spec.recipe(), *before))};
  }
  ASSIGN_OR_RETURN(const auto plan, MakeRequest(request, kept));
  ASSIGN_OR_RETURN(const auto result, PlanHere(plan, guard));
  return Judge(request, result);
}

std::string PrecisionNote(const v1::Recipe& recipe, const v1::Cluster& cluster) {
  const v1::Device& device = cluster.device();
  if (recipe.training().has_mixed_precision_param() || device.kind() != v1::CPU) return "";
  if (IsMeasured(device) ? sim::TruePeakFlops(device, v1::BFLOAT16) > 0 : sim::HostHasBfloat16()) return "";
  return "note: training.mixed_precision_param is left at bfloat16, which this processor has in software only: "
         "--training.mixed_precision_param=float32 is many times faster here";
}

}  // namespace legoai::cli

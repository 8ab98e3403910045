#include "server/cli/train_layout.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
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
#include "planner/legal.h"
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
                            {"compile", "fuse"},
                            {"compile", "fall_back_to_eager"},
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

// Of the attempt whose checkpoints are the run's; nothing where there are none, or they do not count. An error where it cannot be
// told: planned anew, a run might go on in another layout for a store that was away.
absl::StatusOr<std::optional<v1::Recipe>> KeptRecipe(const LayoutRequest& request) {
  const std::string folder = WithDefaults(request.spec.recipe()).job().dump_folder();
  if (request.fresh) return std::nullopt;
  auto kept = parallel::LoadRecipe(launch::RecipePath(folder));
  if (!kept.ok()) return std::nullopt;
  ASSIGN_OR_RETURN(const auto steps, checkpoint::ListCheckpoints(launch::CheckpointsOf(request.spec.recipe(), folder)));
  return steps.empty() ? std::nullopt : std::optional<v1::Recipe>(*std::move(kept));
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

constexpr double kGiB = 1 << 30;

// In GiB, for a policy that the file or planning.constraints leave to the plan; nothing where they do not. What the plan chose
// says it as activation_checkpoint.memory_budget_gib, even where the budget needs no policy.
std::optional<double> AskedBudget(const LayoutRequest& request) {
  v1::Recipe recipe = request.spec.recipe();
  for (const std::string& text : request.spec.planning().constraints()) {
    const std::pair<std::string, std::string> constraint = absl::StrSplit(text, absl::MaxSplits('=', 1));
    const bool is_of_it = absl::StartsWith(constraint.first, "activation_checkpoint.");
    if (is_of_it && !ApplyOverride(&recipe, constraint.first, constraint.second).ok()) return std::nullopt;
  }
  const v1::ActivationCheckpoint& section = recipe.activation_checkpoint();
  if (section.mode() != v1::AC_AUTO) return std::nullopt;
  const double usable = static_cast<double>(planner::UsableBytes(request.cluster)) / kGiB;
  return section.memory_budget_gib() > 0 ? std::min(section.memory_budget_gib(), usable) : usable;
}

bool IsPlannedFor(double budget_gib, const v1::Recipe& kept) {
  return std::abs(kept.activation_checkpoint().memory_budget_gib() - budget_gib) <= 1e-9 * budget_gib;
}

// Why what was planned before does not count although it would do; empty where it does.
std::string OtherBudgetText(const LayoutRequest& request, const v1::Recipe& kept) {
  const auto budget = AskedBudget(request);
  if (!budget || IsPlannedFor(*budget, kept)) return "";
  const double before = kept.activation_checkpoint().memory_budget_gib();
  return absl::StrCat("planned anew: a rank may take ", BytesText(*budget * kGiB), ", and the run's checkpointing was ",
                      before > 0 ? absl::StrCat("planned for ", BytesText(before * kGiB)) : "not planned", "\n");
}

// Whether the file or a constraint leaves FSDP's buckets to the plan.
bool LeavesBuckets(const v1::JobSpec& spec) {
  const auto& constraints = spec.planning().constraints();
  return IsOpen(spec.recipe(), {"compile", "fsdp_bucketing"}) ||
         std::find(constraints.begin(), constraints.end(), absl::StrCat(kBucketing, "=", kAuto)) != constraints.end();
}

// Masters beside parameters in 16 bits: two keys that mean one thing, which a plan may choose where neither is given.
bool LeavesMasters(const v1::Recipe& given) { return !given.training().has_dtype() && !given.optimizer().has_master_weights(); }

// Takes them over from what was planned.
void TakeMasters(const v1::Recipe& planned, v1::Recipe* recipe) {
  if (!planned.optimizer().master_weights()) return;
  recipe->mutable_training()->set_dtype(planned.training().dtype());
  recipe->mutable_optimizer()->set_master_weights(true);
}

// What is open as `kept` has it; nothing where that does not suit the rest, or other ranks.
std::optional<v1::Recipe> AsBefore(const LayoutRequest& request, const v1::Recipe& kept) {
  const auto budget = AskedBudget(request);
  if (budget && !IsPlannedFor(*budget, kept)) return std::nullopt;
  v1::Recipe open = WithDefaults(request.spec.recipe());
  if (!request.spec.recipe().activation_checkpoint().has_selective_ac_option())
    open.mutable_activation_checkpoint()->set_selective_ac_policy(kept.activation_checkpoint().selective_ac_policy());
  for (const Key& key : kPlanned) {
    if (!IsOpen(request.spec.recipe(), key)) continue;
    const std::string value = ValueOf(kept, key);
    if (!value.empty() && !ApplyOverride(&open, PathOf(key), value).ok()) return std::nullopt;
  }
  if (LeavesMasters(request.spec.recipe())) TakeMasters(kept, &open);
  if (LeavesBuckets(request.spec)) {
    v1::CompileSection& compile = *open.mutable_compile();
    compile.set_fsdp_bucketing(kept.compile().fsdp_bucketing());
    compile.set_fsdp_reorder(kept.compile().fsdp_reorder());
    *compile.mutable_fsdp_buckets() = kept.compile().fsdp_buckets();
    *compile.mutable_fsdp_backward_buckets() = kept.compile().fsdp_backward_buckets();
  }
  auto recipe = Constrained(request.spec, std::move(open));
  if (!recipe) return std::nullopt;
  if (budget) recipe->mutable_activation_checkpoint()->set_memory_budget_gib(*budget);
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

// All that a step is made of, but for the buckets of its collectives.
std::string StepText(const v1::Recipe& recipe) {
  v1::Recipe step;
  *step.mutable_parallelism() = recipe.parallelism();
  *step.mutable_activation_checkpoint() = recipe.activation_checkpoint();
  *step.mutable_optimizer() = recipe.optimizer();
  *step.mutable_compile() = recipe.compile();
  step.mutable_compile()->clear_fsdp_bucketing();
  step.mutable_compile()->clear_fsdp_buckets();
  step.mutable_compile()->clear_fsdp_backward_buckets();
  v1::Training* const training = step.mutable_training();
  *training = recipe.training();
  training->clear_steps();
  training->clear_dataset_path();
  training->clear_validation_fraction();
  return step.SerializeAsString();
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
    if (LeavesMasters(request.spec.recipe())) TakeMasters(result.ranked(0).recipe(), &recipe);
    chosen.recipe = Constrained(request.spec, recipe).value_or(recipe);
    *chosen.recipe->mutable_compile() = recipe.compile();  // buckets that a constraint leaves to the plan are planned
    if (const auto budget = AskedBudget(request)) chosen.recipe->mutable_activation_checkpoint()->set_memory_budget_gib(*budget);
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
  ASSIGN_OR_RETURN(const std::optional<v1::Recipe> kept, KeptRecipe(request));
  if (const auto before = kept ? AsBefore(request, *kept) : std::nullopt) {
    return ChosenLayout{before, absl::StrCat("as it was planned before: ", planner::Summarize(*before),
                                             KeysText(request.spec.recipe(), *before))};
  }
  ASSIGN_OR_RETURN(const auto plan, MakeRequest(request, kept));
  ASSIGN_OR_RETURN(const auto result, PlanHere(plan, guard));
  ASSIGN_OR_RETURN(auto chosen, Judge(request, result));
  if (kept) chosen.text = OtherBudgetText(request, *kept) + chosen.text;
  return chosen;
}

absl::StatusOr<std::optional<v1::CompileSection>> BucketsAsBefore(const LayoutRequest& request, const v1::Recipe& recipe) {
  ASSIGN_OR_RETURN(const std::optional<v1::Recipe> kept, KeptRecipe(request));
  if (!kept || kept->compile().fsdp_bucketing() != v1::BUCKET_BY_MODULES) return std::nullopt;
  const auto now = parallel::ResolvedRecipe::Create(recipe, request.model, Ranks(request.cluster));
  const auto then = parallel::ResolvedRecipe::Create(*kept, request.model, Ranks(request.cluster));
  if (!now.ok() || !then.ok() || StepText(now->recipe()) != StepText(then->recipe())) return std::nullopt;
  v1::CompileSection buckets = recipe.compile();
  buckets.set_fsdp_bucketing(v1::BUCKET_BY_MODULES);
  *buckets.mutable_fsdp_buckets() = kept->compile().fsdp_buckets();
  *buckets.mutable_fsdp_backward_buckets() = kept->compile().fsdp_backward_buckets();
  return std::optional(std::move(buckets));
}

std::string PrecisionNote(const v1::Recipe& recipe, const v1::Cluster& cluster) {
  const v1::Device& device = cluster.device();
  if (recipe.training().has_mixed_precision_param() || device.kind() != v1::CPU) return "";
  if (IsMeasured(device) ? sim::TruePeakFlops(device, v1::BFLOAT16) > 0 : sim::HostHasBfloat16()) return "";
  return "note: training.mixed_precision_param is left at bfloat16, which this processor has in software only: "
         "--training.mixed_precision_param=float32 is many times faster here";
}

}  // namespace legoai::cli

#include "planner/open_choices.h"

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/recipe/recipe.h"
#include "planner/legal.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "proto/toml/toml.h"

namespace legoai::planner {
namespace {

constexpr char kCheckpointing[] = "activation_checkpoint.";
constexpr char kBucketing[] = "compile.fsdp_bucketing", kReorder[] = "compile.fsdp_reorder";
constexpr char kEnable[] = "compile.enable", kAsyncTensorParallel[] = "parallelism.enable_async_tensor_parallel";
constexpr char kFuse[] = "compile.fuse", kFallBack[] = "compile.fall_back_to_eager";

bool IsOf(const std::string& constraint, const char* key) { return absl::StartsWith(constraint, absl::StrCat(key, "=")); }

template <class Which>
void EraseConstraints(v1::PlanRequest* request, Which which) {
  auto* const constraints = request->mutable_constraints();
  constraints->erase(std::remove_if(constraints->begin(), constraints->end(), which), constraints->end());
}

// The section that base and constraints ask for together.
absl::StatusOr<v1::ActivationCheckpoint> AskedCheckpointing(const v1::PlanRequest& request) {
  v1::Recipe asked;
  *asked.mutable_activation_checkpoint() = request.base().activation_checkpoint();
  for (const std::string& text : request.constraints()) {
    const size_t equals = text.find('=');
    if (!absl::StartsWith(text, kCheckpointing) || equals == std::string::npos) continue;
    RETURN_IF_ERROR(ApplyOverride(&asked, text.substr(0, equals), text.substr(equals + 1)));
  }
  if (asked.activation_checkpoint().mode() == v1::AC_AUTO) {
    RETURN_IF_ERROR(parallel::CheckRecipe(asked));
  }
  return asked.activation_checkpoint();
}

absl::StatusOr<bool> TakePolicies(v1::PlanRequest* request) {
  ASSIGN_OR_RETURN(const auto asked, AskedCheckpointing(*request));
  if (asked.mode() != v1::AC_AUTO) return false;
  if (request->objective() == v1::MEMORY)
    return FieldError("objective", "memory",
                      "must be step_time where activation_checkpoint.mode = \"auto\" fills a budget of memory");
  EraseConstraints(request, [](const std::string& text) { return absl::StartsWith(text, kCheckpointing); });
  request->mutable_base()->clear_activation_checkpoint();
  if (asked.memory_budget_gib() == 0) return true;
  constexpr double kGiB = 1 << 30;
  const int64_t usable = UsableBytes(request->cluster());
  if (asked.memory_budget_gib() * kGiB >= static_cast<double>(usable)) return true;
  const int64_t beyond = usable - static_cast<int64_t>(asked.memory_budget_gib() * kGiB);
  request->set_min_headroom_bytes(std::max(request->min_headroom_bytes(), beyond));
  return true;
}

absl::Status TakeBuckets(v1::PlanRequest* request, OpenChoices* open) {
  v1::Recipe base = request->base();
  parallel::FillDefaults(&base);
  for (const std::string& text : request->constraints()) {
    const size_t equals = text.find('=');
    // What is wrong with one is said where candidates are made.
    if (absl::StartsWith(text, "compile.") && equals != std::string::npos)
      (void)ApplyOverride(&base, text.substr(0, equals), text.substr(equals + 1));
  }
  if (base.compile().fsdp_bucketing() != v1::BUCKET_BY_PLAN) return absl::OkStatus();
  if (!base.compile().enable())
    return FieldError(kBucketing, "auto", "needs compile.enable = true: a pass joins the collectives");
  EraseConstraints(request, [](const std::string& text) { return IsOf(text, kBucketing) || IsOf(text, kReorder); });
  v1::CompileSection* const compile = request->mutable_base()->mutable_compile();
  compile->set_fsdp_bucketing(v1::BUCKET_BY_BLOCK);
  compile->set_fsdp_reorder(true);
  open->buckets = true;
  open->reorders = base.compile().fsdp_reorder();
  return absl::OkStatus();
}

bool IsConstrained(const v1::PlanRequest& request, const char* key) {
  return std::any_of(request.constraints().begin(), request.constraints().end(),
                     [key](const std::string& text) { return IsOf(text, key); });
}

// A run that goes on keeps its roundings, and hosts may have other compilers. A key that forbids to train without a program
// forbids to need a compiler.
bool MayFuse(const v1::PlanRequest& request) {
  const v1::CompileSection& base = request.base().compile();
  const auto& constraints = request.constraints();
  const bool must_not_fall_back = std::any_of(constraints.begin(), constraints.end(), [](const std::string& text) {
    return IsOf(text, kFallBack) && text != absl::StrCat(kFallBack, "=true");
  });
  return !base.has_fuse() && !IsConstrained(request, kFuse) && !must_not_fall_back &&
         (!base.has_fall_back_to_eager() || base.fall_back_to_eager()) && request.cluster().nodes() <= 1 &&
         !request.has_resume_from();
}

// Whether base and constraints together ask for `key`, a bool of [compile], to be false.
bool IsRefused(const v1::PlanRequest& request, const char* key, bool of_base) {
  return of_base || std::any_of(request.constraints().begin(), request.constraints().end(), [key](const std::string& text) {
           return text == absl::StrCat(key, "=false");
         });
}

// What becomes of the operators that the run has fused so far.
std::string KeepFused(v1::PlanRequest* request) {
  const v1::CompileSection& before = request->resume_from().compile();
  v1::CompileSection* const base = request->mutable_base()->mutable_compile();
  if (!before.fuse() || base->has_fuse() || IsConstrained(*request, kFuse)) return "";
  const char* const goes_on = "The run that it goes on from has fused operators (compile.fuse). ";
  const char* const otherwise = ", so they are not fused any more: it rounds otherwise from here on.";
  if (IsRefused(*request, kEnable, base->has_enable() && !base->enable()))
    return absl::StrCat(goes_on, "compile.enable = false is asked for", otherwise);
  base->set_enable(true);
  base->set_fuse(true);
  const bool several = request->cluster().nodes() > 1;
  if (IsConstrained(*request, kFallBack)) {
    base->set_fall_back_to_eager(!IsRefused(*request, kFallBack, false));
  } else if (!base->has_fall_back_to_eager()) {
    base->set_fall_back_to_eager(before.fall_back_to_eager() || several);
  }
  const std::string of_hosts =
      several ? absl::StrCat(", if its ", request->cluster().nodes(),
                             " hosts have kernels of one compiler and processor or card: if not, ",
                             base->fall_back_to_eager() ? "all train without" : "the run ends and says so")
              : "";
  return absl::StrCat(goes_on, "They stay fused in all recipes of this plan, so that it rounds as before", of_hosts, ".");
}

// What a program spares of a GPU's host was never measured: there programs are of those who ask for them, and what a pass changes
// beside fusing is tried on CPUs alone.
void OpenLastChoices(const v1::PlanRequest& request, OpenChoices* open) {
  if (request.objective() == v1::MEMORY) return;
  const v1::Recipe& base = request.base();
  const bool on_cpus = request.cluster().device().kind() == v1::CPU;
  open->graph_mode = on_cpus && !base.compile().has_enable() && !IsConstrained(request, kEnable);
  v1::Recipe asked = base;
  for (const std::string& text : request.constraints()) {
    if (IsOf(text, kEnable)) (void)ApplyOverride(&asked, kEnable, text.substr(text.find('=') + 1));
  }
  if (!open->graph_mode && !asked.compile().enable()) return;
  open->fuses = MayFuse(request);
  if (!on_cpus) return;
  open->async_tensor_parallel =
      !base.parallelism().has_enable_async_tensor_parallel() && !IsConstrained(request, kAsyncTensorParallel);
  open->tries_buckets = !base.compile().has_fsdp_bucketing() && !IsConstrained(request, kBucketing) &&
                        !IsConstrained(request, kReorder) && base.compile().fsdp_buckets().empty();
}

// A checkpoint's optimizer is kept.
bool MayHoldMasters(const v1::PlanRequest& request) {
  return !request.base().training().has_dtype() && !request.base().optimizer().has_master_weights() &&
         !IsConstrained(request, "training.dtype") && !IsConstrained(request, "optimizer.master_weights") &&
         !request.has_resume_from() && request.objective() != v1::MEMORY;
}

// No constraint names it, and the base has none but the default.
bool ChoosesDepth(const v1::PlanRequest& request) {
  const v1::Parallelism& base = request.base().parallelism();
  const bool named =
      std::any_of(request.constraints().begin(), request.constraints().end(),
                  [](const std::string& text) { return absl::StartsWith(text, "parallelism.fsdp_prefetch_depth"); });
  return !named && (!base.has_fsdp_prefetch_depth() || base.fsdp_prefetch_depth() == 1) && request.objective() != v1::MEMORY;
}

}  // namespace

absl::StatusOr<OpenChoices> TakeOpenChoices(v1::PlanRequest* request) {
  OpenChoices open;
  ASSIGN_OR_RETURN(open.policies, TakePolicies(request));
  if (request->has_resume_from()) open.of_fused = KeepFused(request);
  OpenLastChoices(*request, &open);  // before "auto" is taken out, which names its key
  RETURN_IF_ERROR(TakeBuckets(request, &open));
  open.masters = MayHoldMasters(*request);
  open.depth = ChoosesDepth(*request);
  return open;
}

}  // namespace legoai::planner

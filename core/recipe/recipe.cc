#include "core/recipe/recipe.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/util/field_comparator.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/objectstore/s3_url.h"
#include "core/recipe/chunks.h"
#include "core/recipe/keep_policy.h"
#include "core/recipe/optimizer.h"
#include "core/recipe/torchtitan.h"
#include "core/schedule/schedule_csv.h"
#include "proto/enum_text.h"
#include "proto/errors.h"
#include "proto/json/reflect.h"
#include "proto/legoai/v1/options.pb.h"
#include "proto/read_file.h"
#include "proto/status.h"
#include "proto/text.h"
#include "proto/toml/toml.h"

namespace legoai::parallel {
namespace {

using google::protobuf::FieldDescriptor;

// Calls `visit(section name, field)` for every key of the schema.
template <typename Visit>
void ForEachKey(Visit visit) {
  const auto* type = v1::Recipe::descriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    const auto* section = type->field(i)->message_type();
    for (int k = 0; k < section->field_count(); ++k) visit(type->field(i)->name(), section->field(k));
  }
}

v1::Recipe MakeDefaultRecipe() {
  v1::Recipe recipe;
  ForEachKey([&recipe](const std::string& section, const FieldDescriptor* field) {
    if (!field->options().HasExtension(v1::default_text)) return;
    const absl::Status status =
        MergeText(section + "." + field->name(), field->options().GetExtension(v1::default_text), &recipe);
    GOOGLE_CHECK(status.ok()) << status.ToString();  // a mistake in recipe.proto, which every test would meet
  });
  return recipe;
}

// The largest count of anything: keeps products with a world size inside int64.
constexpr int64_t kMost = 1'000'000'000;

// Collects what is at fault, of a key the first.
class Checker {
 public:
  void Whole(const char* field, int64_t value, int64_t least, int64_t most = kMost) {
    if (value < least || value > most) {
      Fail(field, absl::StrCat(value), absl::StrCat("must lie between ", least, " and ", most));
    }
  }
  // Like Whole, and -1 for `derived`.
  void WholeOrDerived(const char* field, int64_t value, const char* derived) {
    if (value != -1 && (value < 1 || value > kMost)) {
      Fail(field, absl::StrCat(value), absl::StrCat("must be at least 1, or -1 for ", derived));
    }
  }
  void Real(const char* field, double value, bool ok, const char* remedy) {
    if (std::isfinite(value) && !ok) Fail(field, Tree(value).dump(), remedy);
    if (!std::isfinite(value)) Fail(field, absl::StrCat(value), "must be a finite number");
  }
  void OneOf(const char* field, const std::string& value, std::initializer_list<const char*> choices) {
    std::string list;
    for (const char* choice : choices) {
      if (value == choice) return;
      list += absl::StrCat(list.empty() ? "" : ", ", "\"", choice, "\"");
    }
    Fail(field, value, absl::StrCat(choices.size() == 1 ? "must be " : "must be one of ", list));
  }
  void Fail(const std::string& field, const std::string& value, const std::string& remedy) {
    if (fields_.insert(field).second) faults_.push_back(FieldError(field, value, remedy));
  }
  const std::vector<absl::Status>& faults() const { return faults_; }

 private:
  std::set<std::string> fields_;
  std::vector<absl::Status> faults_;
};

constexpr double kMostLossScale = 0x1p127;        // of float32
constexpr int64_t kMostGrowthInterval = 1 << 24;  // good steps are counted in float32

// float16 and the keys that are its own.
void CheckLossScale(const v1::Training& t, Checker* check) {
  constexpr char kOfFloat16[] = "is a key of mixed_precision_param = \"float16\": remove it";
  const bool scales = t.mixed_precision_param() == v1::FLOAT16;
  const v1::Training& usual = DefaultRecipe().training();
  const bool fits = t.initial_loss_scale() >= 1 && t.initial_loss_scale() <= kMostLossScale;
  check->Real("training.initial_loss_scale", t.initial_loss_scale(), fits, "must lie between 1 and 2^127");
  check->Whole("training.loss_scale_growth_interval", t.loss_scale_growth_interval(), 1, kMostGrowthInterval);
  if (!scales && t.initial_loss_scale() != usual.initial_loss_scale()) {
    check->Fail("training.initial_loss_scale", Tree(t.initial_loss_scale()).dump(), kOfFloat16);
  }
  if (!scales && t.loss_scale_growth_interval() != usual.loss_scale_growth_interval()) {
    check->Fail("training.loss_scale_growth_interval", absl::StrCat(t.loss_scale_growth_interval()), kOfFloat16);
  }
  if (scales && t.dtype() == v1::BFLOAT16) {
    check->Fail("training.dtype", "bfloat16",
                "cannot go with mixed_precision_param = \"float16\": use \"float32\", or \"float16\" with "
                "optimizer.master_weights = true");
  }
}

// Who keeps what an update of 16 bits would lose.
void CheckMasters(const v1::Training& t, const v1::OptimizerSection& o, Checker* check) {
  if (t.dtype() == v1::FLOAT16 && !o.master_weights()) {
    check->Fail("training.dtype", "float16",
                "would lose small updates: use \"bfloat16\", \"float32\", or optimizer.master_weights = true with it");
  } else if (t.dtype() == v1::FLOAT16 && t.mixed_precision_param() != v1::FLOAT16) {
    check->Fail("training.dtype", "float16", "needs mixed_precision_param = \"float16\", whose loss is scaled: use \"bfloat16\"");
  }
  if (o.stochastic_rounding() && t.dtype() != v1::BFLOAT16) {
    check->Fail("optimizer.stochastic_rounding", "true", "needs training.dtype = \"bfloat16\": nothing is rounded in float32");
  }
  if (!o.master_weights()) return;
  if (t.dtype() == v1::FLOAT32) {
    check->Fail("optimizer.master_weights", "true",
                "needs training.dtype = \"bfloat16\", or \"float16\": parameters in float32 are masters themselves");
  }
  if (o.stochastic_rounding()) {
    check->Fail("optimizer.stochastic_rounding", "true",
                "cannot go with optimizer.master_weights = true: masters in float32 lose no update. Remove one of the two");
  }
}

// In what numbers are held, computed and summed.
void CheckPrecision(const v1::Training& t, const v1::OptimizerSection& o, Checker* check) {
  check->OneOf("training.dtype", EnumText(t.dtype()), {"float32", "bfloat16", "float16"});
  CheckMasters(t, o, check);
  check->OneOf("training.mixed_precision_param", EnumText(t.mixed_precision_param()), {"float32", "bfloat16", "float16"});
  CheckLossScale(t, check);
  if (t.mixed_precision_reduce() == v1::BFLOAT16) {
    check->Fail("training.mixed_precision_reduce", "bfloat16", "is not supported yet: gradients are reduced in float32");
  }
  check->OneOf("training.mixed_precision_reduce", EnumText(t.mixed_precision_reduce()), {"float32"});
}

void CheckTraining(const v1::Training& t, Checker* check) {
  check->Whole("training.local_batch_size", t.local_batch_size(), 1);
  check->WholeOrDerived("training.global_batch_size", t.global_batch_size(), "local_batch_size x the data-parallel degree");
  check->Whole("training.seq_len", t.seq_len(), 1);
  check->Real("training.max_norm", t.max_norm(), t.max_norm() >= 0, "must be at least 0, which switches clipping off");
  check->Whole("training.steps", t.steps(), 1);
  check->Whole("training.seed", t.seed(), 0, INT64_MAX);
  check->Real("training.validation_fraction", t.validation_fraction(),
              t.validation_fraction() >= 0 && t.validation_fraction() < 1, "must be at least 0 and below 1");
}

constexpr char kListedSchedule[] = "parallelism.pipeline_parallel_schedule_csv";

// A text of one line is a path that nobody has read: a schedule has a line for each of several ranks.
bool IsPath(const std::string& schedule_csv) { return !absl::StrContains(schedule_csv, "\n"); }

void CheckListedSchedule(const std::string& text, Checker* check) {
  if (text.empty()) return;
  if (IsPath(text)) {
    return check->Fail(kListedSchedule, text,
                       "is a path, and the file's text is needed here: `lego` reads it where a recipe is a file");
  }
  const auto schedule = ParseScheduleCsv(kListedSchedule, text);
  const auto fault = GetFieldViolation(schedule.status());
  if (fault) check->Fail(fault->field(), fault->value(), fault->remedy());
}

void CheckParallelism(const v1::Parallelism& p, Checker* check) {
  check->Whole("parallelism.data_parallel_replicate_degree", p.data_parallel_replicate_degree(), 1);
  check->WholeOrDerived("parallelism.data_parallel_shard_degree", p.data_parallel_shard_degree(), "what the other degrees leave");
  check->Whole("parallelism.zero_stage", p.zero_stage(), 1, 3);
  check->Whole("parallelism.fsdp_prefetch_depth", p.fsdp_prefetch_depth(), 0, 64);
  check->Whole("parallelism.fsdp_reshard_after_forward_size", p.fsdp_reshard_after_forward_size(), 0);
  check->Whole("parallelism.tensor_parallel_degree", p.tensor_parallel_degree(), 1);
  if (!SplitsTokens(p) && p.sequence_parallel_gather_in_backward()) {
    check->Fail("parallelism.sequence_parallel_gather_in_backward", "true",
                "has nothing to gather with sequence_parallel = false, where each rank has all tokens: leave one of them out");
  }
  check->Whole("parallelism.context_parallel_degree", p.context_parallel_degree(), 1);
  check->Whole("parallelism.pipeline_parallel_degree", p.pipeline_parallel_degree(), 1);
  if (!v1::PipelineSchedule_IsValid(p.pipeline_parallel_schedule()) ||
      p.pipeline_parallel_schedule() == v1::PIPELINE_SCHEDULE_UNSPECIFIED) {
    check->Fail("parallelism.pipeline_parallel_schedule", absl::StrCat(static_cast<int>(p.pipeline_parallel_schedule())),
                absl::StrCat("must be one of ", absl::StrJoin(EnumTexts(v1::PipelineSchedule_descriptor()), ", ")));
  }
  CheckListedSchedule(p.pipeline_parallel_schedule_csv(), check);
  check->Whole("parallelism.pipeline_parallel_microbatch_size", p.pipeline_parallel_microbatch_size(), 1);
  if (p.has_pipeline_parallel_layers_per_stage()) {
    check->Whole("parallelism.pipeline_parallel_layers_per_stage", p.pipeline_parallel_layers_per_stage(), 1);
  }
  check->Whole("parallelism.pipeline_parallel_first_stage_less_layers", p.pipeline_parallel_first_stage_less_layers(), 0);
  check->Whole("parallelism.pipeline_parallel_last_stage_less_layers", p.pipeline_parallel_last_stage_less_layers(), 0);
  for (const v1::ModelPart& part : p.module_fqns_per_model_part()) {
    for (const std::string& name : part.modules()) {
      if (IsModuleName(name)) continue;
      check->Fail("parallelism.module_fqns_per_model_part", CutText(name),
                  "is no module's name: they are tok_embeddings, layers.0, layers.1 and so on, norm, output");
    }
  }
}

void CheckOptimizer(const v1::OptimizerSection& o, const v1::LrScheduler& s, Checker* check) {
  for (const OptimizerFault& fault : FaultsOfOptimizer(o, DefaultRecipe().optimizer())) {
    check->Fail(fault.key, fault.value, fault.remedy);
  }
  check->Whole("lr_scheduler.warmup_steps", s.warmup_steps(), 0);
  check->OneOf("lr_scheduler.decay_type", s.decay_type(), {"cosine", "linear", "sqrt", "none"});
  check->Real("lr_scheduler.decay_ratio", s.decay_ratio(), s.decay_ratio() >= 0 && s.decay_ratio() <= 1,
              "must lie between 0 and 1");
  check->Real("lr_scheduler.min_lr_factor", s.min_lr_factor(), s.min_lr_factor() >= 0 && s.min_lr_factor() <= 1,
              "must lie between 0 and 1");
}

// Every how many blocks are computed again.
std::optional<int64_t> EveryKth(const v1::ActivationCheckpoint& section) {
  int64_t k = 0;
  return absl::SimpleAtoi(section.selective_ac_option(), &k) && k >= 1 && k <= kMost ? std::optional(k) : std::nullopt;
}

// What auto chooses by itself may not be said beside it.
void CheckAuto(const v1::ActivationCheckpoint& section, Checker* check) {
  check->Real("activation_checkpoint.memory_budget_gib", section.memory_budget_gib(), section.memory_budget_gib() >= 0,
              "must be at least 0, which stands for all the memory that a device has for tensors");
  if (section.mode() != v1::AC_AUTO) return;
  constexpr char kOfSelective[] =
      "is a key of mode = \"selective\": remove it, as mode = \"auto\" chooses what is computed again";
  const auto& forced = section.per_op_sac_force_recompute_mm_shapes_by_fqns();
  if (section.selective_ac_option() != DefaultRecipe().activation_checkpoint().selective_ac_option())
    check->Fail("activation_checkpoint.selective_ac_option", CutText(section.selective_ac_option()), kOfSelective);
  if (!forced.empty())
    check->Fail("activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns", CutText(forced.at(0)), kOfSelective);
}

void CheckSelective(const v1::ActivationCheckpoint& section, Checker* check) {
  const std::string &option = section.selective_ac_option(), &policy = section.selective_ac_policy();
  if (option == "policy") {
    const auto rules = ParseKeepPolicy(policy);
    const auto fault = GetFieldViolation(rules.status());
    if (fault) check->Fail(fault->field(), CutText(fault->value()), fault->remedy());
  } else if (!policy.empty()) {
    check->Fail("activation_checkpoint.selective_ac_policy", CutText(policy), "needs selective_ac_option = \"policy\"");
  }
  if (option == "op" || option == "policy" || EveryKth(section)) return;
  check->Fail("activation_checkpoint.selective_ac_option", CutText(option),
              "must be \"op\", for every second product, \"policy\", or a number k of at least 1, for every k-th block");
}

void CheckCompile(const v1::Recipe& recipe, Checker* check) {
  const v1::CompileSection& compile = recipe.compile();
  if (compile.fsdp_buckets_size() > 0 && compile.fsdp_bucketing() != v1::BUCKET_BY_MODULES) {
    check->Fail("compile.fsdp_buckets", absl::StrCat(compile.fsdp_buckets_size(), " buckets"),
                "need compile.fsdp_bucketing = \"manual\"");
  }
  if (compile.fsdp_backward_buckets_size() > 0 && compile.fsdp_buckets_size() == 0) {
    check->Fail("compile.fsdp_backward_buckets", absl::StrCat(compile.fsdp_backward_buckets_size(), " buckets"),
                "need compile.fsdp_buckets for the forward");
  }
}

// Each is a file of a step, a line for each of its operators.
void CheckMetrics(const v1::Recipe& recipe, Checker* check) {
  constexpr int kMost = 16;
  const v1::MetricsSection& metrics = recipe.metrics();
  check->Whole("metrics.log_freq", metrics.log_freq(), 1);
  for (const int64_t step : metrics.trace_steps())
    check->Whole("metrics.trace_steps", step, 1, std::max<int64_t>(1, recipe.training().steps()));
  for (const int64_t rank : metrics.trace_ranks()) check->Whole("metrics.trace_ranks", rank, 0);
  const auto at_most = [&](const char* key, int count, const char* what) {
    if (count > kMost) check->Fail(key, absl::StrCat(count, " ", what), absl::StrCat("must be at most ", kMost));
  };
  at_most("metrics.trace_steps", metrics.trace_steps_size(), "steps");
  at_most("metrics.trace_ranks", metrics.trace_ranks_size(), "ranks");
}

// A path would be another one on each host, or within the run directory, as TorchTitan has it.
void CheckFolder(const std::string& folder, Checker* check) {
  if (folder.empty()) return;
  const auto url = objectstore::ParseS3Url("checkpoint.folder", folder);
  const auto fault = GetFieldViolation(url.status());
  if (fault) {
    check->Fail(fault->field(), fault->value(),
                fault->remedy() + ", or leave it out: checkpoints are then in checkpoints/ of job.dump_folder");
  }
}

void CheckRest(const v1::Recipe& recipe, Checker* check) {
  if (recipe.job().dump_folder().empty()) check->Fail("job.dump_folder", "", "must name a folder");
  if (recipe.model().tokenizer_path().empty()) {
    check->Fail("model.tokenizer_path", "", "must be \"byte\" or the path of a tiktoken file");
  }
  CheckAuto(recipe.activation_checkpoint(), check);
  CheckSelective(recipe.activation_checkpoint(), check);
  CheckCompile(recipe, check);
  CheckFolder(recipe.checkpoint().folder(), check);
  check->Whole("checkpoint.interval", recipe.checkpoint().interval(), 1);
  check->Whole("checkpoint.keep_latest_k", recipe.checkpoint().keep_latest_k(), 0);
  check->Whole("checkpoint.max_pending_commits", recipe.checkpoint().max_pending_commits(), 0);
  check->Whole("comm.init_timeout_seconds", recipe.comm().init_timeout_seconds(), 1);
  check->Whole("comm.train_timeout_seconds", recipe.comm().train_timeout_seconds(), 1);
  check->Whole("comm.trace_buf_size", recipe.comm().trace_buf_size(), 1, 10'000'000);
  CheckMetrics(recipe, check);
  check->Whole("validation.freq", recipe.validation().freq(), 1);
  check->WholeOrDerived("validation.steps", recipe.validation().steps(), "the whole held-out text");
  if (recipe.validation().enable() && recipe.training().validation_fraction() == 0) {
    check->Fail("training.validation_fraction", "0", "must be above 0 where validation.enable is true");
  }
}

// What is a text here is a name or a path, and is opened, logged and shown.
void CheckTexts(const v1::Recipe& recipe, Checker* check) {
  ForEachKey([&](const std::string& name, const FieldDescriptor* field) {
    if (field->type() != FieldDescriptor::TYPE_STRING || field->is_repeated()) return;
    if (absl::StrCat(name, ".", field->name()) == kListedSchedule) return;  // a text of lines
    const auto& section = recipe.GetReflection()->GetMessage(recipe, v1::Recipe::descriptor()->FindFieldByName(name));
    const std::string text = section.GetReflection()->GetString(section, field);
    if (!IsPrintable(text)) check->Fail(absl::StrCat(name, ".", field->name()), text, "must not have control characters");
  });
}

// A key whose technique is not built yet.
struct UnsupportedKey {
  const FieldDescriptor *section, *field;
};

std::vector<UnsupportedKey> FindUnsupportedKeys() {
  std::vector<UnsupportedKey> keys;
  ForEachKey([&keys](const std::string& name, const FieldDescriptor* field) {
    if (!field->options().GetExtension(v1::not_supported_yet)) return;
    GOOGLE_CHECK(!field->is_repeated()) << field->full_name();  // CheckSupported compares one value
    keys.push_back({v1::Recipe::descriptor()->FindFieldByName(name), field});
  });
  return keys;
}

void CheckSupported(const v1::Recipe& recipe, Checker* check) {
  static const auto* const keys = new std::vector<UnsupportedKey>(FindUnsupportedKeys());
  google::protobuf::util::DefaultFieldComparator comparator;
  const auto* reflection = recipe.GetReflection();
  for (const auto& [section, field] : *keys) {
    const auto &given = reflection->GetMessage(recipe, section), &defaults = reflection->GetMessage(DefaultRecipe(), section);
    if (comparator.Compare(given, defaults, field, -1, -1, nullptr) == google::protobuf::util::FieldComparator::SAME) continue;
    const Tree value = ToTree(given, field);
    check->Fail(section->name() + "." + field->name(), value.is_string() ? value.get<std::string>() : value.dump(),
                "is not supported yet: leave it at " + field->options().GetExtension(v1::default_text));
  }
}

}  // namespace

const v1::Recipe& DefaultRecipe() {
  static const v1::Recipe* const recipe = new v1::Recipe(MakeDefaultRecipe());
  return *recipe;
}

void FillDefaults(v1::Recipe* recipe) {
  v1::Recipe full = DefaultRecipe();
  full.MergeFrom(*recipe);
  recipe->Swap(&full);
}

std::vector<absl::Status> RecipeFaults(const v1::Recipe& recipe) {
  Checker check;
  CheckTraining(recipe.training(), &check);
  CheckPrecision(recipe.training(), recipe.optimizer(), &check);
  CheckParallelism(recipe.parallelism(), &check);
  CheckSupported(recipe, &check);
  CheckTexts(recipe, &check);
  CheckOptimizer(recipe.optimizer(), recipe.lr_scheduler(), &check);
  CheckRest(recipe, &check);
  return check.faults();
}

absl::Status CheckRecipe(v1::Recipe recipe) {
  FillDefaults(&recipe);
  const std::vector<absl::Status> faults = RecipeFaults(recipe);
  return faults.empty() ? absl::OkStatus() : faults.front();
}

int64_t RecomputedBlocks(const v1::ActivationCheckpoint& section, int64_t first, int64_t last) {
  switch (section.mode()) {
    case v1::AC_FULL: return last - first;
    case v1::AC_SELECTIVE: {
      if (const auto k = EveryKth(section)) return last / *k - first / *k;
      if (section.selective_ac_option() != "policy") return last - first;  // in part
      int64_t blocks = 0;
      for (int64_t block = first; block < last; ++block) blocks += !KeepsWholeBlock(section, block);
      return blocks;
    }
    default: return 0;
  }
}

std::vector<absl::Status> ReadRecipeToml(const std::string& text, const Overrides& overrides,
                                         google::protobuf::Message* message) {
  std::vector<absl::Status> faults = ReadToml(text, message);
  for (const auto& [key, value] : overrides) {
    if (absl::Status status = ApplyOverride(message, key, value); !status.ok()) faults.push_back(std::move(status));
  }
  for (absl::Status& fault : faults) fault = KnowingTorchTitan(fault);
  return faults;
}

absl::Status ReadListedSchedule(v1::Recipe* recipe) {
  const std::string value = recipe->parallelism().pipeline_parallel_schedule_csv();
  if (value.empty() || !IsPath(value)) return absl::OkStatus();
  ASSIGN_OR_RETURN(auto text, ReadFileOf(kListedSchedule, value, kMostTextBytes, "give the path of a CSV file"));
  if (IsPath(text)) text += "\n";  // of one line: no schedule, and no path
  recipe->mutable_parallelism()->set_pipeline_parallel_schedule_csv(std::move(text));
  return absl::OkStatus();
}

absl::StatusOr<v1::Recipe> ParseRecipe(const std::string& text, const Overrides& overrides) {
  v1::Recipe recipe;
  std::vector<absl::Status> faults = ReadRecipeToml(text, overrides, &recipe);
  if (absl::Status status = ReadListedSchedule(&recipe); !status.ok()) {
    faults.push_back(std::move(status));
    recipe.mutable_parallelism()->clear_pipeline_parallel_schedule_csv();
  }
  FillDefaults(&recipe);
  for (absl::Status& fault : RecipeFaults(recipe)) faults.push_back(std::move(fault));
  if (!faults.empty()) return AllFaults(faults);
  return recipe;
}

absl::StatusOr<v1::Recipe> LoadRecipe(const std::string& path, const Overrides& overrides) {
  ASSIGN_OR_RETURN(const auto text, ReadFileOf("recipe", path, kMostTextBytes, "give the path of a TOML file"));
  auto recipe = ParseRecipe(text, overrides);
  return recipe.ok() ? recipe : Annotate(recipe.status(), path);
}

std::string RecipeToToml(const v1::Recipe& recipe) { return ToToml(recipe); }

}  // namespace legoai::parallel

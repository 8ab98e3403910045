#include "worker/launch/resume.h"

#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/recipe/recipe.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::launch {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr std::string_view kFixed[] = {
    "training.global_batch_size",
    "training.seq_len",
    "training.seed",
    "training.validation_fraction",
    "training.mixed_precision_param",
    "training.mixed_precision_reduce",
    "training.dtype",
    "training.initial_loss_scale",
    "optimizer.name",
    "optimizer.lr",
    "optimizer.beta1",
    "optimizer.beta2",
    "optimizer.eps",
    "optimizer.weight_decay",
    "optimizer.momentum",
    "optimizer.nesterov",
    "optimizer.muon_ns_steps",
    "optimizer.muon_adjust_lr_fn",
    "optimizer.muon_lr",
    "optimizer.stochastic_rounding",
    "optimizer.master_weights",
};

constexpr std::string_view kTold[] = {
    "lr_scheduler.warmup_steps",
    "lr_scheduler.decay_type",
    "lr_scheduler.min_lr_factor",
    "lr_scheduler.decay_ratio",
    "training.steps",
    "training.max_norm",
    "training.loss_scale_growth_interval",
};

// Names of things that are compared by what they are (model.name, tokenizer_path, dataset_path), or have done their part
// (initial_load_path, see below); the layout; and what does not touch the training.
constexpr std::string_view kFree[] = {
    "model.name", "model.tokenizer_path", "model.initial_load_path", "training.dataset_path", "training.local_batch_size",
};
constexpr std::string_view kFreeSections[] = {"job",     "parallelism", "activation_checkpoint", "checkpoint", "comm",
                                              "metrics", "validation", "compile"};

template <size_t N>
bool Holds(const std::string_view (&list)[N], std::string_view key) {
  return std::find(std::begin(list), std::end(list), key) != std::end(list);
}

// A field's value as text; of a message, all of it.
std::string ValueOf(const Message& message, const FieldDescriptor* field) {
  const auto* reflection = message.GetReflection();
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !reflection->HasField(message, field)) return "absent";
  if (field->has_presence() && !reflection->HasField(message, field)) return "unset";
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) return reflection->GetString(message, field);
  std::string text;
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  printer.PrintFieldValueToString(message, field, -1, &text);
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) text = absl::AsciiStrToLower(text);
  return std::string(absl::StripAsciiWhitespace(text));
}

// The value of "section.key".
std::string ValueOf(const v1::Recipe& recipe, std::string_view key) {
  const std::vector<std::string> names = absl::StrSplit(std::string(key), '.');
  const auto* section_field = v1::Recipe::descriptor()->FindFieldByName(names[0]);
  const Message& section = recipe.GetReflection()->GetMessage(recipe, section_field);
  return ValueOf(section, section_field->message_type()->FindFieldByName(names[1]));
}

// Whether a checkpoint has parameters and optimizer state in float32: as they are held, or as masters of those that are.
bool SavesFloat32(const v1::Recipe& recipe) {
  return (recipe.training().dtype() == v1::FLOAT32) != recipe.optimizer().master_weights();
}

bool SavesTheSame(std::string_view key, const v1::Recipe& then, const v1::Recipe& now) {
  return (key == "training.dtype" || key == "optimizer.master_weights") && SavesFloat32(then) && SavesFloat32(now);
}

// Refusals of one checkpoint.
class Comparison {
 public:
  Comparison(const v1::CheckpointManifest& manifest, const v1::Start& start)
      : where_(absl::StrCat("the checkpoint of step ", manifest.step(), " in ", start.run_directory())) {}

  absl::Status Refuse(std::string_view field, const std::string& now, const std::string& made_with) const {
    return FieldError(field, now,
                      absl::StrCat(where_, " was made with ", made_with,
                                   ": change it back, choose another job.dump_folder, or begin anew with --fresh"));
  }

 private:
  const std::string where_;
};

absl::Status CompareModels(const v1::Model& then, const v1::Model& now, const Comparison& comparison) {
  const std::string prefix = now.config_json().empty() ? absl::StrCat("model ", now.name(), ": ") : "config.json: ";
  for (int i = 0; i < v1::Model::descriptor()->field_count(); ++i) {
    const FieldDescriptor* field = v1::Model::descriptor()->field(i);
    if (field->name() == "name" || field->name() == "config_json") continue;
    const std::string a = ValueOf(then, field), b = ValueOf(now, field);
    if (a != b) return comparison.Refuse(absl::StrCat(prefix, field->name()), b, a);
  }
  return absl::OkStatus();
}

std::vector<std::string> Changes(const v1::Recipe& then, const v1::Recipe& now) {
  std::vector<std::string> changes;
  for (std::string_view key : kTold) {
    const std::string a = ValueOf(then, key), b = ValueOf(now, key);
    if (a == b) continue;
    const bool schedule = key.substr(0, 13) == "lr_scheduler.";
    const bool decays_until = key == "training.steps" && now.lr_scheduler().decay_type() != "none";
    changes.push_back(absl::StrCat(schedule || decays_until ? "the learning rate's schedule changed: " : "changed: ",
                                   std::string(key), " from ", a, " to ", b, decays_until ? ", where the decay ends" : ""));
  }
  return changes;
}

}  // namespace

std::optional<ResumeRule> RuleOf(std::string_view key) {
  if (Holds(kFixed, key)) return ResumeRule::kFixed;
  if (Holds(kTold, key)) return ResumeRule::kTold;
  if (Holds(kFree, key) || Holds(kFreeSections, key.substr(0, key.find('.')))) return ResumeRule::kFree;
  return std::nullopt;
}

v1::Model CanonicalModel(v1::Model model) {
  model.clear_config_json();
  return model;
}

absl::StatusOr<std::vector<std::string>> CheckGoesOn(const v1::CheckpointManifest& manifest, const v1::Start& start) {
  const Comparison comparison(manifest, start);
  // Keys that the checkpoint's build did not know had what are their defaults now.
  v1::Recipe recipe = start.recipe(), made_with = manifest.recipe();
  for (v1::Recipe* one : {&recipe, &made_with}) parallel::FillDefaults(one);
  RETURN_IF_ERROR(CompareModels(manifest.model(), start.model(), comparison));
  for (std::string_view key : kFixed) {
    const std::string then = ValueOf(made_with, key), now = ValueOf(recipe, key);
    if (now != then && !SavesTheSame(key, made_with, recipe)) return comparison.Refuse(key, now, then);
  }
  if (manifest.tokenizer_identity() != start.tokenizer_identity())
    return comparison.Refuse("model.tokenizer_path", recipe.model().tokenizer_path(),
                             absl::StrCat("another tokenizer, ", made_with.model().tokenizer_path(), " (",
                                          manifest.tokenizer_identity(), ")"));
  if (manifest.dataset_sha256() != start.dataset().sha256())
    return comparison.Refuse("training.dataset_path", recipe.training().dataset_path(),
                             absl::StrCat("another text, of SHA-256 ", manifest.dataset_sha256()));
  // Weights to start from come too late now. The run's own may be forgotten.
  const std::string& weights = recipe.model().initial_load_path();
  const std::string& began_with = made_with.model().initial_load_path();
  if (!weights.empty() && weights != began_with)
    return comparison.Refuse("model.initial_load_path", weights, began_with.empty() ? "fresh weights" : began_with);
  return Changes(made_with, recipe);
}

}  // namespace legoai::launch
